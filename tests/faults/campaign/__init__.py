"""Faults on purpose, run by ``bench/faults.py``."""
