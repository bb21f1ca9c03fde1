"""The launcher: it puts up the walls of a plan or starts nothing, and leaves nothing behind."""

from __future__ import annotations

import marshal
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.guard.sandbox.conftest import readonly
from tests.guard.sandbox.scene import Scene

from retinue.guard.sandbox.box import Box
from retinue.guard.sandbox.policy import SandboxPolicy, namespaces_work
from retinue.guard.sandbox.view import INSIDE_FOLDER, launcher, module_code


def launch(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*launcher(), *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def test_without_a_plan_nothing_is_started(tmp_path: Path):
    done = launch(str(tmp_path / "missing"), "/", "/bin/echo", "started")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == (
        "retinue sandbox: the plan of the command cannot be used "
        f"([Errno 2] No such file or directory: '{tmp_path / 'missing'}')\n"
    )


MODULES = [module_code("namespaces"), module_code("launcher")]
BROKEN = {
    "empty": b"",
    "no values": b"nonsense",
    "no modules": marshal.dumps({}),
    "one module": marshal.dumps((MODULES[1:], {})),
    "no plan": marshal.dumps((MODULES, {})),
    "no calls": marshal.dumps((MODULES, {"calls": {}, "proxy": None})),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=list(BROKEN))
def test_with_a_broken_plan_nothing_is_started(tmp_path: Path, content: bytes):
    (tmp_path / "plan").write_bytes(content)
    done = launch(str(tmp_path / "plan"), "/", "/bin/echo", "started")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("retinue sandbox: ")


def test_a_program_that_is_missing_is_named(scene: Scene, walls: str):
    box = readonly(scene, walls)
    done = subprocess.run(box.wrap(["/missing/program"], scene.workspace), capture_output=True, text=True)
    box.close()
    assert (done.returncode, done.stderr) == (127, "/missing/program: No such file or directory\n")


def test_a_wall_that_cannot_be_built_is_a_refusal_with_its_cause(scene: Scene):
    """A user namespace in which no further ones may be made is a host without namespaces."""
    for policy in (
        SandboxPolicy(namespaces="must"),
        SandboxPolicy(change="all", network="on", hidden=(scene.workspace / "a.txt",)),
    ):
        box = Box(policy, "run")
        script = (
            'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all -- "$@"'
        )
        argv = ["unshare", "-U", "--map-current-user", "--keep-caps", "sh", "-c", script, "sh"]
        argv += box.wrap(["/bin/echo", "started"], scene.workspace)
        done = subprocess.run(argv, capture_output=True, text=True, env=box.environment(os.environ))
        box.close()
        assert done.stdout == ""
        assert done.returncode == 125, done.stderr
        assert "namespaces are not available here" in done.stderr
        assert "retinue doctor" in done.stderr


def test_nothing_of_a_command_outlives_a_retinue_that_was_killed(scene: Scene, walls: str):
    """The whole tree of a confined command ends when the process that started it is killed."""
    telltale = f"3{os.getpid()}"
    code = "import subprocess, sys\nsubprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)\nsys.stdin.read()\n"
    box = readonly(scene, walls)
    argv = box.wrap(["/bin/sh", "-c", f"sleep {telltale} & sleep {telltale} & echo up; wait"], scene.workspace)
    parent = subprocess.Popen(
        [sys.executable, "-c", code, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None and parent.stdout.readline() == "up\n"
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    for _ in range(500):
        left = subprocess.run(["pgrep", "-xf", f"sleep {telltale}"], capture_output=True, text=True).stdout.split()
        if not left or walls == "never":
            break
        time.sleep(0.01)
    for pid in left:
        os.kill(int(pid), signal.SIGKILL)
    box.close()
    if walls != "never":  # without namespaces only the shell itself ends
        assert left == []


def test_what_ships_can_be_read():
    """No file of the sandbox is anything but text."""
    for path in INSIDE_FOLDER.parent.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            path.read_text(encoding="utf-8")
            assert path.suffix in (".py", ".md")
            assert not path.stat().st_mode & 0o111


@pytest.mark.skipif(not namespaces_work(), reason="needs namespaces")
def test_where_no_new_proc_can_be_mounted_processes_are_hidden_all_the_same(scene: Scene):
    """As in containers, where parts of /proc are covered."""
    code = f"""
import os, subprocess
from pathlib import Path
from retinue.guard.sandbox.box import Box
from retinue.guard.sandbox.policy import SandboxPolicy
from retinue.guard.sandbox.policy import namespaces_work
box = Box(SandboxPolicy(namespaces="must"), "run")
script = "cat /proc/{scene.victim.pid}/cmdline; cat /proc/[0-9]*/cmdline; ps ax; "
script += "cat a.txt; diff <(echo) <(echo) && echo same"
argv = box.wrap(["/bin/bash", "-c", script], Path({str(scene.workspace)!r}))
done = subprocess.run(argv, capture_output=True, text=True, env=box.environment(os.environ))
box.close()
print(done.stdout, done.stderr)
"""
    script = 'mount --bind /proc/sys /proc/sys && exec setpriv --bounding-set=-all --inh-caps=-all -- "$@"'
    argv = ["unshare", "-U", "-m", "--map-user=1000", "--map-group=1000", "--keep-caps", "sh", "-c", script, "sh"]
    done = subprocess.run([*argv, sys.executable, "-c", code], capture_output=True, text=True)
    assert "alpha" in done.stdout, done.stderr
    assert "same" in done.stdout
    assert "3600" not in done.stdout
