"""Should these vectors be transformed? Figures of the space, what auto would choose, its effect, and an advice."""
