"""The command line, also where its program is not on the path: `python -m outercore`."""

import sys
from typing import NoReturn

from outercore.base.system_errors import explained


def main() -> NoReturn:
    """Runs the command line and ends the process.

    What fails before it can say why, or while it does, is said here: often libraries do not fit
    into the memory that the system gives.
    """
    try:
        from outercore import cli

        cli.main()
    except Exception as error:
        message = explained(error)
        if message is None:
            raise
        sys.stderr.write(f"error: {message}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
