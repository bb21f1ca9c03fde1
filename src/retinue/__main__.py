"""`python -m retinue`, and the console script."""

from __future__ import annotations

import sys


def main() -> int:
    from retinue.supervisor.heap import calm

    calm()
    from retinue.faces.cli.main import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
