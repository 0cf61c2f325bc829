"""Transformer networks: token ids to hidden states."""
