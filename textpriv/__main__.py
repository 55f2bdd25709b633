"""``python -m textpriv``: the command, also where no script of that name is on the path."""

from textpriv.cli.app import main

if __name__ == "__main__":
    main()
