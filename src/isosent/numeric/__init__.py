"""Pure functions and frozen values on arrays: no text, no files, no logging, no randomness."""
