"""One setting varied at a time: what it does to the scores of a model."""
