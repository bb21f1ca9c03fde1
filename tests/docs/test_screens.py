"""The pictures of the terminal app are drawn by a command, and there is one for every scene."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from docs.screens import HERE, SCENES, main

ROOT = Path(__file__).parents[2]


def test_there_is_a_picture_of_every_scene():
    assert {path.stem for path in HERE.glob("*.svg")} == set(SCENES)


def test_a_picture_is_drawn_without_a_terminal_or_a_model(tmp_path):
    code = f"import docs.screens as s, sys; s.HERE = s.Path({str(tmp_path)!r}); sys.exit(s.main(['inbox']))"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    drawn = (tmp_path / "inbox.svg").read_text()
    assert "prices.py" in drawn and "waiting" in drawn and str(tmp_path) not in drawn


def test_an_unknown_scene_is_said(capsys):
    assert main(["nothing"]) == 2
    assert "inbox" in capsys.readouterr().err
