"""Tokenizers and word vectors with their file formats."""
