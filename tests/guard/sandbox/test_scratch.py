# ruff: noqa: E501 - one script on one line
"""Scratch folders: private, and never left for long."""

from __future__ import annotations

import stat
import subprocess
import sys

from retinue.guard.sandbox import plan as scratch
from retinue.guard.sandbox.plan import Scratch


def test_it_is_private_and_goes(tmp_path, monkeypatch):
    made = Scratch("run-1")
    assert stat.S_IMODE(made.folder.parent.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(made.folder.parent.stat().st_mode) == 0o700
    (made.folder / "deep" / "er").mkdir(parents=True)
    (made.folder / "deep").chmod(0)
    made.remove()
    assert not made.folder.parent.exists()
    made.remove()


def test_what_a_killed_process_left_is_removed_by_the_next_and_that_of_others_is_not(tmp_path):
    code = "from retinue.guard.sandbox.plan import Scratch; print(Scratch('dead').folder.parent, flush=True); import os; os.kill(os.getpid(), 9)"
    died = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    left = scratch.Path(died.stdout.strip())
    assert left.is_dir()
    foreign = left.with_name(left.name.replace(f".{scratch._realm()}.", ".1."))
    foreign.mkdir()
    mine = Scratch("mine")
    scratch._remove_abandoned.cache_clear()
    other = Scratch("other")
    assert not left.exists()
    assert mine.folder.is_dir()
    assert foreign.is_dir()
    foreign.rmdir()
    mine.remove()
    other.remove()
