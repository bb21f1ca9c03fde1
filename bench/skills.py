"""CPU time to list skills: cold, when every file is read, and warm, when nothing has changed.

    python bench/skills.py [--skills 2000]

The skills are made up here, a fifth of them one folder deeper than the rest. Goal: 2,000 of them
listed in less than 50 ms when nothing has changed since.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from retinue.capabilities.skills import library as module
from retinue.capabilities.skills.attach import describe_skills
from retinue.capabilities.skills.library import Library
from retinue.capabilities.skills.parse import Root

ROUNDS = 7
GOAL_MS = 50.0
MATTER = """---
name: {name}
description: Works with {name} files. Use it when someone asks to read, make, check or convert them.
allowed-tools: Read, Grep, Bash(python *)
license: MIT
---
"""
BODY = "# How\n\n- Look first.\n- Then change one thing.\n- Check it.\n\n" * 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skills", type=int, default=2000)
    count = parser.parse_args().skills
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / ".claude" / "skills"
        for number in range(count):
            name = f"skill-{number:05}"
            folder = root / (f"group-{number % 20}" if number % 5 == 0 else "") / name
            folder.mkdir(parents=True)
            (folder / "SKILL.md").write_text(MATTER.format(name=name) + BODY)
        time.sleep(0.05)  # so that no file looks as if it were still being written
        library = Library([Root(root, "project")])
        cold = best(lambda: (module._CACHED_CONTENTS.clear(), library.all()))
        warm = best(library.all)
        found = library.all()
        text = best(lambda: describe_skills(found, 4000))
        assert len(found) == count
    print(f"skills           {count:,}")
    print(f"cold             {cold:8.1f} ms")
    print(f"warm             {warm:8.1f} ms   (goal: under {GOAL_MS:g})")
    print(f"list for a model {text:8.1f} ms")
    return 0 if warm < GOAL_MS or count > 2000 else 1


def best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        times.append((time.process_time() - start) * 1000)
    return min(times)


if __name__ == "__main__":
    sys.exit(main())
