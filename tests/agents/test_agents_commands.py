"""`retinue agents list`, `show` and `parse`, as programs and people call them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.fork_server import run_program
from tests.git_folder import make_git_folder

AGENT = "---\nname: critic\ndescription: Reviews\ntools: Read, Grep\nmodel: opus\nvibe: calm\n---\nYou review.\n"


class Shell:
    def __init__(self, folder: Path) -> None:
        self.home, self.project = folder / "home", folder / "project"
        self.home.mkdir()
        make_git_folder(self.project)

    def file(self, path: str, text: str | bytes = AGENT, base: Path | None = None) -> Path:
        target = (base or self.project) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        return target

    def run(self, *words: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        env = {"HOME": str(self.home), "PATH": os.environ["PATH"], **environment}
        done = run_program(("agents", *words), self.project, env)
        assert done.returncode == code, done.stderr
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words).stdout)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_list_as_json(shell: Shell) -> None:
    winner = shell.file(".claude/agents/critic.md")
    loser = shell.file(".claude/agents/critic.md", base=shell.home)
    broken = shell.file(".claude/agents/broken.md", "---\nname: broken\n---\n")
    document = shell.json("list", "--json")
    assert set(document) == {"agents", "failed"}
    ours = [agent for agent in document["agents"] if agent["name"] == "critic"]
    assert ours[0] == {
        "name": "critic",
        "description": "Reviews",
        "source": "project",
        "dialect": "claude",
        "path": str(winner),
        "tools": ["Read", "Grep"],
        "model": "opus",
        "readonly": False,
        "enabled": True,
        "shadowed_by": None,
        "problems": [],
    }
    assert (ours[1]["path"], ours[1]["shadowed_by"]) == (str(loser), str(winner))
    assert [failed["path"] for failed in document["failed"]] == [str(broken)]
    assert set(document["failed"][0]) == {"path", "reason", "line"}
    assert "Explore" in {agent["name"] for agent in document["agents"]}


def test_list_for_people(shell: Shell) -> None:
    shell.file(".claude/agents/critic.md", AGENT.replace("Reviews", '"Reviews\\e[31m\\nmore"'))
    shell.file(".claude/agents/broken.md", "---\nname: broken\n---\n")
    shell.file(".claude/agents/README.md", "# Guide\n")
    done = shell.run("list")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("critic")]
    assert line.split()[:4] == ["critic", "project", "Read,", "Grep"]
    assert "\x1b" not in done.stdout
    assert "broken.md" in done.stderr
    assert "README.md" not in done.stderr
    assert "README.md" in shell.run("list", "--all").stderr


def test_list_says_that_an_agent_whose_tools_have_no_value_has_none(shell: Shell) -> None:
    shell.file(".claude/agents/critic.md", AGENT.replace("tools: Read, Grep", "tools:"))
    (line,) = [line for line in shell.run("list").stdout.splitlines() if line.startswith("critic")]
    assert line.split()[:3] == ["critic", "project", "none"]
    (data,) = [agent for agent in shell.json("list", "--json")["agents"] if agent["name"] == "critic"]
    assert data["tools"] == []


def test_list_has_the_names_by_which_the_profiles_of_codingcode_are_started(shell: Shell) -> None:
    names = [line.split()[0] for line in shell.run("list").stdout.splitlines()[1:]]
    assert "codingcode:explore" in names and "explore" not in names
    for name in names:
        shown = shell.run("show", name).stdout.splitlines()[0].split()
        assert shown == ["name", name.removeprefix("codingcode:")]


def test_list_names_the_agents_that_are_left_out(shell: Shell) -> None:
    shell.file(".pi/agents/near.md", "---\nname: near\nreadonly: true\n---\nLook.\n")
    left = shell.file(".agents/left.md", "---\nname: left\nreadonly: true\n---\nLook.\n")
    shell.file(".agents/notes.md", "Only notes.\n")
    said = shell.run("list").stderr
    assert f"not loaded: {left}: Of .pi/agents and .agents, devkit-pi reads the nearest" in said
    assert "notes.md" not in said


def test_list_says_what_is_wrong_with_what_loaded(shell: Shell) -> None:
    shell.file(".claude/agents/a.md", "---\nname: a\ndescription: d\ntools: 42\nallowed_tools: Read\n---\n")
    done = shell.run("list")
    assert "a.md:4" in done.stderr
    assert "1 warning" in done.stderr


def test_list_from_another_folder_with_agents_of_the_command_line(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    text = '{"helper": {"description": "d", "prompt": "p"}}'
    document = shell.json("list", "--json", "--cwd", str(tmp_path / "empty"), "--agents", text)
    assert ("helper", "flag") in {(agent["name"], agent["source"]) for agent in document["agents"]}
    assert shell.run("list", "--agents", "[]", code=2).stdout == ""
    assert shell.run("list", "--cwd", str(tmp_path / "none"), code=2).stdout == ""


def test_show(shell: Shell) -> None:
    path = shell.file(".claude/agents/critic.md")
    other = shell.file(".pi/agents/critic.md", "Prompt only")
    document = shell.json("show", "Critic", "--json")
    assert (document["path"], document["shadows"]) == (str(path), [str(other)])
    assert document["spec"]["tools"]["allow"] == ["Read", "Grep"]
    assert len(document["spec"]["hash"]) == 64
    assert document["fates"]["vibe"] == {"fate": "ignored", "why": "unknown key"}
    assert document["fates"]["name"] == {"fate": "honoured", "to": "name"}
    text = shell.run("show", "critic").stdout
    for word in (str(path), str(other), "Read, Grep", "unknown key", "You review."):
        assert word in text


def test_show_of_nobody_lists_the_names(shell: Shell) -> None:
    done = shell.run("show", "nobody", code=2)
    assert done.stdout == ""
    assert "Explore" in done.stderr


def test_parse_prints_one_line_per_file(shell: Shell) -> None:
    good = shell.file(".claude/agents/critic.md")
    bad = shell.file(".claude/agents/bad.md", "---\ntools: 5\n---\n")
    lines = shell.run("parse", str(good), str(bad), "missing.md").stdout.splitlines()
    first, second, third = (json.loads(line) for line in lines)
    assert list(first) == [
        "file",
        "dialect",
        "name",
        "description",
        "tools",
        "disallowed_tools",
        "model",
        "prompt",
        "spec",
        "fates",
        "problems",
        "error",
    ]
    assert (first["file"], first["dialect"], first["tools"]) == (str(good), "claude", ["Read", "Grep"])
    assert (first["prompt"], first["error"]) == ("You review.", None)
    assert first["spec"]["name"] == "critic"
    assert (second["spec"], second["tools"], second["error"]["code"]) == (None, [], "missing-name")
    assert third["error"]["code"] == "unreadable"


def test_parse_with_a_dialect_and_skills(shell: Shell) -> None:
    path = shell.file("notes/helper.md", "Just text\n")
    assert json.loads(shell.run("parse", "--dialect", "pi", str(path)).stdout)["spec"]["name"] == "helper"
    skill = shell.file(
        "skills/lint/SKILL.md", "---\nname: lint\ndescription: d\nallowed-tools: Read Bash(git log:*)\n---\n"
    )
    for words in ((str(skill),), ("--dialect", "skill", str(skill))):
        found = json.loads(shell.run("parse", *words).stdout)
        assert (found["dialect"], found["tools"]) == ("skill", ["Read", "Bash(git log:*)"])


def test_json_is_utf8_whatever_the_locale(shell: Shell) -> None:
    shell.file(".claude/agents/審査.md", AGENT.replace("Reviews", "審査 🔍"))
    undecodable = os.fsencode(shell.project) + b"/.claude/agents/\xff.md"
    with open(undecodable, "wb") as file:
        file.write(AGENT.replace("name: critic", "name: odd").encode())
    done = shell.run("list", "--json", LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    names = {agent["name"]: agent for agent in json.loads(done.stdout)["agents"]}
    assert names["critic"]["description"] == "審査 🔍"
    assert "odd" in names
