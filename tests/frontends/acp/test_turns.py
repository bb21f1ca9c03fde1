"""Prompts while one runs, cancelling, failing, commands, modes and options of a session."""

from __future__ import annotations

import base64
import json
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.frontends.acp.conftest import Editor
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

Edit = Callable[..., Editor]


def said(request: Request) -> str:
    return json.dumps(request.body["messages"], ensure_ascii=False)


def test_a_second_prompt_steers(project: Project, serve: Any, edit: Edit) -> None:
    steered = threading.Event()

    def works(request: Request) -> Reply:
        if request.turn == 0:
            steered.wait(30)
            return Reply("Working.", calls=[("ls", {})])
        return Reply(f"Heard the second: {'use blue' in said(request)}")

    model = serve(works)
    editor = edit()
    editor.initialize()
    session = editor.new(project.cwd)
    first = editor.begin_prompt(session, "Paint it")
    editor.until(lambda frame: "session_info_update" in json.dumps(frame))
    second = editor.begin_prompt(session, "use blue")
    editor.ask("session/list")
    steered.set()
    assert editor.end(first)["result"]["stopReason"] == "end_turn"
    assert editor.end(second)["result"]["stopReason"] == "end_turn"
    assert any("use blue" in said(each) for each in model.requests)
    assert not editor.updates("user_message_chunk"), "the client shows its own words itself"
    runs = project.json("runs", "list", "--json")["runs"]
    assert [run["id"] for run in runs] == [session]


def test_an_agent_is_addressed_by_its_name(project: Project, serve: Any, edit: Edit) -> None:
    model = serve(lambda request: Reply("Yes."))
    editor = edit()
    editor.initialize()
    session = editor.new(project.cwd)
    assert [editor.prompt(session, text) for text in ("One", "@Explore find the login")] == ["end_turn"] * 2
    assert "→ @explore (started)" in editor.text(session)
    editor.until(lambda _: len(model.requests) == 2)
    assert "find the login" in said(model.requests[1]) and "One" not in said(model.requests[1])


def test_a_later_prompt_goes_on_with_the_conversation(project: Project, serve: Any, edit: Edit) -> None:
    model = serve(lambda request: Reply("Yes."))
    editor = edit()
    editor.initialize()
    session = editor.new(project.cwd)
    assert [editor.prompt(session, text) for text in ("One", "Two", "Three")] == ["end_turn"] * 3
    assert len(model.requests) == 3
    assert all(word in said(model.requests[-1]) for word in ("One", "Two", "Three"))
    assert editor.text(session) == "Yes.Yes.Yes."


def test_cancel_ends_everything_and_its_calls(project: Project, serve: Any, edit: Edit) -> None:
    def works(request: Request) -> Reply:
        if "look for" in said(request)[:120]:
            return Reply("…", hang=True)
        if request.turn == 0:
            call = {"prompt": "look for it", "subagent_type": "Explore", "description": "background one"}
            return Reply(calls=[("Agent", call), ("bash", {"command": "sleep 60"})])
        return Reply("Never said.")

    serve(works)
    editor = edit()
    editor.initialize()
    session = editor.new(project.cwd)
    request = editor.begin_prompt(session, "Go")
    editor.until(lambda frame: "sleep 60" in json.dumps(frame))
    editor.until(lambda frame: "background one · works" in json.dumps(frame, ensure_ascii=False))
    editor.notify("session/cancel", sessionId=session)
    assert editor.end(request)["result"]["stopReason"] == "cancelled"
    end = next(number for number, frame in enumerate(editor.frames) if frame.get("id") == request)
    calls = Editor.calls(editor, session)
    assert {call["title"]: call["status"] for call in calls.values()} == {
        "Agent background one": "failed",
        "bash: sleep 60": "failed",
    }
    assert not [frame for frame in editor.frames[end + 1 :] if "in_progress" in json.dumps(frame)]
    runs = project.json("runs", "list", "--json")["runs"]
    assert {run["state"] for run in runs} == {"ended"}
    assert editor.prompt(session, "/runs") == "end_turn"


def test_a_cancelled_request_ends_its_prompt(project: Project, serve: Any, edit: Edit) -> None:
    serve(lambda request: Reply("…", hang=True))
    editor = edit()
    editor.initialize()
    session = editor.new(project.cwd)
    request = editor.begin_prompt(session, "Go")
    editor.until(lambda frame: "session_info_update" in json.dumps(frame))
    editor.notify("$/cancel_request", requestId=request)
    assert editor.end(request)["result"]["stopReason"] == "cancelled"


