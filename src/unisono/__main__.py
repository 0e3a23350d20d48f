"""`python -m unisono`: the same as the command `unisono`."""

import sys

from unisono.cli import main

if __name__ == "__main__":
    sys.exit(main())
