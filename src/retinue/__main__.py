"""`python -m retinue`, and the console script."""

from __future__ import annotations

import sys


def main() -> int:
    from retinue.runs.heap import calm, leave

    calm()
    # These start nothing, and quickly.
    if sys.argv[1:2] not in (["--help"], ["-h"], ["help"], ["--version"], ["-V"], ["completion"]):
        from retinue.models.keys import take_keys

        take_keys()
    from retinue.faces.cli.main import run
    from retinue.faces.cli.output import escaping

    sys.stdout, sys.stderr = escaping(sys.stdout), escaping(sys.stderr)
    try:
        return run(sys.argv[1:])
    finally:
        leave()


if __name__ == "__main__":
    sys.exit(main())
