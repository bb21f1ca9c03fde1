"""The program where something is missing that programs count on: a stream, room on the disk, a home."""

import os
import subprocess
import sys

import pytest


def run(project, redirection: str, *words: str, **environment: str):
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", *project.program, *words],
        cwd=project.cwd,
        env=project.environment | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("words", [("agents", "list"), ("run", "Explore", "Where is alpha?"), ("--help",)])
@pytest.mark.parametrize("redirection", [">&-", ">&- 2>&- <&-"])
def test_closed_streams_are_no_error(project, words, redirection):
    done = run(project, redirection, *words)
    assert done.returncode == 0 and "Traceback" not in done.stderr


def test_no_file_of_ours_takes_the_number_of_a_closed_stream(project):
    run(project, ">&-", "run", "Explore", "Where is alpha?")
    rows = project.json("runs", "list", "--json")
    assert len(rows["runs"] if isinstance(rows, dict) else rows) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("words", [("agents", "list"), ("settings", "list", "--json"), ("--help",)])
def test_a_full_disk_is_a_sentence(project, words):
    done = run(project, ">/dev/full", *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "retinue: The output could not be written: No space left on device.\n"


def test_a_reader_that_leaves_early_is_no_error(project):
    done = run(project, "| head -1", "agents", "list")
    assert done.stderr == "" and done.stdout.count("\n") == 1


WITHOUT_HOME = """
import pwd, sys
def unknown(*_):
    raise KeyError("uid not found")
pwd.getpwuid = pwd.getpwnam = unknown
sys.argv[0] = "retinue"
from retinue.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("words", [("agents", "list"), ("settings", "list"), ("models", "list")])
def test_a_user_without_a_home(project, words):
    environment = {"PATH": os.environ["PATH"], "RETINUE_HOME": str(project.home / "kept")}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_HOME, *words], cwd=project.cwd, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_home_that_cannot_be_written_is_named_with_a_remedy(project):
    done = run(project, "", "run", "Explore", "alpha", HOME="/proc/none", RETINUE_HOME="")
    assert done.returncode == 1 and "Set RETINUE_HOME" in done.stderr and "Traceback" not in done.stderr
