"""Vectors in files of any size: their moments, and their way through a model, block by block."""
