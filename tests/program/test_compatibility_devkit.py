"""Promises of devkit-pi's documents that no other test holds, through the program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.program.compatibility_scene import (
    child,
    codes,
    delegating,
    is_child,
    settings,
    system,
    told,
    tools,
    was_started,
    write,
)
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

API_REVIEWER = """---
name: api-reviewer
description: Project-specific API reviewer
readonly: true
tools: read, grep, find, ls, lsp
---

You are a project-specific API review subagent.

Only handle the delegated task. Do not call other subagents.
"""
DOCS_RESEARCHER = """---
name: docs-researcher
description: External documentation researcher
readonly: true
tools: web_search, fetch_content, get_search_content
---

You research external documentation and return concise findings with source URLs.
"""
WITHOUT_MEANING = ("package", "defaultContext", "tags", "routingHints", "temperature", "maxTokens", "provider")


def test_the_two_examples_of_devkit_pi_run_with_their_tools_and_their_prompt(project: Project, serve: Any) -> None:
    write(project, ".pi/agents/api.md", API_REVIEWER)
    write(project, ".pi/agents/docs.markdown", DOCS_RESEARCHER)
    server = serve(lambda request: Reply("done"))
    assert project.retinue("run", "api-reviewer", "go").returncode == 0
    assert tools(server.requests[-1]) == {"read", "grep", "find", "ls", "lsp"}
    assert "You are a project-specific API review subagent.\n\nOnly handle" in system(server.requests[-1])
    assert project.retinue("run", "docs-researcher", "go").returncode == 0
    assert tools(server.requests[-1]) <= {"web_search", "fetch_content", "get_search_content"}
    assert {"web_search", "fetch_content"} <= tools(server.requests[-1])


def test_names_of_tools_are_trimmed_empty_ones_left_out_and_keys_may_have_hyphens(project: Project, serve: Any) -> None:
    text = "---\nname:   trimmed  \nreadonly: true\nmy-own_key: 'x'\ntools:  read ,, grep ,\n---\nLook.\n"
    write(project, ".pi/agents/a.md", text)
    server = serve(lambda request: Reply("done"))
    assert project.retinue("run", "trimmed", "go").returncode == 0
    assert tools(server.requests[0]) == {"read", "grep"}
    assert project.json("agents", "show", "trimmed", "--json")["fates"]["my-own_key"]["fate"] == "ignored"


def test_text_before_the_first_line_of_hyphens_is_no_frontmatter(project: Project) -> None:
    write(project, ".pi/agents/late.md", "Hello\n---\nname: hidden\nreadonly: true\n---\nLook.\n")
    names = [agent["name"] for agent in project.json("agents", "list", "--json")["agents"]]
    assert "hidden" not in names and "late" in names


def test_keys_that_mean_nothing_to_devkit_pi_change_nothing_and_are_named(project: Project, serve: Any) -> None:
    lines = "".join(f"{key}: 0.3\n" for key in WITHOUT_MEANING)
    write(project, ".pi/agents/k.md", f"---\nname: k\nreadonly: true\ntools: read\n{lines}---\nLook.\n")
    server = serve(lambda request: Reply("done"))
    assert project.retinue("run", "k", "go").returncode == 0
    body = server.requests[0].body
    assert "temperature" not in body and body["max_tokens"] > 1 and body["model"] == "claude-sonnet-4-5"
    fates = project.json("agents", "show", "k", "--json")["fates"]
    assert {fates[key]["fate"] for key in WITHOUT_MEANING} == {"ignored"}


def test_a_key_that_limits_counts_in_a_file_of_devkit_pi_too(project: Project, serve: Any) -> None:
    head = "---\nname: off\nreadonly: true\n"
    write(project, ".pi/agents/off.md", f"{head}disabled: true\n---\nLook.\n")
    server = serve(delegating("subagent", agent="off", task="CHILD"))
    settings(project, delegationVocabulary="devkit")
    assert codes(project) == ["SUBAGENT_DISABLED"]
    assert not was_started(server)
    refused = project.retinue("run", "off", "go", "--json")
    assert json.loads(refused.stdout)["details"]["error"]["code"] == "SUBAGENT_DISABLED"
    write(project, ".pi/agents/off.md", f"{head}permissions: {{write: deny, bash: deny}}\n---\nLook.\n")
    assert project.retinue("run", "off", "go").returncode == 0
    assert not tools(server.requests[-1]) & {"write", "bash"}
    write(project, ".claude/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: About pages\n---\nTurn.\n")
    for line, has in (("", True), ("inheritSkills: false\n", False)):
        write(project, ".pi/agents/off.md", f"{head}{line}---\nLook.\n")
        assert project.retinue("run", "off", "go").returncode == 0
        assert ("skill" in tools(server.requests[-1])) is has


def test_a_read_only_agent_keeps_the_read_only_tools_also_with_allow_write(project: Project, serve: Any) -> None:
    only_read = "read, grep, find, ls, web_search, fetch_content, convert_content"
    write(
        project,
        ".pi/agents/r.md",
        f"---\nname: r\nreadonly: true\ntools: {only_read}, write, edit\n---\nLook.\n",
    )
    settings(project, allowWrite=True)
    server = serve(lambda request: Reply("done"))
    assert project.retinue("run", "r", "go").returncode == 0
    assert tools(server.requests[-1]) == set(only_read.split(", "))
    assert project.retinue("run", "explorer", "go").returncode == 0
    assert tools(server.requests[-1]) == {"read", "grep", "find", "ls", "lsp"}, "what is built in stays as it is"


def test_subagent_waits_and_gives_the_last_text_only_and_the_child_hears_the_task_only(
    project: Project, serve: Any
) -> None:
    settings(project, delegationVocabulary="devkit")

    def answer(request: Request) -> Reply:
        if is_child(request):
            call = ("read", {"path": "f1.txt"})
            return Reply("I look first.", [call]) if request.turn == 0 else Reply("It is in f1.")
        call = ("subagent", {"agent": "explorer", "task": "CHILD find it"})
        return Reply("", [call]) if request.turn == 0 else Reply("done")

    server = serve(answer)
    done = project.retinue("-p", "PARENT SECRET PLAN")
    assert done.returncode == 0, done.stderr
    assert told(server) == "It is in f1."
    assert "PARENT SECRET PLAN" not in json.dumps(child(server).body)
    assert "alpha 1" not in json.dumps(server.requests[-1].body), "what it read stays with it"
    assert len(list((project.home / ".retinue").rglob("transcripts/*.jsonl"))) == 2, "each has a file of its own"


def test_the_policy_of_delegation_is_in_the_main_prompt_until_it_is_switched_off(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply("done"))
    for switch, expected in ((None, True), (False, False)):
        more = {} if switch is None else {"injectDelegationPolicy": switch}
        settings(project, delegationVocabulary="devkit", **more)
        assert project.retinue("-p", "go").returncode == 0
        text = system(server.requests[-1])
        assert ("Delegation (subagent)" in text) is expected
        assert ("explorer" in text and "implementer" in text) is expected


def test_switched_off_there_is_no_subagent_tool(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply("done"))
    settings(project, delegationVocabulary="devkit")
    assert project.retinue("-p", "go").returncode == 0
    assert "subagent" in tools(server.requests[-1])
    settings(project, delegationVocabulary="devkit", subagents={"enabled": False})
    assert project.retinue("-p", "go").returncode == 0
    assert "subagent" not in tools(server.requests[-1])


@pytest.mark.parametrize("arguments", [{}, {"task": "CHILD"}, {"agent": "explorer"}, {"agent": " ", "task": "CHILD"}])
def test_a_call_without_agent_or_task_is_invalid_input(project: Project, serve: Any, arguments: dict[str, str]) -> None:
    settings(project, delegationVocabulary="devkit")
    server = serve(delegating("subagent", **arguments))
    assert codes(project) == ["INVALID_INPUT"]
    assert "is missing" in told(server) and not was_started(server)


def test_an_unknown_agent_is_refused_with_the_names_there_are(project: Project, serve: Any) -> None:
    settings(project, delegationVocabulary="devkit")
    server = serve(delegating("subagent", agent="nobody", task="CHILD"))
    assert codes(project) == ["UNKNOWN_AGENT"]
    assert not was_started(server)
    for name in ("explorer", "researcher", "reviewer", "implementer", "tester"):
        assert name in told(server)


def test_an_agent_starts_others_only_if_its_file_says_so_and_never_deeper_than_max_depth(
    project: Project, serve: Any
) -> None:
    write(project, ".pi/agents/plain.md", "---\nname: plain\nreadonly: false\n---\nLook.\n")
    write(project, ".pi/agents/boss.md", "---\nname: boss\nreadonly: true\ntools: read, subagent\n---\nLook.\n")
    for name, depth, has in (("plain", 3, False), ("boss", 3, True), ("boss", 1, False)):
        settings(project, delegationVocabulary="devkit", subagents={"maxDepth": depth})
        server = serve(delegating("subagent", agent=name, task="CHILD"))
        assert project.retinue("-p", "go").returncode == 0
        assert ("subagent" in tools(child(server))) is has, (name, depth)


def test_the_parent_sees_no_secrets_no_home_folder_and_a_short_stack_trace(project: Project, serve: Any) -> None:
    key = "sk-ant-api03-" + "aB3dE5fG7h" * 4
    trace = "Error: no\n" + "".join(f"    at step{n} (/srv/app/m{n}.js:{n}:1)\n" for n in range(12))
    frames = "".join(f'  File "m{n}.py", line {n}, in f{n}\n' for n in range(12))
    python = f"Traceback (most recent call last):\n{frames}ValueError: none"
    text = f"key {key}\nat {project.home}/notes.txt\n{python}\n{trace}"
    settings(project, delegationVocabulary="devkit")
    server = serve(delegating("subagent", Reply(text), agent="explorer", task="CHILD"))
    assert project.retinue("-p", "go").returncode == 0
    heard = told(server)
    assert key not in heard
    assert f"{project.home}/notes.txt" not in heard and "notes.txt" in heard
    assert "Error: no" in heard and "/srv/app" not in heard and heard.count("    at ") == 5
    assert "in f6" not in heard and "in f7" in heard and "in f11\nValueError: none" in heard


def test_a_failed_agent_is_reported_with_exit_code_error_partial_output_and_session_file(
    project: Project, serve: Any
) -> None:
    settings(project, delegationVocabulary="devkit")

    def answer(request: Request) -> Reply:
        if is_child(request):
            call = ("read", {"path": "f1.txt"})
            return Reply("Half of it.", [call]) if request.turn == 0 else Reply("no such thing", status=400)
        call = ("subagent", {"agent": "explorer", "task": "CHILD"})
        return Reply("", [call]) if request.turn == 0 else Reply("done")

    server = serve(answer)
    assert codes(project) == [None, "SUBAGENT_FAILED"]
    heard = told(server)
    assert "exit code 1" in heard and "no such thing" in heard and "Partial output:\nHalf of it." in heard
    line = next(line for line in heard.splitlines() if ".jsonl" in line)
    assert Path(line.split()[-1].replace("~", str(project.home), 1)).is_file()


def test_the_defaults_of_devkit_pi_are_ours_but_for_depth_time_and_attempts(project: Project) -> None:
    found = {row["name"]: row["value"] for row in project.json("settings", "list", "--json")["settings"]}
    assert (found["subagents.enabled"], found["allowWrite"], found["allowLspTools"]) == (True, False, True)
    assert found["allowedLspActions"] == [
        "definition", "references", "hover", "signature", "symbols", "diagnostics", "workspace-diagnostics", "servers",
    ]  # fmt: skip
    assert (found["idleTimeoutSeconds"], found["retry.enabled"], found["injectDelegationPolicy"]) == (180, True, True)
    assert (found["maxSubagentDepth"], found["timeoutSeconds"], found["retry.maxAttempts"]) == (3, None, 15)


def test_calls_of_the_converter_are_in_the_activity_and_their_failures_in_the_log(project: Project, serve: Any) -> None:
    serve(lambda request: Reply("", [("convert_content", {"path": "no.pdf"})] if request.turn == 0 else []))
    assert project.retinue("run", "researcher", "go").returncode in (0, 1)
    (row,) = project.json("activity", "--json")["rows"]
    assert (row["kind"], row["total"], row["errors"]) == ("convert", 1, 1)
    (entry,) = project.json("logs", "--json")["entries"]
    assert entry["source"] == "convert" and entry["code"]


def test_a_failed_check_is_a_finding_with_a_remedy_and_the_doctor_says_so_by_its_exit_code(project: Project) -> None:
    write(project, ".claude/agents/bad.md", "---\ndescription: It has no name.\n---\nWork.\n")
    warned = project.retinue("doctor", "agents", "--json")
    (found,) = [row for row in json.loads(warned.stdout)["findings"] if row["name"] == "agents"]
    assert warned.returncode == 0 and found["status"] == "warning" and found["remedy"]
    failed = project.retinue("doctor", "models", "--json", env={"RETINUE_MODEL": "nowhere/none"})
    assert failed.returncode == 1
    assert any(row["status"] == "failure" and row["remedy"] for row in json.loads(failed.stdout)["findings"])
