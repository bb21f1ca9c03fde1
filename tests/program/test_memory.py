"""F: agents that remember, through the program: what they are told, what they may write, and who may not."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.program.conftest import Project
from tests.program.model_server import Reply, Request


def script(*turns: list[tuple[str, Any]] | str):
    """A model that makes the calls of each turn, then says the last string."""

    def answer(request: Request) -> Reply:
        done = sum(
            isinstance(message["content"], list)
            and any(part.get("type") == "tool_result" for part in message["content"])
            for message in request.body["messages"]
        )
        turn = turns[min(done, len(turns) - 1)]
        return Reply(turn) if isinstance(turn, str) else Reply("", turn)

    return answer


def system(request: Request) -> str:
    parts = request.body["system"]
    return parts if isinstance(parts, str) else "".join(part["text"] for part in parts)


def tools(request: Request) -> set[str]:
    return {tool["name"] for tool in request.body.get("tools", [])}


def results(request: Request) -> list[str]:
    return [
        part["content"]
        if isinstance(part["content"], str)
        else "".join(each.get("text", "") for each in part["content"])
        for part in request.results
    ]


def agent(project: Project, text: str, name: str = "helper", home: str = ".claude") -> None:
    folder = project.cwd / home / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    body = f"---\nname: {name}\ndescription: Helps\n{text}\n---\nYou help.\n"
    (folder / f"{name}.md").write_text(body)


def own(project: Project, name: str = "helper") -> Path:
    return project.cwd / ".retinue" / "agent-memory" / name


def test_a_memory_is_written_in_one_run_and_known_in_the_next(project: Project, serve: Any) -> None:
    agent(project, "tools: Read, Write\nmemory: project")
    path = own(project) / "MEMORY.md"
    server = serve(script([("write", {"path": str(path), "content": "- tests run with make\n"})], "Noted."))
    project.mode = "default"
    done = project.retinue("run", "helper", "remember it")
    assert done.returncode == 0, done.stderr
    first = system(server.requests[0])
    assert str(own(project)) in first
    assert "scope: project" in first
    assert "There is no MEMORY.md yet" in first
    assert path.read_text() == "- tests run with make\n"
    assert project.retinue("run", "helper", "what do you know").returncode == 0
    assert "- tests run with make" in system(server.requests[-1])


def test_a_claude_agent_without_write_tools_writes_its_memory_and_nothing_else(project: Project, serve: Any) -> None:
    agent(project, "tools: Grep\nmemory: project")
    calls = [
        ("write", {"path": "MEMORY.md", "content": "- a\n"}),
        ("write", {"path": str(project.cwd / "made.txt"), "content": "no\n"}),
        ("read", {"path": str(project.cwd / "f0.txt")}),
        ("write", {"path": "../other/MEMORY.md", "content": "no\n"}),
        ("edit", {"path": str(own(project) / "MEMORY.md"), "edits": [{"old": "- a", "new": "- b"}]}),
    ]
    server = serve(script(*[[call] for call in calls], "Done."))
    done = project.retinue("run", "helper", "try everything")
    assert done.returncode == 0, done.stderr
    assert tools(server.requests[0]) == {"grep", "read", "write", "edit"}
    said = results(server.requests[-1])
    assert "for your memory only" in said[1]
    assert "for your memory only" in said[2]
    assert "alpha" not in said[2]
    assert "for your memory only" in said[3]
    assert not (project.cwd / "made.txt").exists()
    assert not (own(project).parent / "other").exists()
    assert (own(project) / "MEMORY.md").read_text() == "- b\n"


def test_an_agent_of_ours_without_write_tools_only_reads(project: Project, serve: Any) -> None:
    agent(project, "tools: grep\nmemory: project", home=".retinue")
    server = serve(script("Done."))
    assert project.retinue("run", "helper", "go").returncode == 0
    text = system(server.requests[0])
    memory = text[text.index("# Your memory") :]
    assert "There is no memory available" in memory
    assert "scope: project" in memory
    assert str(own(project)) not in text
    assert not any(word in memory.lower().split() for word in ("write", "edit"))
    assert not own(project).exists()
    assert tools(server.requests[0]) == {"grep", "read"}
    own(project).mkdir(parents=True)
    (own(project) / "MEMORY.md").write_text("- known, see more.md\n")
    (own(project) / "more.md").write_text("the details\n")
    server.answer = script([("read", {"path": "more.md"}), ("read", {"path": str(project.cwd / "f0.txt")})], "Done.")
    assert project.retinue("run", "helper", "go").returncode == 0
    assert "- known, see more.md" in system(server.requests[-1])
    said = results(server.requests[-1])
    assert "the details" in said[0]
    assert "for your memory only" in said[1]


@pytest.mark.parametrize("text", ["disallowedTools: Write, Edit", "permissionMode: plan", "readonly: true"])
def test_write_capability_is_decided_after_what_takes_tools_away(project: Project, serve: Any, text: str) -> None:
    home = ".retinue" if text == "readonly: true" else ".claude"
    agent(project, f"{text}\nmemory: project", home=home)
    server = serve(script("Done."))
    done = project.retinue("run", "helper", "go", "--permission-mode", "default")
    assert done.returncode == 0, done.stderr
    assert not {"write", "edit"} & tools(server.requests[0])
    assert "not change it" in system(server.requests[0])
    assert not own(project).exists()


def test_a_rule_that_denies_writing_makes_the_memory_read_only(project: Project, serve: Any) -> None:
    agent(project, "tools: Read\nmemory: project")
    folder = project.home / ".retinue"
    folder.mkdir(exist_ok=True)
    (folder / "settings.json").write_text(json.dumps({"permissions": {"deny": ["Write", "Edit"]}}))
    server = serve(script("Done."))
    assert project.retinue("run", "helper", "go").returncode == 0
    assert tools(server.requests[0]) == {"read"}
    assert "not change it" in system(server.requests[0])


@pytest.mark.parametrize("mode", ["default", "dontAsk"])
def test_the_own_memory_is_written_unasked_and_the_workspace_is_not(project: Project, serve: Any, mode: str) -> None:
    agent(project, "tools: Read, Write\nmemory: user")
    project.mode = mode
    folder = project.home / ".retinue" / "agent-memory" / "helper"
    calls = [
        ("write", {"path": str(folder / "MEMORY.md"), "content": "- u\n"}),
        ("write", {"path": "made.txt", "content": "no\n"}),
        ("write", {"path": str(folder.parent / "other" / "MEMORY.md"), "content": "no\n"}),
    ]
    server = serve(script(*[[call] for call in calls], "Done."))
    project.retinue("run", "helper", "go")
    said = results(server.requests[-1])
    assert said[0].startswith("Created")
    assert "denied" in said[1].lower()
    assert not (project.cwd / "made.txt").exists()
    assert not (folder.parent / "other").exists()
    assert (folder / "MEMORY.md").read_text() == "- u\n"


def test_local_memories_keep_themselves_out_of_the_repository(project: Project, serve: Any) -> None:
    agent(project, "tools: Read, Write\nmemory: local")
    project.mode = "default"
    folder = project.cwd / ".retinue" / "agent-memory-local"
    serve(script([("write", {"path": str(folder / "helper" / "MEMORY.md"), "content": "- l\n"})], "Done."))
    assert project.retinue("run", "helper", "go").returncode == 0
    assert (folder / "helper" / "MEMORY.md").read_text() == "- l\n"
    assert (folder / ".gitignore").read_text().endswith("*\n")


def test_memories_of_claude_code_and_pi_are_read_and_never_written(project: Project, serve: Any) -> None:
    agent(project, "tools: Read, Write\nmemory: user")
    theirs = project.home / ".claude" / "agent-memory" / "helper"
    legacy = project.home / ".pi" / "agent-memory" / "helper"
    for folder, text in ((theirs, "- of claude"), (legacy, "- of pi")):
        folder.mkdir(parents=True)
        (folder / "MEMORY.md").write_text(text + "\n")
    calls = [
        ("read", {"path": str(theirs / "MEMORY.md")}),
        ("write", {"path": str(theirs / "MEMORY.md"), "content": "- changed\n"}),
    ]
    server = serve(script(*[[call] for call in calls], "Done."))
    assert project.retinue("run", "helper", "go").returncode == 0
    text = system(server.requests[0])
    assert "- of claude" in text
    assert "- of pi" in text
    said = results(server.requests[-1])
    assert "- of claude" in said[0]
    assert "protected" in said[1]
    assert (theirs / "MEMORY.md").read_text() == "- of claude\n"


@pytest.mark.parametrize("where", ["agent-memory", "helper"])
def test_a_linked_folder_is_not_used(project: Project, serve: Any, where: str) -> None:
    agent(project, "tools: Read, Write\nmemory: project")
    elsewhere = project.home / "elsewhere"
    (elsewhere / "helper").mkdir(parents=True)
    (elsewhere / "MEMORY.md").write_text("- secret\n")
    (elsewhere / "helper" / "MEMORY.md").write_text("- secret\n")
    link = own(project).parent if where == "agent-memory" else own(project)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(elsewhere, target_is_directory=True)
    call = ("write", {"path": str(own(project) / "MEMORY.md"), "content": "- taken over\n"})
    server = serve(script([call], "Done."))
    done = project.retinue("run", "helper", "go", "--json")
    assert "- secret" not in system(server.requests[0])
    assert "symbolic link" in done.stdout + done.stderr
    assert (elsewhere / "MEMORY.md").read_text() == "- secret\n"
    assert (elsewhere / "helper" / "MEMORY.md").read_text() == "- secret\n"


def test_an_agent_with_an_unsafe_name_runs_without_a_memory_and_says_so(project: Project, serve: Any) -> None:
    agent(project, "tools: Read, Write\nmemory: project", name="my helper")
    server = serve(script("Done."))
    done = project.retinue("run", "my helper", "go", "--json")
    assert done.returncode == 0, done.stderr
    assert "# Your memory" not in system(server.requests[0])
    assert "can have no memory" in done.stdout + done.stderr


def test_a_child_reaches_no_memory_but_its_own(project: Project, serve: Any) -> None:
    """The parent has user memory outside of the workspace and a confined write tool; its child
    has neither the folder nor the tool."""
    agent(project, "tools: Read, Grep, Agent\nmemory: user", name="parent")
    agent(project, "tools: Read, Grep, Write", name="child")
    folder = project.home / ".retinue" / "agent-memory" / "parent"
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").write_text("- of the parent\n")
    seen: list[Request] = []

    def answer(request: Request) -> Reply:
        if "CHILD" in json.dumps(request.body["messages"][0]):
            seen.append(request)
            if request.turn == 0:
                return Reply(calls=[("read", {"path": str(folder / "MEMORY.md")})])
            return Reply("The child is done.")
        if request.turn == 0:
            call = {"prompt": "CHILD", "subagent_type": "child", "run_in_background": False}
            return Reply(calls=[("Agent", call)])
        return Reply("Done.")

    server = serve(answer)
    done = project.retinue("run", "parent", "delegate")
    assert done.returncode == 0, done.stderr
    assert "write" in tools(server.requests[0])
    assert tools(seen[0]) == {"read", "grep"}
    assert "outside the workspace" in results(seen[-1])[0]
    assert "of the parent" not in json.dumps(seen[-1].body)


def test_a_child_writes_no_memory_under_a_parent_that_cannot_write(project: Project, serve: Any) -> None:
    agent(project, "tools: Read, Grep, Agent", name="parent")
    agent(project, "tools: Read\nmemory: project", name="child")
    seen: list[Request] = []

    def answer(request: Request) -> Reply:
        if "CHILD" in json.dumps(request.body["messages"][0]):
            seen.append(request)
            return Reply("The child is done.")
        if request.turn == 0:
            call = {"prompt": "CHILD", "subagent_type": "child", "run_in_background": False}
            return Reply(calls=[("Agent", call)])
        return Reply("Done.")

    serve(answer)
    done = project.retinue("run", "parent", "delegate")
    assert done.returncode == 0, done.stderr
    assert tools(seen[0]) == {"read"}
    assert "not change it" in system(seen[0])
    assert not own(project, "child").exists()


def test_two_processes_that_note_something_at_once_lose_nothing(project: Project, serve: Any) -> None:
    agent(project, "tools: Read, Write, Edit\nmemory: project")
    own(project).mkdir(parents=True)
    index = own(project) / "MEMORY.md"
    index.write_text("- start\n")
    both = threading.Barrier(2, timeout=60)
    waited: set[str] = set()
    told: dict[str, list[str]] = {}
    lock = threading.Lock()

    def answer(request: Request) -> Reply:
        me = "ONE" if "ONE" in json.dumps(request.body["messages"][0]) else "TWO"
        said = results(request)
        told[me] = said
        if not said or "Read it again" in said[-1]:
            return Reply(calls=[("read", {"path": str(index)})])
        if "- start" in said[-1] and "Made" not in said[-1]:
            with lock:
                first = me not in waited
                waited.add(me)
            if first:
                both.wait()  # both have read the same version now
            edit = {"path": str(index), "edits": [{"old": "- start", "new": f"- start\n- {me}"}]}
            return Reply(calls=[("edit", edit)])
        return Reply("Noted.")

    serve(answer)
    runs = [project.start("run", "helper", name) for name in ("ONE", "TWO")]
    for run in runs:
        _, err = run.communicate(timeout=60)
        assert run.returncode == 0, err
    assert sorted(index.read_text().split("\n")) == sorted(["- start", "- ONE", "- TWO", ""]), told


def test_an_index_that_grows_too_long_is_pointed_out_when_it_is_written(project: Project, serve: Any) -> None:
    agent(project, "tools: Read, Write\nmemory: project")
    content = "".join(f"- line {number}\n" for number in range(250))
    server = serve(script([("write", {"path": str(own(project) / "MEMORY.md"), "content": content})], "Done."))
    assert project.retinue("run", "helper", "go").returncode == 0
    assert "Rewrite it shorter" in results(server.requests[-1])[0]
    assert project.retinue("run", "helper", "go").returncode == 0
    assert "truncated at 200 lines" in system(server.requests[-1])
    assert "- line 199" in system(server.requests[-1])
    assert "- line 200" not in system(server.requests[-1])


def test_an_isolated_run_keeps_the_memory_of_the_project(project: Project, serve: Any) -> None:
    from retinue.testing.fixtures import temporary_repository

    agent(project, "tools: Read, Write\nmemory: project\nisolation: worktree")
    with temporary_repository({"a.txt": "a\n"}, path=project.cwd):
        pass
    call = ("write", {"path": str(own(project) / "MEMORY.md"), "content": "- kept\n"})
    server = serve(script([call], "Done."))
    done = project.retinue("run", "helper", "go")
    assert done.returncode == 0, done.stderr
    assert (own(project) / "MEMORY.md").read_text() == "- kept\n", results(server.requests[-1])
