"""Models in other people's formats, each written only after it gave the same vectors as the model."""
