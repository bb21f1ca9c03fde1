"""`python -m retinue`, and the console script."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType


def main() -> int:
    _complete_surroundings()
    from retinue.runs.heap import raise_thresholds, skip_final_pass

    raise_thresholds()
    # These start nothing, and quickly.
    if sys.argv[1:2] not in (["--help"], ["-h"], ["help"], ["--version"], ["-V"], ["completion"]):
        from retinue.models.keys import take_keys

        take_keys()
    from retinue.app.output import open_writer
    from retinue.frontends.cli.main import run

    sys.stdout, sys.stderr = open_writer(sys.stdout), open_writer(sys.stderr)
    sys.excepthook = _print_exception
    try:
        return run(sys.argv[1:])
    finally:
        skip_final_pass()


def _print_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback without the colours that newer Pythons add: the writer would show them as text."""
    import traceback

    traceback.print_exception(kind, error, trace)


_first_streams: list[object] = []
"""Others are put around their buffers, which would be closed with them."""


def _complete_surroundings() -> None:
    """Give the program the three streams and the home that it counts on, where a container or a service lacks them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # It gets the lowest free number: otherwise the next file would, and output would go there.
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    _first_streams.extend((sys.stdout, sys.stderr))
    if os.path.expanduser("~") == "~":  # noqa: PTH111
        # A user whom the system does not know, and no HOME. Container engines set this one.
        os.environ["HOME"] = "/"


if __name__ == "__main__":
    sys.exit(main())
