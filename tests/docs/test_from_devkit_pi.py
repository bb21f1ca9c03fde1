"""docs/coming-from-devkit-pi.md, row by row.

The corpus has five real files of devkit-pi, those of its own agents; the other five here are made after its documents.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.docs.coming_from import (
    CORPUS,
    assert_read,
    install,
    listed,
    needs_corpus,
    playing,
    ran,
    said,
    shown_by,
    shows,
)
from tests.program.compatibility_scene import child, delegating, settings, tools, write
from tests.program.conftest import Project
from tests.program.model_server import Reply

PAGE = "docs/coming-from-devkit-pi.md"
HELPER = "---\nname: helper\ndescription: Helps with the code.\n{}---\nYou help with the code of this project.\n"
MADE = {
    "api-reviewer.md": "name: api-reviewer\ndescription: Reviews the API\ntools: read, grep, find, ls, lsp",
    "docs-researcher.markdown": "name: docs-researcher\ntools: web_search, fetch_content, get_search_content",
    "quoted.md": "name: 'quoted'\ndescription: \"A quoted one\"",
    "with-model.md": "name: with-model\nmodel: anthropic/claude-haiku-4-5",
    "bare.md": "name: bare\ndescription: It says nothing else",
}


def made(head: str) -> str:
    """Return an agent file as the documents of devkit-pi describe it."""
    return f"---\n{head}\nreadonly: true\n---\n\nOnly handle the delegated task. Report with file paths.\n"


def shows_row(*cells: str) -> Any:
    return shows(PAGE, *cells)


@needs_corpus
@shows_row("the nearest `.pi/agents` or `.agents` upward, `~/.pi/agent/agents`")
@pytest.mark.parametrize("folder", [".pi/agents", ".agents"])
def test_ten_files_are_agents_from_a_folder_below_and_from_home(project: Project, folder: str) -> None:
    real = sorted((CORPUS / "pi" / "0xnayuta+devkit-pi").rglob("*.md"))
    assert len(real) == 5
    placed = install(project, folder, [(path, path.stem) for path in real])
    for name, head in MADE.items():
        placed[name.partition(".")[0]] = write(project, f"{folder}/{name}", made(head))
    below = project.cwd / "deep" / "below"
    below.mkdir(parents=True)
    top, project.cwd = project.cwd, below
    found = listed(project)
    assert {name: Path(found[name]["path"]) for name in placed} == placed
    project.cwd = top
    write(project, ".pi/agent/agents/mine.md", made("name: mine"), home=True)
    assert listed(project)["mine"]["source"] == "user"
    assert_read(project, placed, "devkit")


def test_the_five_agents_are_built_in(project: Project) -> None:
    found = listed(project)
    assert {found[name]["source"] for name in ("explorer", "researcher", "reviewer", "implementer", "tester")} == {
        "builtin"
    }


@shows_row("`readonly: true`")
def test_read_only_is_enforced_by_a_sandbox(project: Project, serve: Any) -> None:
    write(project, ".pi/agents/helper.md", HELPER.format("readonly: true\ntools: read, bash\n"))
    serve(playing(("bash", {"command": "echo x > made.txt"})))
    ran(project, "run", "helper", "go")
    assert not (project.cwd / "made.txt").exists()
    shown_by(
        "program/test_compatibility_devkit.py::test_a_read_only_agent_keeps_the_read_only_tools_also_with_allow_write"
    )


@shows_row("`config.json`")
def test_their_settings_count_below_ours_and_the_list_shows_which(project: Project) -> None:
    theirs = json.dumps({"subagents": {"maxDepth": 2, "allowWrite": True}})
    write(project, ".pi/agent/extensions/devkit-pi/config.json", theirs, home=True)
    found = {row["name"]: row for row in project.json("settings", "list", "--json")["settings"]}
    assert (found["maxSubagentDepth"]["value"], found["allowWrite"]["value"]) == (2, True)
    assert "config.json" in ran(project, "settings", "list").stdout
    settings(project, maxSubagentDepth=4)
    assert ran(project, "settings", "get", "maxSubagentDepth").stdout.strip() == "4"


@shows_row("`subagent {agent, task}`")
def test_subagent_is_there_with_the_setting_and_agent_without(project: Project, serve: Any) -> None:
    server = serve(delegating("subagent", agent="explorer", task="CHILD"))
    settings(project, delegationVocabulary="devkit")
    ran(project, "-p", "go")
    assert "subagent" in tools(server.requests[0]) and "Agent" not in tools(server.requests[0])
    assert "CHILD" in said(child(server))
    settings(project)
    ran(project, "-p", "go")
    assert "Agent" in tools(server.requests[-1]) and "subagent" not in tools(server.requests[-1])


@shows_row("`allowWrite`")
def test_without_allow_write_agents_of_devkit_pi_write_nothing(project: Project, serve: Any) -> None:
    write(project, ".pi/agents/helper.md", HELPER.format("readonly: false\ntools: read, write\n"))
    server = serve(lambda request: Reply("done"))
    for allowed in (False, True):
        settings(project, allowWrite=allowed)
        ran(project, "run", "helper", "go")
        assert ("write" in tools(server.requests[-1])) is allowed


@shows_row("the result object")
def test_the_result_object_has_the_same_error_codes(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("done"))
    good = json.loads(ran(project, "run", "explorer", "go", "--json").stdout)
    assert good["details"]["results"][0]["agent"] == "explorer"
    bad = json.loads(project.retinue("run", "nobody", "go", "--json").stdout)
    assert bad["details"]["error"]["code"] == "UNKNOWN_AGENT"


@shows_row("`/toolkit` reports")
def test_the_reports_are_commands(project: Project) -> None:
    for command in ("activity", "doctor", "logs"):
        assert project.retinue(command).returncode in (0, 1), command


@shows_row("`web_search`, `fetch_content`, `get_search_content`, `convert_content`, `lsp`")
def test_the_five_tools_can_be_named(project: Project) -> None:
    write(
        project,
        ".pi/agents/helper.md",
        HELPER.format("readonly: true\ntools: web_search, fetch_content, get_search_content, convert_content, lsp\n"),
    )
    shown = project.json("agents", "show", "helper", "--json")
    assert len(shown["spec"]["tools"]["allow"]) == 5 and shown["problems"] == []


@shows_row("limits: 900 s in all, 180 s without a sign of life")
def test_limits_of_devkit_pi_hold_for_its_files() -> None:
    shown_by(
        "runs/test_builtin_agents.py::test_the_five_agents_of_devkit_have_its_hard_and_its_idle_limit",
        "runs/test_builtin_agents.py::test_a_time_limit_of_the_settings_counts_more_than_that_of_a_dialect",
    )
