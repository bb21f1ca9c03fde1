"""Every program is started by `retinue/core/programs.py`, with a clearance."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.core.programs import Clearance, NotConfinedError, prepare, run

SOURCE = Path(__file__).parents[1] / "src/retinue"
STARTER = "core/programs.py"
BECOME_THE_PROGRAM = ("tools/server_launcher.py", "guard/sandbox/inside/")
"""Scripts that the starter puts before a program: they run as processes of their own and become it."""
CALLS_ALLOWED = {
    ("frontends/cli/terminal.py", "os.fork"): "splits this process, and starts no other program",
    ("frontends/server/launcher.py", "webbrowser.open"): "opens the user's own browser",
}
MODULES = {"subprocess", "pty", "multiprocessing", "pexpect", "_posixsubprocess", "webbrowser"}
OS_NAMES = {"system", "popen", "fork", "forkpty", "startfile"}
LOOP_NAMES = {"create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell"}


def starts(tree: ast.AST) -> Iterator[str]:
    """Yield the names in a module by which a program can be started."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module.partition(".")[0] in MODULES:
                yield module
            for alias in node.names:
                if module in ("os", "posix") and _is_os_start(alias.name):
                    yield f"os.{alias.name}"
                if module.startswith("asyncio") and alias.name in LOOP_NAMES:
                    yield alias.name
        elif isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if owner in ("os", "posix") and _is_os_start(node.attr):
                yield f"os.{node.attr}"
            elif node.attr in LOOP_NAMES:
                yield node.attr
            elif f"{owner}.{node.attr}" == "webbrowser.open":
                yield "webbrowser.open"


def _is_os_start(name: str) -> bool:
    return name in OS_NAMES or name.startswith(("exec", "spawn", "posix_spawn"))


def offences(path: str, text: str) -> list[str]:
    if path == STARTER or path.startswith(BECOME_THE_PROGRAM):
        return []
    found = []
    for name in starts(ast.parse(text)):
        allowed = (path, name) in CALLS_ALLOWED or (name == "webbrowser" and (path, "webbrowser.open") in CALLS_ALLOWED)
        if not allowed:
            found.append(f"{path}: {name}")
    return found


def test_no_other_module_starts_programs() -> None:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        found += offences(str(path.relative_to(SOURCE)), path.read_text())
    assert found == [], "use retinue.core.programs"


@pytest.mark.parametrize(
    "text",
    [
        "import subprocess\nsubprocess.run(['true'])",
        "from subprocess import Popen",
        "import asyncio\nasyncio.create_subprocess_exec('true')",
        "from asyncio import create_subprocess_shell",
        "async def f(loop):\n    await loop.subprocess_exec(None, 'true')",
        "import os\nos.execv('/bin/true', ['true'])",
        "from os import posix_spawn",
        "import os\nos.system('true')",
        "import pty\npty.spawn('sh')",
        "import webbrowser",
    ],
)
def test_a_new_module_that_starts_a_program_is_noticed(text: str) -> None:
    assert offences("frontends/cli/new_command.py", text)


def test_a_program_that_nobody_approved_needs_a_sandbox(tmp_path: Path) -> None:
    with pytest.raises(NotConfinedError):
        prepare(["touch", "made"], clearance="inside", environment={}, cwd=tmp_path)
    with pytest.raises(NotConfinedError):
        prepare(["touch", "made"], clearance="inside", environment={}, cwd=tmp_path, confine=lambda _: None)


def test_a_sandbox_that_cannot_be_made_starts_nothing(tmp_path: Path) -> None:
    def confine(clearance: Clearance) -> None:
        raise OSError("no room")

    with pytest.raises(NotConfinedError, match="no room"):
        prepare(["touch", "made"], clearance="mode", environment={}, cwd=tmp_path, confine=confine)


def test_a_cleared_program_runs(tmp_path: Path) -> None:
    program = prepare(["/bin/sh", "-c", "cat; pwd"], clearance="person", environment={}, cwd=tmp_path)
    done = run(program, stdin_bytes=b"in\n")
    assert (done.returncode, done.stdout.decode().split()) == (0, ["in", str(tmp_path)])
