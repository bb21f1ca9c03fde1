"""What the pages of docs/ show, runs: programs, command lines and the files they begin with."""

import argparse
import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from retinue.faces.cli.main import APP, COMMANDS, HEADLESS, Command, Group
from retinue.faces.cli.project import Parser
from tests.program.model_server import Reply, Request

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"])
SAMPLES = {"string": "text", "integer": 1, "boolean": True}


def blocks(page: str, language: str) -> list[tuple[str, str]]:
    """Return the title and the text of each block of code on a page."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    return re.findall(rf'^```{language}(?: title="([^"]*)")?\n(.*?)^```', text, re.DOTALL | re.MULTILINE)


def answer(request: Request) -> Reply:
    """Answer anything: with a result where one is asked for."""
    for tool in request.body.get("tools", ()):
        if tool["name"] == "submit_result":
            properties = tool["input_schema"]["properties"]
            return Reply(calls=[("submit_result", {name: SAMPLES[each["type"]] for name, each in properties.items()})])
    return Reply("Done.")


@pytest.fixture
def reader(project, serve):
    """A person who follows a page in a small project."""
    serve(answer)
    binaries = project.home / "bin"
    binaries.mkdir()
    (binaries / "retinue").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m retinue "$@"\n')
    (binaries / "retinue").chmod(0o755)
    (project.cwd / "notes.txt").write_text("version = 1\n")
    project.mode = ""
    environment = project.environment | {"PATH": f"{binaries}:{os.environ['PATH']}"}

    def follow(*words: str) -> str:
        done = subprocess.run(
            words, cwd=project.cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    follow.cwd = project.cwd
    return follow


@pytest.mark.parametrize("number", range(len(blocks("library.md", "python"))))
def test_every_recipe_of_the_library_runs(reader, number):
    reader(sys.executable, "-c", blocks("library.md", "python")[number][1])


def command_lines(page: str) -> list[str]:
    found = []
    for _, text in blocks(page, "console"):
        found += [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    return found


def test_every_command_of_the_page_about_scripts_runs(reader):
    reader("git", "init", "-q")
    for line in command_lines("scripts.md"):
        reader("sh", "-c", line)


def test_the_tutorial_can_be_followed_from_its_beginning_to_its_end(reader):
    for language in ("python", "markdown"):
        for title, text in blocks("tutorial.md", language):
            if title:
                (reader.cwd / title).parent.mkdir(parents=True, exist_ok=True)
                (reader.cwd / title).write_text(text)
    for line in command_lines("tutorial.md"):
        reader("sh", "-c", line)
    (program,) = [text for title, text in blocks("tutorial.md", "python") if not title]
    assert "reviewer-of-money completed" in reader(sys.executable, "-c", program)


def shown_commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        for block in re.findall(r"^```(?:console|sh|bash)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            for line in block.splitlines():
                found += [(page.name, part) for part in re.findall(r"(?:^\$ |^|\| )(retinue [^|>&]*)", line)]
    return found


@pytest.mark.parametrize(("page", "line"), shown_commands())
def test_every_command_line_of_every_page_can_be_read(page, line):
    words = shlex.split(line, comments=True)[1:]
    entry: Command | Group = COMMANDS.get(words[0], HEADLESS) if words else APP
    if words and words[0] in COMMANDS:
        words = words[1:]
    if isinstance(entry, Group):
        entry, words = entry.commands[words[0]], words[1:]
    home, _, name = entry.home.partition(":")
    parser = Parser(prog=page)
    configure = getattr(importlib.import_module(f"retinue.faces.cli.{home}"), f"configure{'_' + name if name else ''}")
    configure(parser)
    assert isinstance(parser.parse_args(words), argparse.Namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_program_and_every_settings_file_of_every_page_can_be_read(page):
    import json

    from retinue import Retinue
    from retinue.settings.table import groups, spellings

    for program in re.findall(r"^```python[^\n]*\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        compile(program, page.name, "exec")
    for text in re.findall(r"^```json\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        data = json.loads(text)
        if isinstance(data, dict) and all(name in groups() or name in spellings() for name in data):
            # Raises for a setting that does not exist or cannot have this value.
            Retinue(page.parent, settings=data)
