"""Vectors to vectors: transforms that are fitted without labels and fold to one `LinearMap`."""
