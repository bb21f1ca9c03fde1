"""Events, requests, messages and listings of the scripted runs are as they were captured.

After a change that is meant: `python -m tests.golden.capture --write`, then read the difference.
"""

import pytest

from tests.golden import capture
from tests.golden.capture import compare
from tests.golden.scenes import SCENES


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_a_scripted_run_is_as_it_was_captured(scene):
    assert compare(scene) == []


def test_captures_are_not_written_where_less_is_installed(monkeypatch, capsys):
    here = capture.environment()
    monkeypatch.setattr(capture, "environment", lambda: here[1:])
    monkeypatch.setattr(capture.sys, "argv", ["capture", "--write"])
    assert capture.main() == 2
    assert here[0] in capsys.readouterr().out
