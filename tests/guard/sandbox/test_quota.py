# ruff: noqa: E501 - scripts read better on one line
"""The scratch folder of a run and the memory of a command are bounded as a whole (S14, SR1)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from msgspec.structs import replace
from tests.guard.sandbox.conftest import readonly
from tests.guard.sandbox.scene import Scene

from retinue.guard.sandbox.box import Box
from retinue.guard.sandbox.control_groups import group_place
from retinue.guard.sandbox.inside.bounds import used_bytes
from retinue.guard.sandbox.policy import SandboxLimits

MEGABYTE = 1024**2


@pytest.fixture
def box(scene: Scene, walls: str) -> Iterator[Box]:
    limits = SandboxLimits(scratch_bytes=20 * MEGABYTE)
    policy = readonly(scene, walls).policy
    made = Box(replace(policy, limits=limits, reach="system", shown=(scene.workspace,)), "run")
    yield made
    made.close()


FILLING = {
    "one-file": "head -c 900M /dev/zero > $TMPDIR/big",
    "many-files": "for i in $(seq 300); do head -c 3M /dev/zero > $TMPDIR/$i; done",
    "a-closed-folder": "mkdir $TMPDIR/d; for i in $(seq 300); do head -c 3M /dev/zero > $TMPDIR/d/$i; done; chmod 0 $TMPDIR/d",
    "allocated": "for i in $(seq 40); do fallocate -l 500M $TMPDIR/$i; fallocate -l 15M $TMPDIR/s$i; done",
    "unlinked": "for i in $(seq 40); do exec 9>$TMPDIR/x; rm $TMPDIR/x; head -c 900M /dev/zero >&9; done",
}
FULL = "holds more than 20 MB, which is what sandbox.scratchMb allows"


@pytest.mark.parametrize("name", FILLING)
async def test_in_memory_the_kernel_bounds_the_scratch_folder(name: str, scene: Scene, box: Box, walls: str):
    if walls != "must":
        pytest.skip("the folder is on a disk")
    output = await scene.shell(FILLING[name] + "; df -m --output=size,used $TMPDIR | tail -1; false", box)
    assert "No space left on device" in output.text
    assert [int(field) for field in _line_before(output.text, "[").split()] in ([20, used] for used in range(21))
    assert "sandbox.scratchMb" in output.text


def _line_before(text: str, sign: str) -> str:
    lines = text.splitlines()
    return lines[next(number for number, line in enumerate(lines) if line.startswith(sign)) - 1]


@pytest.mark.parametrize("name", ["one-file", "many-files", "a-closed-folder"])
async def test_on_a_disk_a_command_that_writes_too_much_is_stopped(name: str, scene: Scene, box: Box, walls: str):
    if walls == "must":
        pytest.skip("the folder is in memory")
    if walls == "never" and name == "a-closed-folder":
        pytest.skip("modes cannot be changed without namespaces")
    output = await scene.shell(FILLING[name] + "; sleep 30; echo went on", box)
    # No single file gets larger than the folder may be.
    assert output.effect.exit_code == 137 or "File size limit exceeded" in output.text
    assert FULL in output.text or name == "one-file"
    assert used_bytes(str(box.scratch), 10**12) < 900 * MEGABYTE


async def test_on_a_disk_nothing_is_allocated_at_once(scene: Scene, box: Box, walls: str):
    if walls == "must":
        pytest.skip("the folder is in memory")
    output = await scene.shell(FILLING["allocated"], box)
    assert "Operation not supported" in output.text or "not supported" in output.text
    assert used_bytes(str(box.scratch), 10**12) < MEGABYTE


async def test_later_commands_can_only_make_room(scene: Scene, box: Box, walls: str):
    for part in range(3):
        await scene.shell(f"head -c 10M /dev/zero > $TMPDIR/{part}; true", box)
    full = await scene.shell("echo x > $TMPDIR/more; cat $TMPDIR/more; cat a.txt", box)
    assert ("No space left" if walls == "must" else "File too large") in full.text
    assert "alpha" in full.text
    assert walls == "must" or f"nothing can be written. The scratch folder of this run ($TMPDIR) {FULL}" in full.text
    assert "\nx" not in full.text
    await scene.shell("rm $TMPDIR/0 $TMPDIR/1", box)
    after = await scene.shell("echo written > $TMPDIR/more; cat $TMPDIR/more", box)
    assert after.text == "written"


async def test_empty_files_count_too(scene: Scene, box: Box, walls: str):
    output = await scene.shell("cd $TMPDIR && seq 6000 | xargs touch; ls | wc -l", box)
    if walls == "must":
        assert "No space left on device" in output.text
    else:
        assert used_bytes(str(box.scratch), 10**12) >= 6000 * 512


async def test_the_folder_in_memory_goes_with_its_run(scene: Scene, box: Box, walls: str):
    if walls != "must":
        pytest.skip("the folder is on a disk")
    await scene.shell("echo kept > $TMPDIR/x", box)
    assert (await scene.shell("cat $TMPDIR/x", box)).text == "kept"
    assert box._holder is not None
    process = box._holder._process
    # Somebody ends what holds it: the next command has an empty one.
    process.kill()
    process.wait()
    assert "No such file" in (await scene.shell("cat $TMPDIR/x", box)).text
    held = box._holder._process
    box.close()
    assert held.poll() is not None


SIX = "for i in 1 2 3 4 5 6; do $PY -c 'import time; held = bytearray(200 << 20); time.sleep(20)' & done; wait; echo survived"
SHARED = """$PY -c '
import mmap, time
held = mmap.mmap(-1, 1500 << 20)
for page in range(0, 1500 << 20, 4096): held[page] = 1
time.sleep(20); print("survived")'"""


