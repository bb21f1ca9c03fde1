"""How far a reader must walk: functions, files and switches between files that one request passes through.

    python bench/walk.py [--source SRC]

1. `retinue run explorer …` with one turn.
2. A main agent that starts one background agent, up to the notification about it.

Counted are calls of functions under `src/retinue`, comprehensions and lambdas left out: distinct functions, distinct
files, and how often the next call is in another file than the last one. Loading modules is not counted, nor are the
bodies of their classes (until 2026-11-19 these were: 604 of 1,755 on the first path). `--source` is the `src` folder of
another checkout, to compare.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from rig.project import Project
from rig.server import Server, require_rig

HERE = Path(__file__).parent.parent / "src"
TRACER = """
import json, sys, threading
sys.path.insert(0, sys.argv[1])
source, output = sys.argv[1] + "/retinue/", sys.argv[2]
sys.argv = ["retinue", *sys.argv[3:]]
functions, files, state = set(), set(), {"last": "", "switches": 0}
def profile(frame, event, argument):
    code = frame.f_code
    # Code that is not optimized is the body of a module or a class: it runs when a module is loaded.
    if event != "call" or not code.co_flags & 1 or not code.co_filename.startswith(source) or code.co_name[0] == "<":
        return
    functions.add((code.co_filename, code.co_qualname))
    files.add(code.co_filename)
    if code.co_filename != state["last"]:
        state["last"] = code.co_filename
        state["switches"] += 1
from retinue.__main__ import main
sys.setprofile(profile)
threading.setprofile(profile)
try:
    main()
except SystemExit:
    pass
finally:
    sys.setprofile(None)
    with open(output, "w") as file:
        json.dump({"functions": len(functions), "files": len(files), "switches": state["switches"]}, file)
"""
WALKS = {
    "retinue run explorer": ("run", "explorer", "SCENARIO oneshot"),
    "a background Agent call": ("-p", "SCENARIO fanout N=1 TURNS=1 BG=1 WAIT=1"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=HERE, help="the src folder to measure (default: this checkout)")
    source = parser.parse_args().source.resolve()
    require_rig()
    print(f"{'':<26} {'functions':>10} {'files':>10} {'switches':>10}")
    for name, arguments in WALKS.items():
        counts = walk(source, arguments)
        print(f"{name:<26} {counts['functions']:>10} {counts['files']:>10} {counts['switches']:>10}")


def walk(source: Path, arguments: tuple[str, ...]) -> dict[str, int]:
    """Return the counts of one command, run in a project of its own against the scripted server."""
    with Server() as server, Project() as project:
        output = project.home / "walk.json"
        command = [sys.executable, "-c", TRACER, str(source), str(output), *arguments]
        done = subprocess.run(
            command, cwd=project.cwd, env=project.environment(server.url), capture_output=True, text=True
        )
        if not output.exists():
            raise SystemExit(done.stderr)
        counts: dict[str, int] = json.loads(output.read_text())
        return counts


if __name__ == "__main__":
    main()
