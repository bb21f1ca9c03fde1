"""The drill as a program: prints its figures, and what is wrong; the exit code says whether."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.program.worktree_drill import __doc__ as about
from tests.program.worktree_drill.drill import run_drill


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.program.worktree_drill", description=about, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=50, help="isolated runs to start (default: 50)")
    parser.add_argument("--seed", type=int, default=1, help="chooses plans and moments (default: 1)")
    parser.add_argument("--supervisors", type=int, default=3, help="processes at a time (default: 3)")
    parser.add_argument("--at-once", type=int, default=4, help="agents at work in each (default: 4)")
    parser.add_argument("--keep", action="store_true", help="leave the folder with repository and state")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="worktree-drill-")).resolve()
    report = run_drill(
        folder, args.runs, args.seed, supervisors=args.supervisors, at_once=args.at_once,
        tell=lambda text: print(text, file=sys.stderr, flush=True),
    )  # fmt: skip
    for name, figure in report.figures.items():
        print(f"{name:28} {figure:g}")
    for name, count in report.strikes.items():
        print(f"  killed {name:34} {count}")
    print("\n".join(report.findings) or "Nothing was found.")
    if args.keep or report.findings:
        print(f"Kept: {folder}")
    else:
        import shutil

        shutil.rmtree(folder)
    return 1 if report.findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