def test_a_failure_is_an_error_with_its_cause(project: Project, serve: Any, edit: Edit) -> None:
    serve(lambda request: Reply(status=401, text="no such key"))
    editor = edit()
    editor.initialize()
    session = editor.new(project.cwd)
    error = editor.fail("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "Go"}])
    assert error["code"] == -32603
    assert "key" in error["message"]


def test_commands_of_this_face_need_no_model(project: Project, serve: Any, edit: Edit) -> None:
    model = serve(lambda request: Reply("Hello."))
    editor = edit()
    editor.initialize()
    session = editor.new(project.cwd)
    expected = {
        "/agents": "**Explore**",
        "/runs": "Nothing has run",
        "/cost": "Nothing was spent",
        "/inbox": "Nothing waits",
        "/compact": "no conversation",
        "/stop": "Nothing works",
        "/agent": "Did you mean /agents?",
    }
    for command, answer in expected.items():
        start = len(editor.frames)
        assert editor.prompt(session, command) == "end_turn"
        assert answer in editor.text(session, start=start), command
    assert not model.requests
    assert editor.prompt(session, "Hi") == "end_turn"
    for command, answer in {"/runs": "completed", "/cost": "together", "/compact keep names": "next message"}.items():
        start = len(editor.frames)
        assert editor.prompt(session, command) == "end_turn"
        assert answer in editor.text(session, start=start), command
    assert len(model.requests) == 1


def test_a_command_of_a_file_goes_to_the_agent(project: Project, serve: Any, edit: Edit) -> None:
    folder = project.cwd / ".claude" / "commands"
    folder.mkdir(parents=True)
    (folder / "greet.md").write_text("---\ndescription: say hello\n---\nSay hello to $ARGUMENTS.\n")
    model = serve(lambda request: Reply("Hello."))
    editor = edit()
    editor.initialize()
    session = editor.new(project.cwd)
    assert editor.prompt(session, "/greet Otto") == "end_turn"
    assert "Say hello to Otto." in said(model.requests[0])
    listed = {each["name"]: each for each in editor.updates("available_commands_update")[0]["availableCommands"]}
    assert listed["greet"]["description"] == "say hello"


def test_modes_and_options(project: Project, serve: Any, edit: Edit) -> None:
    project.mode = "default"
    change = ("edit", {"path": "f0.txt", "old_string": "beta", "new_string": "gamma"})
    model = serve(lambda request: Reply("Done.") if request.turn else Reply(calls=[change]))
    editor = edit()
    editor.initialize()
    made = editor.ask("session/new", cwd=str(project.cwd), mcpServers=[])
    session = made["sessionId"]
    assert [each["id"] for each in made["modes"]["availableModes"]] == ["default", "acceptEdits", "plan"]
    options = {each["id"]: each for each in made["configOptions"]}
    assert list(options) == ["mode", "model", "thinking", "agent"]
    assert options["model"]["currentValue"] == "anthropic/claude-sonnet-4-5"
    assert "Explore" in {each["value"] for each in options["agent"]["options"]}
    assert editor.ask("session/set_mode", sessionId=session, modeId="acceptEdits") == {}
    assert editor.updates("current_mode_update")[-1]["currentModeId"] == "acceptEdits"
    changed = editor.ask("session/set_config_option", sessionId=session, configId="thinking", value="high")
    assert {each["id"]: each["currentValue"] for each in changed["configOptions"]} == {
        "mode": "acceptEdits",
        "model": "anthropic/claude-sonnet-4-5",
        "thinking": "high",
        "agent": "main",
    }
    assert editor.prompt(session, "Change it") == "end_turn", "no approval is asked for"
    assert "gamma" in (project.cwd / "f0.txt").read_text()
    assert model.requests[0].body["thinking"]["budget_tokens"] > 0
    other = "anthropic/claude-haiku-4-5"
    editor.ask("session/set_config_option", sessionId=session, configId="model", value=other)
    assert editor.prompt(session, "Again") == "end_turn"
    assert model.requests[-1].body["model"] == "claude-haiku-4-5"
    for wrong in (
        {"configId": "mode", "value": "bypassPermissions"},
        {"configId": "x", "value": "y"},
        {"configId": []},
    ):
        assert editor.fail("session/set_config_option", sessionId=session, **wrong)["code"] == -32602
    assert (
        editor.fail("session/set_config_option", sessionId=session, configId="agent", value="Explore")["code"] == -32602
    )
    assert editor.fail("session/set_mode", sessionId=session, modeId="bypassPermissions")["code"] == -32602


def test_another_main_agent(project: Project, serve: Any, edit: Edit) -> None:
    serve(lambda request: Reply("I only look."))
    editor = edit()
    editor.initialize()
    session = editor.new(project.cwd)
    editor.ask("session/set_config_option", sessionId=session, configId="agent", value="Explore")
    assert editor.prompt(session, "Look") == "end_turn"
    (run,) = project.json("runs", "list", "--json")["runs"]
    assert run["agent"] == "Explore"


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = (1).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")
    )


