"""Agents with eyes for code, end to end: the real program, a scripted model, a real language server."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.capabilities.convert import documents
from tests.capabilities.lsp.bench import MAIN, write_package
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request


@pytest.fixture(autouse=True)
def package(project: Project) -> None:
    if shutil.which("ty", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("ty is not installed: pip install 'retinue[lsp]'")
    write_package(project.cwd)


def script(*turns: Reply) -> Any:
    """The reply after so many results of tools; the last one again and again."""
    return lambda request: turns[min(request.turn, len(turns) - 1)]


def texts(request: Request) -> list[str]:
    found = []
    for result in request.results:
        content = result["content"]
        found.append(content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content))
    return found


def settings(project: Project, **values: Any) -> None:
    (project.home / ".retinue").mkdir(exist_ok=True)
    (project.home / ".retinue" / "settings.json").write_text(json.dumps(values))


def is_lsp(tool: dict[str, Any]) -> bool:
    return tool["name"] == "lsp"


def test_the_reviewer_asks_the_language_server(project: Project, serve: Any) -> None:
    server = serve(
        script(
            Reply(calls=[("lsp", {"action": "diagnostics", "file": "app/main.py"})]),
            Reply(calls=[("lsp", {"action": "references", "query": "cheapest"})]),
            Reply(calls=[("lsp", {"action": "rename", "file": "app/shop.py", "query": "Item", "newName": "Thing"})]),
            Reply(text="**Verdict** - app/main.py:5 assigns a str to an int."),
        )
    )
    done = project.json("run", "reviewer", "Review app/main.py.", "--json")
    assert "**Verdict**" in done["content"][0]["text"]
    offered = {tool["name"] for tool in server.requests[0].body["tools"]}
    assert "lsp" in offered and not {"write", "edit"} & offered
    problems, references, renamed = texts(server.requests[-1])
    assert problems.startswith("2 errors\napp/main.py:5:14 error: ")
    assert "app/main.py:1:28  from app.shop import Item, cheapest" in references
    assert renamed.startswith("Not run: the arguments do not fit lsp: action must be one of")


def test_a_child_never_gets_privileged_actions_and_no_server_is_left(project: Project, serve: Any) -> None:
    settings(project, lsp={"allowMutatingActions": True})
    rename = ("lsp", {"action": "rename", "file": "app/shop.py", "query": "Item", "newName": "Thing"})
    spawn = (
        "Agent",
        {"subagent_type": "reviewer", "prompt": "Rename it.", "description": "d", "run_in_background": False},
    )

    def answer(request: Request) -> Reply:
        first = json.dumps(request.body["messages"][0])
        if "Rename it." in first and "Start one." not in first:
            return Reply(calls=[rename]) if request.turn == 0 else Reply(text=f"child: {texts(request)[-1]}")
        turns = [Reply(calls=[rename]), Reply(calls=[spawn]), Reply(text="done")]
        return turns[min(request.turn, 2)]

    server = serve(answer)
    done = project.retinue("-p", "Start one.")
    assert done.returncode == 0, done.stderr
    mine, childs = texts(server.requests[-1])
    assert mine.startswith("Proposed, nothing was changed:")
    assert "Not run: the arguments do not fit lsp: action must be one of" in childs
    offered = [tool for each in server.requests if each.turn == 0 for tool in each.body["tools"] if is_lsp(tool)]
    actions = [tool["input_schema"]["properties"]["action"]["enum"] for tool in offered]
    assert [{"rename", "codeAction", "restart"} <= set(each) for each in actions] == [True, False]
    assert not {"rename", "codeAction", "restart"} & set(actions[1]), "a child is not even offered them"
    assert (project.cwd / "app" / "main.py").read_text() == MAIN
    marks = [path for path in Path("/proc").glob("[0-9]*/cwd") if _is(path, project.cwd)]
    assert not marks, "a language server outlived the program"


@pytest.mark.parametrize("values", [{"allowLspTools": False}, {"allowedLspActions": []}, {"lsp": {"enabled": False}}])
def test_sub_agents_lose_the_tool_by_settings_of_their_own(project: Project, serve: Any, values: Any) -> None:
    settings(project, **values)
    task = {"subagent_type": "reviewer", "prompt": "CHILD", "description": "d", "run_in_background": False}
    server = serve(lambda request: Reply(calls=[("Agent", task)] if len(server.requests) == 1 else [], text="done"))
    assert project.retinue("-p", "Start one.").returncode == 0
    main, child = server.requests[:2]
    assert any(map(is_lsp, main.body["tools"])) is ("lsp" not in values)
    assert not any(map(is_lsp, child.body["tools"]))
    project.retinue("run", "reviewer", "go")
    assert not any(map(is_lsp, server.requests[-1].body["tools"])), "an agent of devkit-pi is a sub-agent"


def test_what_an_edit_breaks_is_told_beside_its_result(project: Project, serve: Any) -> None:
    settings(project, lsp={"diagnosticsSeconds": 30})
    fixed = MAIN.replace("wrong: int = pear.name", "right: str = pear.name").replace('"many"', "2")
    edit = {"path": "app/main.py", "content": fixed + "undefined_name\n"}
    server = serve(
        script(
            Reply(calls=[("read", {"path": "app/main.py"})]),
            Reply(calls=[("write", edit)]),
            Reply(calls=[("write", {**edit, "content": fixed})]),
            Reply(text="done"),
        )
    )
    done = project.retinue("-p", "Mend it.")
    assert done.returncode == 0, done.stderr
    _, broken, mended = texts(server.requests[-1])
    assert "Diagnostics after this edit (1 error" in broken
    assert "app/main.py:7:1 error: " in broken and "undefined_name" in broken
    assert "Diagnostics" not in mended


@pytest.mark.parametrize("how", ["off", "main"])
def test_edits_of_a_child_are_not_followed_by_diagnostics(project: Project, serve: Any, how: str) -> None:
    settings(project, lsp={"diagnosticsSeconds": 30, "diagnosticsAfterEdit": how})
    write = ("write", {"path": "app/new.py", "content": "undefined_name\n"})
    spawn = (
        "Agent",
        {"subagent_type": "general-purpose", "prompt": "Write.", "description": "d", "run_in_background": False},
    )

    def answer(request: Request) -> Reply:
        if "Start one." not in json.dumps(request.body["messages"][0]):
            return Reply(calls=[write]) if request.turn == 0 else Reply(text=f"child: {texts(request)[-1]}")
        return Reply(calls=[spawn]) if request.turn == 0 else Reply(text="done")

    server = serve(answer)
    done = project.retinue("-p", "Start one.")
    assert done.returncode == 0, done.stderr
    assert (project.cwd / "app" / "new.py").exists()
    assert "Diagnostics after this edit" not in json.dumps(server.requests[-1].body)


def test_an_agent_reads_a_document_of_the_workspace(project: Project, serve: Any) -> None:
    pytest.importorskip("markitdown", reason="pip install 'retinue[convert]'")
    (project.cwd / "spec.pdf").write_bytes(documents.pdf("The answer is 42"))
    server = serve(script(Reply(calls=[("convert_content", {"path": "spec.pdf"})]), Reply(text="It is 42.")))
    done = project.json("run", "researcher", "What does spec.pdf say?", "--json")
    assert done["content"][0]["text"].startswith("It is 42.")
    assert "The answer is 42" in texts(server.requests[-1])[0]


def test_a_rule_that_denies_reading_a_file_holds_for_language_servers(project: Project, serve: Any) -> None:
    settings(project, permissions={"deny": ["Read(app/shop.py)"]})
    server = serve(
        script(
            Reply(calls=[("lsp", {"action": "symbols", "file": "app/shop.py"})]),
            Reply(calls=[("lsp", {"action": "diagnostics", "files": ["app/main.py", "app/shop.py"]})]),
            Reply(text="done"),
        )
    )
    project.json("run", "reviewer", "Look.", "--json")
    for said in texts(server.requests[-1]):
        assert "Read(app/shop.py)" in said and "cheapest" not in said


def _is(link: Path, folder: Path) -> bool:
    try:
        return link.readlink() == folder and b"ty" in (link.parent / "cmdline").read_bytes()
    except OSError:
        return False
