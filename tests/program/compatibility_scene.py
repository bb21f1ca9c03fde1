"""A main agent that delegates once, and the requests of its child: shared by the compatibility tests."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.program.conftest import Project
from tests.program.model_server import ModelServer, Reply, Request

LIGHT = {
    "command": sys.executable,
    "args": [str(Path(__file__).parents[1] / "capabilities" / "mcp" / "raw_server.py"), "names=add"],
}
"""An MCP server with the one tool `add`."""


def write(project: Project, path: str, text: str, *, home: bool = False) -> Path:
    place = (project.home if home else project.cwd) / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def settings(project: Project, **values: Any) -> None:
    """The user's own settings, which count without consent."""
    write(project, ".retinue/settings.json", json.dumps(values), home=True)


def is_child(request: Request) -> bool:
    return "CHILD" in json.dumps(request.body["messages"][0])


def delegating(tool: str, answer: Reply | None = None, **arguments: Any) -> Callable[[Request], Reply]:
    """A main agent that calls `tool` once. Its child, whose task must hold CHILD, gives `answer`."""

    def reply(request: Request) -> Reply:
        if is_child(request):
            return answer or Reply("the child's answer")
        return Reply("", [(tool, arguments)]) if request.turn == 0 else Reply("done")

    return reply


def calling_agent(kind: str, **arguments: Any) -> Callable[[Request], Reply]:
    more = {"description": "d", "run_in_background": False, **arguments}
    return delegating("Agent", subagent_type=kind, prompt="CHILD", **more)


def child(server: ModelServer) -> Request:
    """The first request of the last child."""
    found = [each for each in server.requests if is_child(each) and each.turn == 0]
    assert found, "no child was started"
    return found[-1]


def was_started(server: ModelServer) -> bool:
    return any(is_child(each) for each in server.requests)


def told(server: ModelServer) -> str:
    """What the main agent was told by its call."""
    request = next(each for each in reversed(server.requests) if not is_child(each) and each.turn)
    content = request.results[-1]["content"]
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def tools(request: Request) -> set[str]:
    return {tool["name"] for tool in request.body.get("tools", [])}


def tool_named(request: Request, name: str) -> dict[str, Any]:
    (found,) = [tool for tool in request.body["tools"] if tool["name"] == name]
    return found


def system(request: Request) -> str:
    said = request.body["system"]
    return said if isinstance(said, str) else "\n".join(part["text"] for part in said)


def codes(project: Project, prompt: str = "go") -> list[str | None]:
    """The error codes of the calls of one headless session, as its events have them."""
    done = project.retinue("-p", prompt, "--output-format", "stream-json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [line["effect"]["code"] for line in lines if line["type"] == "tool.ended"]
