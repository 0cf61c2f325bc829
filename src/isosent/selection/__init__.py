"""Which transform, or none: chosen without labels."""
