"""The command line: arguments to one library call each, exit codes, progress."""