@pytest.mark.parametrize("script", [SIX, SHARED], ids=["six-processes", "shared"])
async def test_the_memory_of_all_processes_is_bounded(script: str, scene: Scene, walls: str):
    policy = readonly(scene, walls).policy
    box = Box(replace(policy, limits=SandboxLimits(memory_bytes=300 * MEGABYTE)), "run")
    output = await scene.shell(script, box)
    box.close()
    assert output.effect.exit_code == 137
    assert "more than 300 MB of memory, which is what sandbox.memoryMb allows" in output.text
    assert "survived" not in output.text


GROUPS = group_place()
needs_groups = pytest.mark.skipif(GROUPS is None, reason="this process may not make control groups")


def groups(run_id: str, process: int | str = "*") -> list[Path]:
    return [] if GROUPS is None else list(GROUPS.folder.glob(f"retinue-{run_id}.*.{process}.*.*.*"))


def members(group: Path) -> str:
    return (group / "cgroup.procs").read_text().strip()


@needs_groups
@pytest.mark.parametrize("scratch", [None, 100])
@pytest.mark.parametrize("script", [SIX, SHARED], ids=["six-processes", "shared"])
def test_the_kernel_bounds_memory_while_nobody_counts(script: str, scratch: int | None, scene: Scene, walls: str):
    """The process that counts is halted before the command takes any."""
    if walls == "bubblewrap":
        pytest.skip("memory is only counted there")
    quota = None if scratch is None else scratch * MEGABYTE
    limits = SandboxLimits(memory_bytes=300 * MEGABYTE, scratch_bytes=quota)
    box = Box(replace(readonly(scene, walls).policy, limits=limits), "bounded")
    script = f"read go; PY={sys.executable}; {script.replace('sleep(20)', 'sleep(3)')}"
    argv, environment = box.wrap(["/bin/sh", "-c", script], scene.workspace), box.environment(os.environ)
    with subprocess.Popen(argv, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE) as command:
        made = wait_for(lambda: [group for group in groups("bounded", os.getpid()) if members(group)])
        command.send_signal(signal.SIGSTOP)
        assert command.stdin is not None
        command.stdin.write(b"\n")
        command.stdin.flush()
        try:
            wait_for(lambda: "oom_kill 0" not in (made[0] / "memory.oom_control").read_text())
            peak = int((made[0] / "memory.max_usage_in_bytes").read_text())
        finally:
            command.send_signal(signal.SIGCONT)
        _, said = command.communicate(timeout=60)
    in_memory = quota if quota and walls == "must" else 0
    assert peak <= limits.memory_bytes + in_memory
    assert command.returncode == 137
    assert said.count(b"more than 300 MB of memory, which is what sandbox.memoryMb allows") == 1
    assert groups("bounded", os.getpid()) == []
    box.close()


@needs_groups
def test_a_group_whose_launcher_was_killed_goes_with_the_run_or_at_the_next_start(scene: Scene, walls: str):
    started = """
import os, signal, subprocess, sys, time
from pathlib import Path
from retinue.guard.sandbox.box import Box
from retinue.guard.sandbox.policy import SandboxPolicy
box = Box(SandboxPolicy(namespaces=sys.argv[1]), "killed")
command = subprocess.Popen(box.wrap(["/bin/sh", "-c", "echo; sleep 2"], Path.cwd()), stdout=subprocess.PIPE)
command.stdout.readline()
command.kill()
command.wait()
while any((group / "cgroup.procs").read_text() for group in Path(sys.argv[3]).glob(f"retinue-killed.*.{os.getpid()}.*")):
    time.sleep(0.02)
if sys.argv[2] == "close":
    box.close()
else:
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert GROUPS is not None
    pids = []
    for end in "close", "kill", "close":
        words = [sys.executable, "-c", started, walls, end, str(GROUPS.folder)]
        with subprocess.Popen(words, stdout=PIPE) as process:
            process.communicate()
        pids.append(process.pid)
        # What a killed process left may be removed by whoever starts next.
        assert end == "kill" or not any(groups("killed", pid) for pid in pids)


def wait_for(found: Callable[[], Any]) -> Any:
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        if result := found():
            return result
        time.sleep(0.02)
    raise AssertionError("it did not happen")


async def test_memory_that_processes_share_counts_once(scene: Scene, walls: str):
    script = '$PY -c \'import os, time; held = b"x" * (100 << 20); [os.fork() for _ in range(3)]; time.sleep(0.7); print("survived")\''
    policy = readonly(scene, walls).policy
    box = Box(replace(policy, limits=SandboxLimits(memory_bytes=300 * MEGABYTE)), "run")
    output = await scene.shell(script, box)
    box.close()
    assert "survived" in output.text
    assert output.effect.exit_code == 0


async def test_memory_that_belongs_to_no_process_cannot_be_had(scene: Scene, walls: str):
    box = readonly(scene, walls)
    output = await scene.shell('$PY -c \'import os; os.memfd_create("x"); print("made")\'', box)
    box.close()
    assert "not implemented" in output.text and "made" not in output.text


async def test_without_a_limit_nothing_is_counted(scene: Scene, walls: str):
    box = readonly(scene, walls)
    output = await scene.shell("head -c 30M /dev/zero > $TMPDIR/x; sleep 0.6; echo done", box)
    box.close()
    assert output.text == "done"


async def test_shared_memory_is_bounded_too(scene: Scene, box: Box, walls: str):
    if walls == "never":
        pytest.skip("it cannot be had without namespaces")
    output = await scene.shell(
        "head -c 15M /dev/zero > /dev/shm/a && head -c 15M /dev/zero > /dev/shm/b; du -sm /dev/shm", box
    )
    assert "No space left on device" in output.text
    assert "20\t/dev/shm" in output.text
