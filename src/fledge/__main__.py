"""`python -m fledge`: the command `fledge`."""

import sys

from fledge.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