def test_files_links_and_images_of_the_editor(project: Project, serve: Any, edit: Edit) -> None:
    def looks(request: Request) -> Reply:
        if request.turn == 0:
            path = said(request).partition('attached_image name=\\"')[2].partition('\\"')[0]
            return Reply(calls=[("read", {"path": path})])
        return Reply("Seen.")

    model = serve(looks)
    editor = edit()
    editor.initialize()
    session = editor.new(project.cwd)
    blocks = [
        {"type": "text", "text": "Compare "},
        {"type": "resource_link", "uri": f"file://{project.cwd}/f1.txt", "name": "f1.txt"},
        {"type": "text", "text": " with this: "},
        {"type": "resource", "resource": {"uri": f"file://{project.cwd}/open.py", "text": "unsaved = True"}},
        {"type": "image", "mimeType": "image/png", "data": base64.b64encode(png()).decode()},
    ]
    assert editor.ask("session/prompt", sessionId=session, prompt=blocks)["stopReason"] == "end_turn"
    first = said(model.requests[0])
    assert "alpha 1" in first and "unsaved = True" in first
    assert '"type": "image"' in json.dumps(model.requests[1].results), "the model has seen the image"
    for wrong in (
        [],
        [{"type": "audio", "data": "", "mimeType": "audio/wav"}],
        [{"type": "image", "mimeType": "image/png", "data": "not base64!"}],
        [{"type": "image", "mimeType": "image/tiff", "data": ""}],
        ["text"],
        "text",
    ):
        assert editor.fail("session/prompt", sessionId=session, prompt=wrong)["code"] == -32602


def test_servers_and_folders_of_the_editor(project: Project, serve: Any, edit: Edit, tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "capabilities" / "mcp" / "raw_server.py"
    args = [str(script), "names=add,whoami"]
    server = {"name": "mine", "command": sys.executable, "args": args, "env": [{"name": "A", "value": "1"}]}
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "note.txt").write_text("from outside")
    calls = [("read", {"path": str(outside / "note.txt")})]
    model = serve(lambda request: Reply("Done.") if request.turn else Reply(calls=calls))
    editor = edit()
    editor.initialize()
    session = editor.new(project.cwd, additionalDirectories=[str(outside)], mcpServers=[server])
    assert editor.prompt(session, "Read it") == "end_turn"
    assert {"mcp__mine__add", "mcp__mine__whoami"} <= {tool["name"] for tool in model.requests[-1].body["tools"]}
    assert "from outside" in json.dumps(model.requests[-1].results)
    for wrong in (
        {"cwd": "relative"},
        {"cwd": str(project.cwd / "missing")},
        {"cwd": str(project.cwd), "mcpServers": [{"name": "x", "type": "carrier-pigeon"}]},
        {"cwd": str(project.cwd), "mcpServers": [], "additionalDirectories": ["relative"]},
    ):
        assert editor.fail("session/new", **{"mcpServers": [], **wrong})["code"] == -32602


def test_authenticate_says_whether_there_is_a_model(project: Project, serve: Any, edit: Edit) -> None:
    editor = edit()
    told = editor.initialize(auth={"terminal": True})
    assert [each["id"] for each in told["authMethods"]] == ["setup", "models"]
    assert told["authMethods"][0]["args"] == ["--setup"]
    assert editor.fail("authenticate", methodId="models")["code"] == -32000
    assert editor.fail("authenticate", methodId="x")["code"] == -32602
    serve(lambda request: Reply("Yes."))
    again = edit()
    again.initialize()
    assert again.ask("authenticate", methodId="models") == {}
