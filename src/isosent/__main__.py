"""``python -m isosent``: the command line, where its folder is not on the path."""

from isosent.cli.main import main

if __name__ == "__main__":  # processes that a job starts import this module, too
    main()
