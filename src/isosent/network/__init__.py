"""Padded token ids to pooled vectors: layers, poolings, and the ways to compute them."""
