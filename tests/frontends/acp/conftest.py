"""`retinue acp` as a real process, and a client for it that checks every line against the official schema."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from tests.program.conftest import Project

SECONDS = 60.0
RESULTS = {
    "initialize": "InitializeResponse",
    "authenticate": "AuthenticateResponse",
    "session/new": "NewSessionResponse",
    "session/load": "LoadSessionResponse",
    "session/resume": "ResumeSessionResponse",
    "session/list": "ListSessionsResponse",
    "session/close": "CloseSessionResponse",
    "session/delete": "DeleteSessionResponse",
    "session/prompt": "PromptResponse",
    "session/set_mode": "SetSessionModeResponse",
    "session/set_config_option": "SetSessionConfigOptionResponse",
}
PARAMS = {
    "session/update": "SessionNotification",
    "session/request_permission": "RequestPermissionRequest",
    "elicitation/create": "CreateElicitationRequest",
    "$/cancel_request": "CancelRequestNotification",
}
KINDS = {
    "user_message_chunk": "ContentChunk",
    "agent_message_chunk": "ContentChunk",
    "agent_thought_chunk": "ContentChunk",
    "tool_call": "ToolCall",
    "tool_call_update": "ToolCallUpdate",
    "plan": "Plan",
    "available_commands_update": "AvailableCommandsUpdate",
    "current_mode_update": "CurrentModeUpdate",
    "config_option_update": "ConfigOptionUpdate",
    "session_info_update": "SessionInfoUpdate",
    "usage_update": "UsageUpdate",
    "notice": "Notice",
    "compaction_update": "CompactionUpdate",
    "subagent_update": "SubagentUpdate",
}


@cache
def validator(name: str, unstable: bool) -> Any:
    file = "v1-unstable.json" if unstable else "v1.json"
    schema = json.loads((Path(__file__).parent / "schema" / file).read_text(encoding="utf-8"))
    return jsonschema_rs.validator_for({"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]})


def check(frame: dict[str, Any], methods: dict[Any, str], unstable: bool) -> None:
    """Raise for a frame that the schema does not know: as a whole, and by the exact type of its part."""
    assert frame["jsonrpc"] == "2.0"
    if "method" in frame:
        validator(PARAMS[frame["method"]], unstable).validate(frame["params"])
        if frame["method"] == "session/update":
            update = frame["params"]["update"]
            validator(KINDS[update["sessionUpdate"]], unstable).validate(update)
            assert unstable or update["sessionUpdate"] != "subagent_update"
    elif "error" in frame:
        validator("Error", unstable).validate(frame["error"])
    else:
        validator(RESULTS[methods[frame["id"]]], unstable).validate(frame["result"])


class Editor:
    """A client. `frames` are all lines of the agent, in order; each was valid."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.frames: list[dict[str, Any]] = []
        self.answers: dict[str, Callable[[dict[str, Any]], Any]] = {}
        """Answers requests of the agent by method, with a result; None leaves it open."""
        self.unstable = False
        self.lenient = False
        """Answers to requests that were not sent with `begin` are not checked."""
        self.problems: list[str] = []
        self._methods: dict[Any, str] = {}
        self._responses: dict[Any, queue.Queue[dict[str, Any]]] = {}
        self._change = threading.Condition()
        self._number = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                frame = json.loads(line)
                if not self.lenient or "method" in frame or frame["id"] in self._methods:
                    check(frame, self._methods, self.unstable)
            except Exception as error:
                self.problems.append(f"{type(error).__name__}: {error}: {line[:2000]!r}")
                continue
            if "method" in frame and "id" in frame:
                self._respond(frame)
            with self._change:
                self.frames.append(frame)
                self._change.notify_all()
            if "method" not in frame and frame["id"] in self._responses:
                self._responses[frame["id"]].put(frame)
        with self._change:
            self._change.notify_all()

    def _respond(self, frame: dict[str, Any]) -> None:
        answer = self.answers.get(frame["method"])
        result = answer(frame["params"]) if answer is not None else None
        if result is not None:
            self.send({"jsonrpc": "2.0", "id": frame["id"], "result": result})

    def raw(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, frame: dict[str, Any]) -> None:
        self.raw(json.dumps(frame).encode() + b"\n")

    def notify(self, method: str, **params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def begin(self, method: str, **params: Any) -> Any:
        """Send a request and return its id."""
        self._number += 1
        self._methods[self._number] = method
        self._responses[self._number] = queue.Queue()
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        return self._number

    def end(self, request: Any) -> dict[str, Any]:
        """Return the whole response to a request."""
        try:
            return self._responses[request].get(timeout=SECONDS)
        except queue.Empty:
            raise AssertionError(f"no answer; last frames: {self.frames[-5:]}; {self.problems}") from None

    def ask(self, method: str, **params: Any) -> Any:
        found = self.end(self.begin(method, **params))
        assert "result" in found, found
        return found["result"]

    def fail(self, method: str, **params: Any) -> dict[str, Any]:
        found = self.end(self.begin(method, **params))
        assert "error" in found, found
        return found["error"]

    def initialize(self, **capabilities: Any) -> Any:
        self.unstable = "subagents" in capabilities
        return self.ask("initialize", protocolVersion=1, clientCapabilities=capabilities)

    def new(self, cwd: Path, **more: Any) -> str:
        session: str = self.ask("session/new", cwd=str(cwd), mcpServers=more.pop("mcpServers", []), **more)["sessionId"]
        return session

    def prompt(self, session: str, text: str) -> str:
        reason: str = self.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])[
            "stopReason"
        ]
        return reason

    def begin_prompt(self, session: str, text: str) -> Any:
        return self.begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    def until(self, condition: Callable[[dict[str, Any]], Any], start: int = 0) -> dict[str, Any]:
        """Return the first frame from `start` on for which the condition holds."""
        deadline = time.monotonic() + SECONDS
        seen = start
        with self._change:
            while True:
                for frame in self.frames[seen:]:
                    seen += 1
                    if condition(frame):
                        return frame
                if time.monotonic() > deadline or not self._reader.is_alive():
                    raise AssertionError(f"it did not happen: {self.frames[-5:]}; {self.problems}")
                self._change.wait(1.0)

    def updates(self, kind: str | None = None, session: str | None = None, start: int = 0) -> list[dict[str, Any]]:
        found = []
        for frame in self.frames[start:]:
            if frame.get("method") == "session/update":
                update = frame["params"]["update"]
                if session in (None, frame["params"]["sessionId"]) and kind in (None, update["sessionUpdate"]):
                    found.append(update)
        return found

    def text(self, session: str, kind: str = "agent_message_chunk", start: int = 0) -> str:
        return "".join(each["content"]["text"] for each in self.updates(kind, session, start))

    def calls(self, session: str, start: int = 0) -> dict[str, dict[str, Any]]:
        """Return the tool calls of a session as a client has them after all updates."""
        found: dict[str, dict[str, Any]] = {}
        for update in self.updates(None, session, start):
            if update["sessionUpdate"] == "tool_call":
                assert update["toolCallId"] not in found or start, update
                found[update["toolCallId"]] = dict(update)
            elif update["sessionUpdate"] == "tool_call_update":
                assert update["toolCallId"] in found, update
                found[update["toolCallId"]].update(update)
        return found

    def leave(self) -> tuple[int, str]:
        """Close the pipe; return the exit code and what was written to standard error."""
        assert self.process.stdin is not None and self.process.stderr is not None
        if not self.process.stdin.closed:
            self.process.stdin.close()
        self.process.wait(timeout=SECONDS)
        self._reader.join(timeout=SECONDS)
        return self.process.returncode, self.process.stderr.read().decode()


def content_text(call: dict[str, Any]) -> str:
    """Return the text that a tool call shows."""
    parts = call.get("content") or []
    return "\n".join(part["content"].get("text", "") for part in parts if part["type"] == "content")


@pytest.fixture
def edit(project: Project) -> Iterator[Callable[..., Editor]]:
    """`edit()` starts the program with a client; at the end every line of it was valid, and it ended well."""
    started: list[Editor] = []

    def start(**env: str) -> Editor:
        process = subprocess.Popen(
            [*project.program, "acp"],
            cwd=project.home,
            env=project.environment | env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(Editor(process))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            code, error = each.leave()
            assert code == 0, error
            assert "Traceback" not in error, error
        assert not each.problems, each.problems
