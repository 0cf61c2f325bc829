"""The main job on a shipped sample, offline."""
