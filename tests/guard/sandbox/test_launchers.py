"""The launchers: in machine code and in Python they do the same, and do it or start nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.guard.sandbox.attempts import ALL
from tests.guard.sandbox.conftest import readonly
from tests.guard.sandbox.scene import Scene
from tools.assemble_launchers import MACHINES, SOURCES, assemble

from retinue.guard.sandbox.box import Box
from retinue.guard.sandbox.kernel import machine, machine_called
from retinue.guard.sandbox.launcher import in_python, launcher
from retinue.guard.sandbox.steps import Mark, Steps

pytestmark = pytest.mark.skipif(machine() is None, reason="no sandbox here")

PYTHON = in_python("retinue_launcher")
EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")


@pytest.fixture(params=["here", "python", "arm64"])
def start(request: pytest.FixtureRequest) -> tuple[str, ...]:
    if request.param == "arm64":
        return (EMULATOR, str(SOURCES / "launch-aarch64")) if EMULATOR else pytest.skip("no emulator here")
    return launcher() if request.param == "here" else PYTHON


@pytest.mark.parametrize("name", MACHINES)
def test_the_machine_code_is_what_its_source_says(name: str, tmp_path: Path):
    if not assemble(name, tmp_path / "launch"):
        pytest.skip("no assembler for it here")
    assert (tmp_path / "launch").read_bytes() == (SOURCES / f"launch-{name}").read_bytes()


def test_machine_code_is_used_where_there_is_some():
    assert launcher() == (str(SOURCES / f"launch-{os.uname().machine}"),)


class Walk:
    """Carries out steps that confine nothing."""

    def __init__(self, start: tuple[str, ...], folder: Path) -> None:
        self._start, self._plan = start, folder / "plan"
        called = machine_called("aarch64" if "aarch64" in start[-1] else os.uname().machine)
        assert called is not None
        self.steps = Steps(called.calls)

    def says(self, text: str) -> None:
        self.steps.must("a pipe", "write", 1, text.encode(), len(text))

    def run(self, *program: str, **variables: str) -> subprocess.CompletedProcess[str]:
        self._plan.write_bytes(self.steps.image())
        argv = [*self._start, str(self._plan), *(program or ("/bin/true",))]
        return subprocess.run(argv, env=variables, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.fixture
def walk(start: tuple[str, ...], tmp_path: Path) -> Walk:
    return Walk(start, tmp_path)


def test_steps_are_taken_in_order_and_results_are_passed_on(walk: Walk, tmp_path: Path):
    (tmp_path / "made").write_text("")
    file = walk.steps.must("a file", "openat", -100, str(tmp_path / "made"), 1, keep=walk.steps.own(bytes(8)))
    walk.steps.must("writing", "write", file, b"through a result", 16)
    walk.says("one ")
    walk.says("two ")
    walk.steps.become_the_program()
    done = walk.run("/bin/sh", "-c", 'echo "$0 $1 $V"', "zero", "a b", V="value")
    assert (done.returncode, done.stdout, done.stderr) == (0, "one two zero a b value\n", "")
    assert (tmp_path / "made").read_text() == "through a result"


def test_what_fails_leads_elsewhere(walk: Walk):
    missing, there = Mark(), Mark()
    walk.steps.call("chdir", "/missing", failing=missing, zero=there)
    walk.says("negative is zero ")
    walk.steps.set(missing)
    walk.steps.call("chdir", "/", zero=there)
    walk.says("zero is positive ")
    walk.steps.set(there)
    walk.says("as told")
    walk.steps.become_the_program()
    assert walk.run().stdout == "as told"


def test_nothing_is_started_when_a_step_fails_that_must_not(walk: Walk):
    walk.steps.must("a folder", "chdir", "/missing")
    walk.steps.become_the_program()
    done = walk.run("/bin/echo", "started")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == "retinue sandbox: a folder: No such file or directory\n"


@pytest.mark.parametrize(
    ("program", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("(sleep 0.01; exit 3) & exit 8", 8)]
)
def test_a_parent_ends_as_its_child_does(walk: Walk, program: str, code: int):
    child = Mark()
    walk.steps.end_as(walk.steps.fork("a child", child=child))
    walk.steps.set(child)
    walk.says("child ")
    walk.steps.become_the_program()
    done = walk.run("/bin/sh", "-c", program)
    assert (done.returncode, done.stdout) == (code, "child ")


def test_a_program_that_is_missing_is_named(walk: Walk):
    walk.steps.become_the_program()
    done = walk.run("/missing/program")
    assert (done.returncode, done.stderr) == (127, "/missing/program: No such file or directory\n")


def test_without_a_plan_nothing_happens(start: tuple[str, ...], tmp_path: Path):
    for argv in ([*start], [*start, str(tmp_path / "missing"), "/bin/true"]):
        assert subprocess.run(argv, capture_output=True).returncode not in (0, 127)


def test_a_step_must_lead_somewhere():
    called = machine_called("x86_64")
    assert called is not None
    steps = Steps(called.calls)
    steps.call("chdir", "/", failing=Mark())
    with pytest.raises(ValueError, match="leads nowhere"):
        steps.image()


SOME = """
redirect truncate rm chmod touch-old left-in-background home shared-memory git-commit proc-self-root kill-the-parents
kill-a-process-outside environment-of-a-process-outside unshare remount trace-a-process-outside message-queue
raise-limits keys-of-the-user log-of-other-runs curl bash-udp unix-abstract unix-datagram netlink-socket
""".split()


@pytest.fixture(scope="module")
def in_python_box(shared: Scene, walls: str) -> Iterator[Box]:
    made = Box(readonly(shared, walls).policy, "run", start=PYTHON)
    yield made
    made.close()


@pytest.mark.parametrize("walls", ["must", "never"], indirect=True)
@pytest.mark.parametrize("attempt", [each for each in ALL if each.name in SOME], ids=lambda attempt: attempt.name)
async def test_in_python_the_walls_are_the_same(attempt, shared: Scene, in_python_box: Box):
    before, heard = shared.traces(), len(shared.heard)
    output = await shared.shell(attempt.script, in_python_box)
    assert shared.traces() == before, output.text
    assert shared.heard[heard:] == [], output.text
    assert f"OUT-{shared.out}" not in output.text
