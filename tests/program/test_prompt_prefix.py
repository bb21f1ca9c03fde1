"""B5: over recorded requests: each request of a run extends the one before, also after a resume."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from tests.program.conftest import Project
from tests.program.model_server import Reply, Request
from tests.program.test_memory import agent, own, results, script, system, tools
from tests.program.test_skills import skill


def plain(value: Any) -> Any:
    """Without the marks that say where a cache may cut: they move, and are no part of the text."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if key != "cache_control"}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value


def check_extends(requests: list[Request]) -> None:
    for before, after in itertools.pairwise(requests):
        one, two = plain(before.body), plain(after.body)
        assert json.dumps(one["tools"]) == json.dumps(two["tools"])
        assert one["system"] == two["system"]
        said, more = list(_parts(one)), list(_parts(two))
        assert more[: len(said)] == said


def _parts(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for message in body["messages"]:
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        yield from ((message["role"], json.dumps(part, sort_keys=True)) for part in parts)


def test_requests_extend_each_other_in_a_run_and_when_it_is_resumed(project: Project, serve: Any) -> None:
    """Memory, skills, instructions and the catalog change between the two attempts."""
    agent(project, "tools: Read, Write, Skill\nmemory: project\nskills: [pdf]")
    folder = skill(project.cwd / ".claude" / "skills", "pdf", body="PDF BODY")
    write = ("write", {"path": str(own(project) / "MEMORY.md"), "content": "- noted\n"})
    server = serve(script([("read", {"path": "f0.txt"})], [write], [("skill", {"name": "pdf"})], "Done."))
    done = project.retinue("run", "helper", "go", "--json")
    assert done.returncode == 0, done.stderr
    run_id = json.loads(done.stdout)["details"]["runId"]
    (folder / "SKILL.md").write_text("---\nname: pdf\ndescription: changed\n---\nOTHER BODY\n")
    skill(project.cwd / ".claude" / "skills", "new")
    (project.cwd / "AGENTS.md").write_text("New rules.\n")
    again = project.retinue("runs", "resume", run_id, "And now?")
    assert again.returncode == 0, again.stderr
    assert len(server.requests) == 5
    check_extends(server.requests)
    assert "PDF BODY" in system(server.requests[-1])


def test_a_twin_resumed_without_its_parent_has_the_prompt_it_had(project: Project, serve: Any) -> None:
    (project.cwd / "AGENTS.md").write_text("RULES OF THE HOUSE\n")
    twins: list[Request] = []

    def answer(request: Request) -> Reply:
        if "CHILD" in json.dumps(request.body["messages"][0]):
            twins.append(request)
            return Reply("The child is done.")
        if request.turn == 0:
            call = {"prompt": "CHILD", "subagent_type": "general-purpose", "run_in_background": False}
            return Reply(calls=[("Agent", call)])
        return Reply("Done.")

    server = serve(answer)
    assert project.retinue("-p", "go").returncode == 0
    main = server.requests[0]
    assert "RULES OF THE HOUSE" in system(main)
    assert system(twins[0]).startswith(system(main))
    assert system(twins[0]).count("RULES OF THE HOUSE") == 1
    (project.cwd / "AGENTS.md").write_text("OTHER RULES\n")
    child = next(run for run in project.json("runs", "list", "--json")["runs"] if run["agent"] == "general-purpose")
    assert project.retinue("runs", "resume", child["id"], "CHILD again").returncode == 0
    check_extends(twins)


def test_of_agents_with_a_prompt_of_their_own_only_claude_codes_see_instruction_files(
    project: Project, serve: Any
) -> None:
    (project.cwd / "AGENTS.md").write_text("RULES OF THE HOUSE\n")
    (project.cwd / "CLAUDE.md").write_text("MORE RULES\n")
    agent(project, "tools: Read")
    own_agents = project.cwd / ".retinue" / "agents"
    own_agents.mkdir(parents=True)
    (own_agents / "plain.md").write_text("---\nname: plain\ndescription: d\ntools: read\n---\nYou help.\n")
    server = serve(script("Done."))
    for name, sees in (("helper", True), ("plain", False)):
        assert project.retinue("run", name, "go").returncode == 0
        assert ("MORE RULES" in json.dumps(server.requests[-1].body)) is sees
        assert project.retinue("-p", "go", "--agent", name).returncode == 0
        assert ("MORE RULES" in json.dumps(server.requests[-1].body)) is sees


def test_agents_show_prompt_prints_exactly_what_the_model_gets(project: Project, serve: Any) -> None:
    (project.cwd / "AGENTS.md").write_text("RULES OF THE HOUSE\n")
    agent(project, "tools: Read, Grep, Skill\nmemory: project\nskills: [pdf]")
    skill(project.cwd / ".claude" / "skills", "pdf", body="PDF BODY")
    server = serve(script("Done."))
    for name, how, run in (
        ("helper", (), ("run", "helper", "the task")),
        ("general-purpose", (), ("run", "general-purpose", "the task")),
        ("helper", ("--as-main",), ("-p", "the task", "--agent", "helper")),
        ("main", (), ("-p", "the task")),
    ):
        shown = project.json("agents", "show", name, "--prompt", "--json", "--task", "the task", *how)
        assert not own(project).exists() or run[0] == "-p" or name != "helper"
        assert project.retinue(*run).returncode == 0
        request = server.requests[-1]
        assert shown["system"] == system(request)
        assert [tool["name"] for tool in shown["tools"]] == [tool["name"] for tool in request.body["tools"]]
        assert shown["message"] in json.dumps(request.body["messages"][0])
        assert "\n\n".join(part["text"] for part in shown["parts"]) == shown["system"]
        assert shown["tokens"]["prefix"] >= sum(part["tokens"] for part in shown["parts"])
        plain_text = project.retinue("agents", "show", name, "--prompt", "--task", "the task", *how)
        assert plain_text.stdout == shown["system"] + "\n"


def test_agents_show_prompt_under_main_is_what_a_child_gets(project: Project, serve: Any) -> None:
    def answer(request: Request) -> Reply:
        if "CHILD" in json.dumps(request.body["messages"][0]):
            return Reply("The child is done.")
        if request.turn == 0:
            call = {"prompt": "CHILD", "subagent_type": "general-purpose", "run_in_background": False}
            return Reply(calls=[("Agent", call)])
        return Reply("Done.")

    server = serve(answer)
    assert project.retinue("-p", "go").returncode == 0
    (child,) = [request for request in server.requests if "CHILD" in json.dumps(request.body["messages"][0])]
    shown = project.json("agents", "show", "general-purpose", "--prompt", "--under-main", "--json")
    assert shown["system"] == system(child)
    assert {tool["name"] for tool in shown["tools"]} == tools(child)


def test_a_long_task_is_handed_over_as_a_file(project: Project, serve: Any) -> None:
    task = "BEGINNING " + "word " * 10_000 + "END"
    (project.cwd / "task.md").write_text(task)
    agent(project, "tools: Read")
    agent(project, "tools: none", name="mute")

    def answer(request: Request) -> Reply:
        first = json.dumps(request.body["messages"][0])
        if request.turn == 0 and "read" in tools(request):
            path = first.split("and is in ")[1].split(". Read")[0]
            return Reply(calls=[("read", {"path": path})])
        return Reply("Done.")

    server = serve(answer)
    done = project.retinue("run", "helper", "@task.md")
    assert done.returncode == 0, done.stderr
    first = json.dumps(server.requests[0].body["messages"][0])
    assert len(first) < 10_000
    assert "BEGINNING" in first
    assert "END" in first
    assert "BEGINNING word" in results(server.requests[-1])[0]
    assert project.retinue("run", "mute", "@task.md").returncode == 0
    assert len(json.dumps(server.requests[-1].body["messages"][0])) > len(task)
