"""Studies of isosent's own methods, and the tables of the papers."""
