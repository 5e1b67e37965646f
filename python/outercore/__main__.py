"""`python -m outercore`: the command line, where its program is not on the path."""

import sys

from outercore.cli import main

if __name__ == "__main__":
    sys.exit(main())
