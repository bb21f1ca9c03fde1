"""What becomes of 500 real command lines in default mode when nobody can be asked.

    python bench/commands.py [--list asked|stopped]

The lines in `commands.txt` come from public agent transcripts, agent files, READMEs and CI files.
Each is judged; one that may run unasked is then really run, inside the walls, in a small project.
A program that is not installed here says so and is no wall's doing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from retinue.core.permission import ToolUse
from retinue.core.tool_names import TOOL_EFFECTS
from retinue.guard.permissions.locations import RunFolders
from retinue.guard.permissions.policy import PermissionPolicy as Permissions
from retinue.guard.sandbox.box import Box
from retinue.guard.sandbox.policy import SandboxLimits, SandboxPolicy, find_stop

LIST = Path(__file__).with_name("commands.txt")
SECONDS = 3
KINDS = ("runs unasked", "asks first", "stopped by a wall")
FILES = {
    "README.md": "# A project\n",
    "src/app.py": "def main() -> int:\n    return 1\n",
    "tests/test_app.py": "from src.app import main\n\n\ndef test_main():\n    assert main() == 1\n",
    "package.json": '{"name": "x", "version": "1.0.0", "scripts": {"test": "node -e 1", "lint": "node -e 1"}}\n',
    "Makefile": "test:\n\t@echo ok\nlint:\n\t@echo ok\ntypecheck-mypy:\n\t@echo ok\n",
    "go.mod": "module x\n",
}


def commands() -> list[tuple[str, str]]:
    """Return each line with the kind of place it was found in."""
    found, source = [], ""
    for line in LIST.read_text("utf-8").splitlines():
        if line.startswith("## "):
            source = line[3:]
        elif line and not line.startswith("#"):
            found.append((source, line))
    return found


def make_project(folder: Path) -> None:
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *arguments], cwd=folder, check=True, capture_output=True)


def kind_of(command: str, permissions: Permissions, box: Box, project: Path) -> str:
    decision = permissions.decide(ToolUse("bash", {"command": command}, TOOL_EFFECTS["bash"]))
    if decision.verdict not in ("allow", "confine"):
        return KINDS[1]
    environment = box.environment({"PATH": os.environ["PATH"], "HOME": str(Path.home()), "TERM": "dumb"})
    try:
        done = subprocess.run(
            box.wrap(["/bin/bash", "-c", command], project),
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return KINDS[0]
    return KINDS[2] if find_stop(done.stdout, done.returncode, listed=True, system=True) else KINDS[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", choices=("asked", "stopped"), help="print these command lines, too")
    wanted = {"asked": KINDS[1], "stopped": KINDS[2]}.get(parser.parse_args().list or "")
    counts: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        project = Path(name).resolve() / "project"
        project.mkdir()
        make_project(project)
        permissions = Permissions("default", RunFolders.of(project, home=str(Path.home())), walls=True, masks=True)
        box = Box(
            SandboxPolicy(reach="system", shown=(project,), home=Path.home(), limits=SandboxLimits(processes=None)),
            "bench",
        )
        for source, command in commands():
            kind = kind_of(command, permissions, box, project)
            counts.setdefault(source, Counter())[kind] += 1
            if kind == wanted:
                print(f"  {command}")
        box.close()
    print_table(counts)


def print_table(counts: dict[str, Counter[str]]) -> None:
    print(f"| found in | lines | {' | '.join(KINDS)} |")
    print("|---|---|---|---|---|")
    whole: Counter[str] = Counter()
    for source, found in counts.items():
        whole += found
        print_row(source, found)
    print_row("all", whole)


def print_row(source: str, found: Counter[str]) -> None:
    total = sum(found.values())
    cells = [f"{found[kind]} ({100 * found[kind] / total:.0f} %)" for kind in KINDS]
    print(f"| {source} | {total} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
