"""G: skills through the program: told by name, loaded when asked, with their files, and no further."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.program.conftest import Project
from tests.program.model_server import Reply, Request
from tests.program.test_memory import agent, results, script, system, tools


def skill(root: Path, name: str, matter: str = "", body: str = "Do it.") -> Path:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: About {name}\n{matter}---\n{body}\n")
    return folder


def test_skills_are_listed_loaded_and_their_files_read(project: Project, serve: Any) -> None:
    folder = skill(project.home / ".claude" / "skills", "pdf", body="Take pages $0 of $1. $ARGUMENTS")
    (folder / "forms.md").write_text("how forms work\n")
    calls = [
        [("skill", {"name": "pdf", "arguments": "'3 4' report.pdf"})],
        [("read", {"path": str(folder / "forms.md")}), ("read", {"path": str(folder.parent.parent / "secret.md")})],
        [("write", {"path": str(folder / "SKILL.md"), "content": "taken over"})],
    ]
    (project.home / ".claude" / "secret.md").write_text("not yours\n")
    server = serve(script(*calls, "Done."))
    done = project.retinue("-p", "go")
    assert done.returncode == 0, done.stderr
    assert "- pdf: About pdf" in system(server.requests[0])
    said = results(server.requests[-1])
    assert "Take pages 3 4 of report.pdf. '3 4' report.pdf" in said[0]
    assert "- forms.md" in said[0]
    assert "how forms work" in said[1]
    assert "outside the workspace" in said[2]
    assert "protected" in said[3]
    assert "taken over" not in (folder / "SKILL.md").read_text()


def test_agents_with_a_list_of_tools_have_skills_only_if_they_say_so(project: Project, serve: Any) -> None:
    skill(project.cwd / ".retinue" / "skills", "pdf")
    for name, text in (
        ("without", "tools: Read"),
        ("listed", "tools: Read, Skill"),
        ("switched", "tools: read\nskills: true"),
        ("off", "skills: false"),
        ("isolated", "isolated: true"),
    ):
        agent(project, text, name=name, home=".claude" if name in ("without", "listed") else ".retinue")
    server = serve(script("Done."))
    for name in ("without", "listed", "switched", "off", "isolated"):
        done = project.retinue("run", name, "go")
        assert done.returncode == 0, done.stderr
        has = "skill" in tools(server.requests[-1])
        assert has == (name in ("listed", "switched")), name
        assert ("- pdf: About pdf" in system(server.requests[-1])) == has


def test_preloaded_skills_are_in_the_prompt_and_missing_ones_are_said(project: Project, serve: Any) -> None:
    skill(project.cwd / ".pi" / "skills", "one", body="FIRST BODY")
    skill(project.home / ".agents" / "skills", "two", body="SECOND BODY")
    agent(project, "tools: Read\nskills: [one, nope, ../evil, two]", home=".pi")
    server = serve(script("Done."))
    done = project.retinue("run", "helper", "go", "--json")
    assert done.returncode == 0, done.stderr
    text = system(server.requests[0])
    assert "# Preloaded Skill: one\nFIRST BODY" in text
    assert "# Preloaded Skill: two\nSECOND BODY" in text
    assert '(Skill "nope" not found in ' in text
    assert '(Skill "../evil" skipped: ' in text
    assert "skill" not in tools(server.requests[0])


def test_skills_kept_from_models_are_neither_listed_nor_loaded(project: Project, serve: Any) -> None:
    skill(project.cwd / ".claude" / "skills", "deploy", "disable-model-invocation: yes\n", "SECRET BODY")
    skill(project.cwd / ".claude" / "skills", "other")
    server = serve(script([("skill", {"name": "deploy"}), ("skill", {"name": "othr"})], "Done."))
    assert project.retinue("-p", "go").returncode == 0
    assert "deploy" not in system(server.requests[0])
    said = results(server.requests[-1])
    assert "only for people" in said[0]
    assert "- other: About other" in said[1]


def test_a_skill_that_forks_is_run_by_an_agent_of_its_own(project: Project, serve: Any) -> None:
    agent(project, "tools: Read", name="worker")
    skill(project.cwd / ".claude" / "skills", "audit", "context: fork\nagent: worker\n", "AUDIT THE CODE of $ARGUMENTS")
    seen: list[Request] = []

    def answer(request: Request) -> Reply:
        if json.dumps(request.body["messages"][0]).count("AUDIT THE CODE of src"):
            seen.append(request)
            return Reply("Two findings.")
        if request.turn == 0:
            return Reply(calls=[("skill", {"name": "audit", "arguments": "src"})])
        return Reply("Done.")

    server = serve(answer)
    done = project.retinue("-p", "go")
    assert done.returncode == 0, done.stderr
    assert len(seen) == 1
    assert '<active_agent name="worker"/>' in system(seen[0])
    assert "Two findings." in results(server.requests[-1])[0]
    assert "AUDIT THE CODE" not in results(server.requests[-1])[0]


def test_a_rule_that_denies_the_tool_takes_away_the_list_of_skills(project: Project, serve: Any) -> None:
    skill(project.home / ".claude" / "skills", "pdf")
    home = project.home / ".retinue"
    home.mkdir(exist_ok=True)
    (home / "settings.json").write_text(json.dumps({"permissions": {"deny": ["skill"]}}))
    server = serve(script("Done."))
    assert project.retinue("-p", "go").returncode == 0
    assert "skill" not in tools(server.requests[0])
    assert "About pdf" not in system(server.requests[0])


def test_a_rule_that_forbids_an_agent_holds_for_skills_that_fork(project: Project, serve: Any) -> None:
    agent(project, "tools: Read", name="worker")
    skill(project.cwd / ".claude" / "skills", "audit", "context: fork\nagent: worker\n", "AUDIT")
    home = project.home / ".retinue"
    home.mkdir(exist_ok=True)
    (home / "settings.json").write_text(json.dumps({"permissions": {"deny": ["Agent(worker)"]}}))
    server = serve(script([("skill", {"name": "audit"})], "Done."))
    assert project.retinue("-p", "go").returncode == 0
    assert "denied" in results(server.requests[-1])[0].lower()
    assert len(server.requests) == 2


def test_a_skill_that_forks_is_followed_in_place_where_no_agent_can_be_started(project: Project, serve: Any) -> None:
    skill(project.cwd / ".claude" / "skills", "audit", "context: fork\n", "AUDIT THE CODE")
    agent(project, "tools: Read, Skill")
    server = serve(script([("skill", {"name": "audit"})], "Done."))
    assert project.retinue("run", "helper", "go").returncode == 0
    said = results(server.requests[-1])[0]
    assert "AUDIT THE CODE" in said
    assert "follow it yourself" in said


@pytest.mark.parametrize("place", ["user", "project", "consented"])
def test_allowed_tools_count_only_for_skills_that_are_trusted(project: Project, serve: Any, place: str) -> None:
    root = project.home / ".claude" / "skills" if place == "user" else project.cwd / ".claude" / "skills"
    folder = skill(root, "fix", "allowed-tools: Write(made.txt) Bash(git status:*)\n")
    project.mode = "default"
    calls = [
        [("write", {"path": "early.txt", "content": "x"})],
        [("skill", {"name": "fix"})],
        [("write", {"path": "made.txt", "content": "x"})],
        [("write", {"path": "other.txt", "content": "x"})],
    ]
    serve(script(*calls, "Done."))
    if place == "consented":
        listed = project.retinue("trust")
        assert "skill fix allows" in listed.stdout + listed.stderr
        assert project.retinue("trust", "add", str(folder / "SKILL.md")).returncode == 0
    project.retinue("-p", "go")
    assert (project.cwd / "made.txt").exists() == (place != "project")
    assert not (project.cwd / "early.txt").exists()
    assert not (project.cwd / "other.txt").exists()


def test_a_skill_changed_while_a_run_works_is_read_as_it_is_now(project: Project, serve: Any) -> None:
    folder = skill(project.cwd / ".claude" / "skills", "live", body="OLD")
    seen: list[str] = []

    def answer(request: Request) -> Reply:
        seen.extend(results(request)[len(seen) :])
        if request.turn == 0:
            return Reply(calls=[("skill", {"name": "live"})])
        if request.turn == 1:
            (folder / "SKILL.md").write_text("---\nname: live\ndescription: d\n---\nNEW\n")
            return Reply(calls=[("skill", {"name": "live"})])
        return Reply("Done.")

    serve(answer)
    assert project.retinue("-p", "go").returncode == 0
    assert "OLD" in seen[0]
    assert "NEW" in seen[1]


def test_a_person_calls_a_skill_by_its_name(project: Project, serve: Any) -> None:
    root = project.cwd / ".claude" / "skills"
    folder = skill(root, "deploy", "disable-model-invocation: true\n", "DEPLOY $0 NOW")
    (folder / "steps.md").write_text("x")
    skill(root, "inner", "user-invocable: no\n", "INNER BODY")
    server = serve(script("Done."))

    def first(prompt: str) -> str:
        assert project.retinue("-p", prompt).returncode == 0
        return json.dumps(server.requests[-1].body["messages"][-1])

    assert "DEPLOY web NOW" in first("/deploy web")
    assert "steps.md" in first("/deploy web")
    assert "/etc/hosts what is it" in first("/etc/hosts what is it")
    for unknown in ("/inner", "/nothing here"):
        refused = project.retinue("-p", unknown)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "There is no command /" in refused.stderr
