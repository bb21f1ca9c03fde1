"""Whatever becomes of the files between a plan and the start of its command, nothing outside is read or changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retinue.guard.sandbox.box import Box
from retinue.guard.sandbox.kernel import why_not
from retinue.guard.sandbox.policy import SandboxPolicy

pytestmark = pytest.mark.skipif(why_not() is not None, reason="no sandbox here")

SECRET = "PRIVATE-AND-OUTSIDE"
OWN = ("work", "work/a", "work/hidden.txt", "work/kept.txt")
"""What a policy names."""
OTHER = ("work/a/c", "work/b", "work/b/d", "work/x", "work/f.txt", "work/a/g.txt")
PLACES = (*OWN, *OTHER)
TARGETS = ("outside", "outside/secret", "/", "work/hidden.txt", "work/b", "..", "nowhere")
WRITING = 2
"""To write into a file, as Landlock numbers rights."""
READ_AND_CHANGE = """
for top in . "$W" "$TMPDIR" /dev/shm; do
  for path in $(find -L "$top" -maxdepth 4 2>/dev/null | head -80); do
    cat "$path" "$path/secret" 2>/dev/null
    echo evil >> "$path"; echo evil > "$path/evil"; rm -f "$path/secret"
  done
done 2>/dev/null
"""


class Tree:
    """A workspace and something outside of it, which is known by descriptors, wherever it is moved."""

    def __init__(self, walls: str) -> None:
        self._masked = walls != "never"
        self.top = Path(os.path.realpath(tempfile.mkdtemp(prefix="tree-")))
        for folder in ("work/a/c", "work/b/d", "outside"):
            (self.top / folder).mkdir(parents=True)
        for file in ("work/f.txt", "work/a/g.txt"):
            (self.top / file).write_text("free\n")
        (self.top / "outside/secret").write_text(SECRET)
        # Landlock alone hides nothing in a writable folder.
        (self.top / "work/hidden.txt").write_text(SECRET if self._masked else "free\n")
        (self.top / "work/kept.txt").write_text("kept\n")
        self._outside = os.open(self.top / "outside", os.O_RDONLY)
        self._files = [os.open(self.top / name, os.O_RDONLY) for name in ("work/hidden.txt", "work/kept.txt")]
        self.mounts: list[tuple[str, str]] = []

    def state(self) -> object:
        """Return what no command may change. Landlock alone protects nothing in a writable folder."""
        with os.scandir(self._outside) as entries:
            names = sorted(entry.name for entry in entries)
        secret = os.open("secret", os.O_RDONLY, dir_fd=self._outside)
        contents = [os.pread(file, 99, 0) for file in (secret, *(self._files if self._masked else ()))]
        os.close(secret)
        return names, contents

    def close(self) -> None:
        for descriptor in (self._outside, *self._files):
            os.close(descriptor)
        shutil.rmtree(self.top)

    def link(self, place: str, target: str) -> None:
        path = self.top / place
        if place in ("work/hidden.txt", "work/kept.txt") or path.is_dir():
            path.rename(self.top / f"away-{len(os.listdir(self.top))}")
        else:
            path.unlink(missing_ok=True)
        path.symlink_to(self.top / target)

    def rename(self, place: str, other: str) -> None:
        (self.top / place).rename(self.top / other)

    def swap(self, place: str, other: str) -> None:
        between = self.top / "between"
        (self.top / place).rename(between)
        (self.top / other).rename(self.top / place)
        between.rename(self.top / other)

    def take(self, place: str, _: str) -> None:
        """Put what is outside in the place of a folder that the policy names."""
        if place in ("work", "work/a"):
            self.swap(place, "outside")

    def mount(self, place: str, _: str) -> None:
        """Mount what is outside over a path that the policy names."""
        named = OWN if self._masked else ("work", "work/a")
        if place in named and os.geteuid() == 0:
            source = "outside" if (self.top / place).is_dir() else "outside/secret"
            self.mounts.append((str(self.top / source), str(self.top / place)))


def policy_of(tree: Tree, walls: str) -> SandboxPolicy:
    work = tree.top / "work"
    masked = walls != "never"
    return SandboxPolicy(
        reach="system",
        writable=(work, work / "a"),
        hidden=(work / "hidden.txt",) if masked else (),
        readonly=(work / "kept.txt",) if masked else (),
        namespaces=walls,
    )


def run(box: Box, argv: list[str], tree: Tree) -> subprocess.CompletedProcess[str]:
    if tree.mounts:
        commands = "; ".join(f"mount --bind {source} {target}" for source, target in tree.mounts)
        argv = ["unshare", "--mount", "sh", "-c", f'{commands}; exec "$@"', "sh", *argv]
    environment = {**box.environment({"PATH": os.environ["PATH"]}), "W": str(tree.top / "work")}
    return subprocess.run(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment, cwd="/"
    )


CHANGE = st.tuples(
    st.sampled_from((Tree.link, Tree.rename, Tree.swap, Tree.take, Tree.mount)),
    st.sampled_from(PLACES),
    st.sampled_from((*PLACES, *TARGETS)),
)


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(CHANGE, max_size=4))
def test_no_change_leads_out(walls: str, changes: list[tuple[Callable[[Tree, str, str], None], str, str]]):
    tree = Tree(walls)
    box = Box(policy_of(tree, walls), "run")
    argv = box.wrap(["/bin/sh", "-c", READ_AND_CHANGE], tree.top / "work")
    try:
        for change, place, other in changes:
            # The secret itself may only be put where the policy says what becomes of it.
            if change is not Tree.link and other in TARGETS:
                continue
            with suppress(OSError):
                change(tree, place, other)
        before = tree.state()
        done = run(box, argv, tree)
        assert tree.state() == before, done.stdout
        assert SECRET not in done.stdout, done.stdout
    finally:
        box.close()
        tree.close()


def test_without_a_change_the_command_reads_and_writes(walls: str):
    """The control: a command that cannot do anything proves nothing."""
    tree = Tree(walls)
    box = Box(policy_of(tree, walls), "run")
    before = tree.state()
    done = run(box, box.wrap(["/bin/sh", "-c", READ_AND_CHANGE], tree.top / "work"), tree)
    assert done.returncode == 0
    assert "free" in done.stdout
    assert (tree.top / "work/a/c/evil").read_text().startswith("evil\n")
    assert tree.state() == before
    box.close()
    tree.close()


def test_every_source_of_a_mount_is_out_of_reach_or_identified(walls: str):
    """A command cannot choose what the next one is given."""
    tree = Tree(walls)
    box = Box(policy_of(tree, walls), "run")
    box.wrap(["/bin/true"], tree.top / "work")
    plan = box._plan
    writable = [str(tree.top / "work"), str(box.scratch)]
    assert not [top for top in writable if Path(top) in Path(plan["void"]).parents]
    assert not [top for top in writable if Path(top) in Path(str(box._plan_file)).parents]
    for target, kind, identity, _ in plan["mounts"]:
        in_reach = any(target == top or target.startswith(f"{top}/") for top in writable)
        assert identity is not None or not in_reach or kind == "memory", (target, kind)
    for rules in plan["landlock"].values():
        for path, access, identity in rules["rules"]:
            in_reach = any(path == top or path.startswith(f"{top}/") for top in writable)
            assert identity is not None or not in_reach or not access & WRITING, path
    box.close()
    tree.close()
