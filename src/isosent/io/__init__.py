"""Files: texts, tables, vectors, JSON, and writing that leaves no half-written file."""
