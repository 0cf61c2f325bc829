"""Files that hold neither models nor scores: texts coming in, vectors going out, and how anything is written."""
