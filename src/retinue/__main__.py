"""`python -m retinue`, and the console script."""

from __future__ import annotations

import sys


def main() -> int:
    from retinue.supervisor.heap import calm, leave

    calm()
    from retinue.faces.cli.main import run

    try:
        return run(sys.argv[1:])
    finally:
        leave()


if __name__ == "__main__":
    sys.exit(main())
