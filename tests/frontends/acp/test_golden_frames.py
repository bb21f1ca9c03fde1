"""The frames of scripted conversations are as they were captured.

After a change that is meant: `RETINUE_SNAPSHOTS=write pytest tests/frontends/acp/test_golden_frames.py`, then read the
difference. Each session has its own list: between sessions the order may differ from one time to the next.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.frontends.acp.conftest import Editor
from tests.golden.capture import Placeholders
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

Edit = Callable[..., Editor]
GOLDEN = Path(__file__).parent / "golden"
CHANGE = ("edit", {"path": "f0.txt", "old_string": "beta", "new_string": "gamma"})


def answer(request: Request) -> Reply:
    said = json.dumps(request.body["messages"], ensure_ascii=False)
    if "change it" in said[:120]:
        return Reply("Changed.") if request.turn else Reply("I change it.", calls=[CHANGE])
    if "fail" in said:
        return Reply(status=401, text="no such key")
    if request.turn == 0:
        todos = [{"content": "delegate", "status": "in_progress"}, {"content": "look", "status": "pending"}]
        child = {"prompt": "change it", "subagent_type": "general-purpose", "description": "change beta"}
        calls = [("todo", {"todos": todos}), ("Agent", {**child, "run_in_background": False})]
        return Reply("I let someone change it.", calls=calls)
    if request.turn == 2:
        return Reply(calls=[("read", {"path": "f0.txt", "offset": 2}), ("bash", {"command": "cat f0.txt"})])
    return Reply("All done.")


def merged(updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return updates without what depends on time: pieces of one text are one, and summaries and counts are told
    once, as they are at the end."""
    found: list[dict[str, Any]] = []
    for update in updates:
        kind = update["sessionUpdate"]
        last = found[-1] if found else {}
        if kind.endswith("_chunk") and (last.get("sessionUpdate"), last.get("messageId")) == (
            kind,
            update.get("messageId"),
        ):
            text = last["content"]["text"] + update["content"]["text"]
            found[-1] = {**update, "content": {"type": "text", "text": text}}
        elif kind == "tool_call_update" and update.get("status") == "in_progress":
            continue
        else:
            if kind == "usage_update":
                found = [each for each in found if each["sessionUpdate"] != kind]
            found.append(update)
    return found


def captured(editor: Editor, project: Project) -> Any:
    sessions: dict[str, list[dict[str, Any]]] = {}
    others = []
    for frame in editor.frames:
        if frame.get("method") == "session/update":
            sessions.setdefault(frame["params"]["sessionId"], []).append(frame["params"]["update"])
        else:
            others.append(frame)
    names = Placeholders({str(project.cwd): "<project>", str(project.home): "<home>"})
    found = {"answers and requests": others, "updates": {name: merged(each) for name, each in sessions.items()}}
    text = re.sub(r"projects/[^/]+/", "projects/<folder>/", json.dumps(names.clean(found)))
    for run in project.json("runs", "list", "--json")["runs"]:
        text = text.replace(run["id"][:8], "<short>")
    # How many tokens a request takes depends on the length of the folder's name.
    text = re.sub(r'"used": \d+', '"used": 1', text)
    return json.loads(re.sub(r"ask-[0-9a-f]{10}", "ask-<item>", text))


def compare(name: str, found: Any) -> None:
    file = GOLDEN / f"{name}.json"
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("RETINUE_SNAPSHOTS") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert json.loads(text) == json.loads(file.read_text(encoding="utf-8"))


def without_lists(editor: Editor) -> None:
    """Leave out what other tests pin: the models, agents and commands that there are."""
    for frame in editor.frames:
        for options in (frame.get("result", {}), frame.get("params", {}).get("update", {})):
            for option in options.get("configOptions") or ():
                del option["options"][2:]
            if "availableCommands" in options:
                del options["availableCommands"][6:]
        if "agentInfo" in frame.get("result", {}):
            frame["result"]["agentInfo"]["version"] = "<version>"


@pytest.mark.parametrize(
    ("name", "capabilities"),
    [("one_session", {}), ("child_sessions", {"subagents": {}, "session": {"notices": {}, "compaction": {}}})],
)
def test_frames_of_a_conversation(
    project: Project, serve: Any, edit: Edit, name: str, capabilities: dict[str, Any]
) -> None:
    project.mode = "default"
    serve(answer)
    editor = edit()
    allow = {"outcome": {"outcome": "selected", "optionId": "allow"}}
    editor.answers["session/request_permission"] = lambda params: allow
    editor.initialize(**capabilities)
    session = editor.new(project.cwd)
    assert editor.prompt(session, "Change beta") == "end_turn"
    assert editor.prompt(session, "/runs") == "end_turn"
    editor.fail("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "fail"}])
    editor.leave()
    without_lists(editor)
    compare(name, captured(editor, project))
    again = edit()
    again.initialize(**capabilities)
    again.ask("session/load", sessionId=session, cwd=str(project.cwd), mcpServers=[])
    again.leave()
    without_lists(again)
    compare(f"{name}_loaded", captured(again, project))
