"""Word vectors and tokenizers."""
