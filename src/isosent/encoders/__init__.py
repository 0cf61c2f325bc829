"""Texts to vectors: one contract, `Encoder`, and the families that fulfil it."""
