"""kill -9 of supervisors with isolated agents, at any moment and at chosen commands of git: no commit
is lost, no change, no directory. The long version: python -m tests.program.worktree_drill --runs 1000
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.program.worktree_drill.drill import run_drill

RUNS, SEED = 8, 20


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_no_commit_of_a_killed_agent_is_lost_and_no_directory_leaks(tmp_path):
    report = run_drill(tmp_path, RUNS, SEED, supervisors=2)
    assert report.findings == ()
    assert report.figures["worktree runs"] > RUNS and report.figures["supervisors killed"] > 0
