"""isosent models where the interface of another library is expected."""
