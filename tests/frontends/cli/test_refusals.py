"""What the program says when it will not start: on stdout in the form that was asked for, and why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def retinue(cwd: Path, *arguments: str, inside: str = "") -> subprocess.CompletedProcess[str]:
    """The program, started in `cwd`; `inside` is what a shell does there first."""
    home = cwd.parent / "home"
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "RETINUE_HOME": str(home / ".retinue")}
    words = ["sh", "-c", f'{inside or ":"}; exec "$@"', "sh", sys.executable, "-m", "retinue", *arguments]
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["run", "nobody", "x", "--mode", "json"], "UNKNOWN_AGENT"),
        (["run", "Explore", "x", "--mode", "json", "--cwd", "nowhere"], "USAGE"),
        (["-p", "x", "--agent", "nobody", "--output-format", "stream-json"], "UNKNOWN_AGENT"),
        (["-p", "x", "--model", "nothing/like-it", "--output-format", "stream-json"], "UNKNOWN_MODEL"),
        (["runs", "resume", "123", "--mode", "json"], "UNKNOWN_RUN"),
    ],
)
def test_a_refusal_is_the_last_line_of_a_stream_of_events(project: Path, arguments: list[str], code: str) -> None:
    done = retinue(project, *arguments)
    assert done.returncode == 2
    (line,) = done.stdout.splitlines()
    outcome = json.loads(line)
    assert (outcome["type"], outcome["ended"], outcome["failure"]["kind"]) == ("outcome", "refused", code)
    assert {"run_id", "parent_id", "seq", "at"} <= outcome.keys()
    assert outcome["failure"]["message"] in done.stderr


WRONG_OPTIONS = [
    ["run", "Explore", "x", "--timeout", "-1"],
    ["run", "Explore", "x", "--max-turns", "x"],
    ["run", "Explore"],
    ["run", "Explore", "x", "--nonsense"],
    ["runs", "resume", "--timeout", "0"],
]


@pytest.mark.parametrize("arguments", WRONG_OPTIONS)
def test_an_option_that_cannot_be_read_is_refused_in_the_form_that_was_asked_for(
    project: Path, arguments: list[str]
) -> None:
    done = retinue(project, *arguments, "--json")
    error = json.loads(done.stdout)["details"]["error"]
    assert (done.returncode, error["code"]) == (2, "INVALID_INPUT")
    assert error["message"].split("Try: ")[0].strip() in done.stderr
    for option in (["--mode", "json"], ["--mode=json"]):
        done = retinue(project, *arguments, *option)
        outcome = json.loads(done.stdout)
        assert (done.returncode, outcome["type"], outcome["ended"]) == (2, "outcome", "refused")
        assert (outcome["failure"]["kind"], outcome["failure"]["message"] in done.stderr) == ("USAGE", True)
    assert retinue(project, *arguments).stdout == ""


def test_an_option_of_a_prompt_that_cannot_be_read_is_refused_in_its_output_format(project: Path) -> None:
    done = retinue(project, "-p", "x", "--output-format", "json", "--timeout", "-1")
    document = json.loads(done.stdout)
    assert (done.returncode, document["status"], document["error"]["code"]) == (2, "refused", "USAGE")
    done = retinue(project, "-p", "x", "--max-turns", "x", "--output-format=stream-json")
    outcome = json.loads(done.stdout)
    assert (done.returncode, outcome["type"], outcome["failure"]["kind"]) == (2, "outcome", "USAGE")
    assert "--max-turns" in outcome["failure"]["message"]


@pytest.mark.parametrize(
    "command", [["run", "Explore", "x"], ["agents", "list"], ["doctor"], ["-p", "x"], ["runs", "list"]]
)
def test_a_deleted_working_directory_is_said_and_no_traceback(project: Path, command: list[str]) -> None:
    done = retinue(project, *command, inside='rmdir "$PWD"')
    assert done.returncode == 2
    assert "The folder this was started in does not exist any more" in done.stderr
    assert "Traceback" not in done.stderr


def test_from_a_deleted_working_directory_another_one_can_be_named(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    done = retinue(project, "run", "Explore", "Where is authentication?", "--cwd", str(other), inside='rmdir "$PWD"')
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_agent_name_is_invalid_input_and_not_an_unknown_agent(project: Path, name: str) -> None:
    done = retinue(project, "run", name, "x", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["details"]["error"]["code"] == "INVALID_INPUT"


def test_a_budget_of_no_dollars_means_the_same_on_either_option(project: Path) -> None:
    for option in (["--max-budget-usd", "0"], ["--budget", "usd=0"]):
        done = retinue(project, "run", "Explore", "x", *option)
        assert done.returncode == 1
        assert "The budget is spent" in done.stderr
    assert retinue(project, "run", "Explore", "x", "--max-budget-usd", "-1").returncode == 2
    assert retinue(project, "run", "Explore", "x", "--max-budget-usd", "nan").returncode == 2


def test_paths_on_the_command_line_are_those_of_the_folder_one_is_in(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (project / "mine.md").write_text("---\nname: mine\ndescription: d\ntools: Read\n---\nWork.\n")
    linted = json.loads(retinue(project, "agents", "lint", "mine.md", "--cwd", str(other), "--json").stdout)
    assert linted["files"] == 1
    done = retinue(project, "agents", "convert", "mine.md", "--to", "pi", "-o", "out.md", "--cwd", str(other))
    assert done.returncode == 0, done.stderr
    assert (project / "out.md").is_file() and not (other / "out.md").exists()
