"""Getting the files of public tasks: what there is, where it comes from, and how it is checked."""
