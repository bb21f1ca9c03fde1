"""What the README shows works on the embedded default, as it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def python(*arguments, folder, home):
    """What Python prints as a user of a fresh home runs it in a folder of the repository."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT / folder,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_python_example_runs_with_the_embedded_default(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(example.splitlines()) <= 30
    said = python("-c", example, folder="src", home=tmp_path)
    assert "completed" in said
    assert re.search(r"[\w/]+\.py:\d+", said)


def test_the_searching_example_runs_with_the_embedded_default(tmp_path):
    (task,) = re.findall(r'\$ retinue run explorer "([^"]+)"', README)
    said = python("-m", "retinue", "run", "explorer", task, folder="examples", home=tmp_path)
    assert "language model" in said


RUNS = (ROOT / "docs" / "runs.md").read_text("utf-8")


def test_the_example_of_many_runs_runs_with_the_embedded_default(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", RUNS, re.DOTALL)
    said = python("-c", example, folder="src", home=tmp_path)
    assert said.count("looks it up completed") == 2
    assert "completed {'version': 2}" in said


def test_the_page_on_many_runs_names_every_event_and_only_commands_that_exist():
    from retinue.frontends.cli.main import COMMANDS
    from retinue.runs.bus import BUS_NAMES

    assert [name for name in sorted(BUS_NAMES) if f"`{name}`" not in RUNS] == []
    verbs = {
        verb for line in re.findall(r"`retinue runs ([^`]*)`((?:, `[a-z]+`)*)", RUNS) for verb in line[0].split()[:1]
    }
    assert verbs and verbs <= set(COMMANDS["runs"].commands)
