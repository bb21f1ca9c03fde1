"""What the guard's permissions cost: CPU per decision for typical calls, and the first import.

    python bench/guard.py [--calls 2000]

Every decision is made on a command it has not seen (a counter is part of it), so the time holds
the parsing of the shell. Best of five rounds after one to warm up. Goal: at most 1 ms a call.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from retinue.core.permission import ToolUse
from retinue.core.tool_names import TOOL_EFFECTS
from retinue.guard.permissions.locations import RunFolders
from retinue.guard.permissions.policy import PermissionPolicy
from retinue.guard.permissions.rule import Rule, parse_rule

GOAL_MS = 1.0
RULES = {
    "allow": ("Bash(npm test:*)", "Bash(git commit *)", "Edit(/src/**)", "WebFetch(domain:docs.python.org)"),
    "ask": ("Bash(git push:*)", "Read(*.pem)"),
    "deny": ("Bash(rm:*)", "Bash(curl *)", "Read(.env)", "Read(secrets/**)", "mcp__prod"),
}
COMPOUND = 'cd src && timeout 60 git log --oneline -5 | grep -v fix > out{n}.txt; for f in *.py; do wc -l "$f"; done'
CALLS: dict[str, tuple[str, Callable[[int], dict[str, Any]]]] = {
    "read a file": ("read", lambda n: {"path": f"src/module{n}.py"}),
    "edit a file": ("edit", lambda n: {"path": f"src/module{n}.py", "edits": []}),
    "git status": ("bash", lambda n: {"command": f"git status {n}"}),
    "npm test": ("bash", lambda n: {"command": f"npm test -- --shard={n}"}),
    "a compound command": ("bash", lambda n: {"command": COMPOUND.format(n=n)}),
    "a script in a script": ("bash", lambda n: {"command": f"bash -c 'git add x{n}; git commit -m \"$(date)\"'"}),
}


def policy(folder: str, *, ruled: bool) -> PermissionPolicy:
    rules = []
    for kind, texts in RULES.items() if ruled else ():
        for text in texts:
            rule = parse_rule(text, kind, source="bench", base=folder)
            assert isinstance(rule, Rule)
            rules.append(rule)
    return PermissionPolicy("default", RunFolders.of(folder), rules)


def cost(judge: PermissionPolicy, tool: str, arguments: Callable[[int], dict[str, Any]], calls: int) -> float:
    """Milliseconds of CPU for one decision."""
    rounds, number = [], 0
    for _ in range(6):
        uses = [ToolUse(tool, arguments(number + each), TOOL_EFFECTS[tool]) for each in range(calls)]
        number += calls
        start = time.process_time()
        for use in uses:
            judge.decide(use)
        rounds.append((time.process_time() - start) / calls * 1000)
    return min(rounds[1:])


def import_cost(statement: str) -> float:
    """Milliseconds of CPU that a statement adds to a start of Python, best of five."""

    def run(code: str) -> float:
        script = f"import time, resource; {code}; print(resource.getrusage(resource.RUSAGE_SELF).ru_utime)"
        return float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)

    base = "import retinue.core.permission, retinue.core.tool_names, retinue.settings.places"
    return (min(run(f"{base}; {statement}") for _ in range(5)) - min(run(base) for _ in range(5))) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=500)
    calls = parser.parse_args().calls
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'CPU per decision':28} {'no rules':>10} {'11 rules':>10}")
        for name, (tool, arguments) in CALLS.items():
            figures = [cost(policy(folder, ruled=ruled), tool, arguments, calls) for ruled in (False, True)]
            worst = max(worst, *figures)
            print(f"{name:28} {figures[0]:7.3f} ms {figures[1]:7.3f} ms")
    print(f"import, before the first call {import_cost('import retinue.guard.permissions.policy'):6.1f} ms")
    print(f"import, with the first command {import_cost(FIRST):5.1f} ms")
    print(f"goal: {GOAL_MS} ms a decision: {'reached' if worst <= GOAL_MS else 'missed'} ({worst:.3f} ms at worst)")


FIRST = (
    "from retinue.guard.permissions.policy import PermissionPolicy; "
    "from retinue.guard.permissions.locations import RunFolders; "
    "from retinue.core.permission import ToolUse; "
    "PermissionPolicy('default', RunFolders.of('.')).decide(ToolUse('bash', {'command': 'ls'}))"
)

if __name__ == "__main__":
    main()
