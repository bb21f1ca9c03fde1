"""Clients that break the rules: odd order, unknown methods, huge and broken lines, pipes that close, slow readers.

Whatever they send, the program answers with valid frames or ends in order, and no run stays alive.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.frontends.acp.conftest import Editor
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

Edit = Callable[..., Editor]
METHODS = (
    "initialize",
    "authenticate",
    "session/new",
    "session/load",
    "session/resume",
    "session/list",
    "session/close",
    "session/delete",
    "session/prompt",
    "session/set_mode",
    "session/set_config_option",
    "session/cancel",
    "$/cancel_request",
    "session/fork",
    "_own/method",
    "",
)


def no_run_lives(project: Project) -> bool:
    runs = project.json("runs", "list", "--json")["runs"]
    return all(run["state"] == "ended" for run in runs)


def test_lines_that_are_no_requests(edit: Edit) -> None:
    editor = edit()
    lines = {
        b"not json\n": -32700,
        b"\xff\xfe\x00\n": -32700,
        b"[]\n": -32600,
        b"17\n": -32600,
        b'{"id":1,"method":"initialize"}\n': -32600,
        b'{"jsonrpc":"2.0","id":{},"method":"initialize"}\n': -32600,
        b'{"jsonrpc":"2.0","id":1,"method":7}\n': -32600,
        b'{"jsonrpc":"2.0","id":1,"method":"session/new","params":[]}\n': -32600,
        b'{"jsonrpc":"2.0","id":2,"method":"session/new","params":{}}\n': -32600,
        b'{"jsonrpc":"2.0","id":3,"method":"session/fork","params":{}}\n': -32601,
        b'{"jsonrpc":"2.0","id":4,"method":"initialize","params":{}}\n': -32602,
        b"[" * 100_000 + b"\n": -32700,
    }
    for line, code in lines.items():
        start = len(editor.frames)
        editor.raw(line)
        assert editor.until(lambda frame: True, start)["error"]["code"] == code, line[:80]
    editor.raw(b"\n  \n" + b'{"jsonrpc":"2.0","id":99,"result":{}}\n' + b'{"jsonrpc":"2.0","method":"$/odd"}\n')
    assert editor.initialize()["protocolVersion"] == 1


@pytest.mark.parametrize("path", ["/" + "x" * 1000, "x" * 1000, "/no/such/folder"])
def test_a_folder_that_cannot_be(project: Project, edit: Edit, path: str) -> None:
    editor = edit()
    editor.initialize()
    more = {"mcpServers": [], "additionalDirectories": [path]}
    assert editor.fail("session/new", cwd=path, mcpServers=[])["code"] == -32602
    assert editor.fail("session/new", cwd=str(project.cwd), **more)["code"] == -32602
    assert editor.fail("session/load", sessionId="nobody", cwd=path, mcpServers=[])["code"] == -32602
    assert editor.ask("session/list", cwd=path) == {"sessions": []}


def test_a_huge_line_is_skipped(edit: Edit) -> None:
    editor = edit()
    for _ in range(70):
        editor.raw(b"x" * 2**20)
    editor.raw(b"\n")
    assert editor.until(lambda frame: "error" in frame)["error"]["code"] == -32600
    assert editor.initialize()["protocolVersion"] == 1


def test_a_request_with_an_id_that_is_in_use(project: Project, serve: Any, edit: Edit) -> None:
    serve(lambda request: Reply("…", hang=True))
    editor = edit()
    editor.initialize()
    session = editor.new(project.cwd)
    request = editor.begin_prompt(session, "Go")
    editor.send({"jsonrpc": "2.0", "id": request, "method": "session/list", "params": {}})
    assert editor.end(request)["error"]["code"] == -32600
    editor.notify("session/cancel", sessionId=session)


def test_nothing_else_reaches_the_output(project: Project, serve: Any, edit: Edit) -> None:
    """Child processes, hooks and servers that print do not disturb the protocol."""
    settings = {"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "echo from a hook"}]}]}}
    (project.home / ".retinue").mkdir(exist_ok=True)
    (project.home / ".retinue" / "settings.json").write_text(json.dumps(settings))
    calls = [("bash", {"command": "echo loud; echo louder >&2; cat; (sleep 0.2; echo late) &"})]
    serve(lambda request: Reply("Done.") if request.turn else Reply(calls=calls))
    editor = edit()
    editor.initialize()
    broken = {"name": "loud", "command": "sh", "args": ["-c", "echo I am no server; sleep 1"], "env": []}
    session = editor.new(project.cwd, mcpServers=[broken])
    assert editor.prompt(session, "Be loud") == "end_turn"
    assert not editor.problems


def test_a_client_that_leaves_in_the_middle_of_a_line(project: Project, serve: Any, edit: Edit) -> None:
    serve(lambda request: Reply("…", hang=True))
    editor = edit()
    editor.initialize()
    session = editor.new(project.cwd)
    editor.begin_prompt(session, "Go")
    editor.until(lambda frame: "session_info_update" in json.dumps(frame))
    editor.raw(b'{"jsonrpc":"2.0","id":7,"meth')
    assert editor.leave()[0] == 0
    assert no_run_lives(project)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(project: Project, serve: Any, edit: Edit, number: signal.Signals) -> None:
    serve(lambda request: Reply("…", hang=True))
    editor = edit()
    editor.initialize()
    session = editor.new(project.cwd)
    editor.begin_prompt(session, "Go")
    editor.until(lambda frame: "session_info_update" in json.dumps(frame))
    editor.process.send_signal(number)
    editor.process.wait(timeout=30)
    assert editor.process.returncode == 0
    assert no_run_lives(project)


class SlowClient:
    """A client that reads only when it is told to."""

    def __init__(self, project: Project) -> None:
        reading, writing = os.pipe()
        self.process = subprocess.Popen(
            [*project.program, "acp"],
            cwd=project.home,
            env=project.environment,
            stdin=subprocess.PIPE,
            stdout=writing,
            stderr=subprocess.PIPE,
        )
        os.close(writing)
        self.out = os.fdopen(reading, "rb")
        self.send(1, "initialize", protocolVersion=1)
        self.read(1)
        self.send(2, "session/new", cwd=str(project.cwd), mcpServers=[])
        self.session = self.read(2)[-1]["result"]["sessionId"]

    def send(self, number: int, method: str, **params: Any) -> None:
        assert self.process.stdin is not None
        line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def prompt(self, number: int) -> None:
        self.send(number, "session/prompt", sessionId=self.session, prompt=[{"type": "text", "text": "Go"}])

    def read(self, number: int) -> list[dict[str, Any]]:
        """Read up to the answer to a request."""
        found = [json.loads(self.out.readline())]
        while found[-1].get("id") != number:
            found.append(json.loads(self.out.readline()))
        return found

    def end(self) -> str:
        """Wait for the process, and return what it wrote to standard error."""
        assert self.process.stdin is not None and self.process.stderr is not None
        self.process.wait(timeout=60)
        error = self.process.stderr.read().decode()
        self.process.stdin.close()
        self.process.stderr.close()
        assert self.process.returncode == 0, error
        assert "Traceback" not in error
        return error


def test_a_reader_that_goes_away_ends_it(project: Project, serve: Any) -> None:
    """The client closes its end of the output and keeps the input open."""
    serve(lambda request: Reply("Word. " * 50, calls=[("ls", {})]) if request.turn < 200 else Reply("End."))
    client = SlowClient(project)
    client.prompt(3)
    client.out.readline()
    client.out.close()
    client.end()
    assert no_run_lives(project)


def test_a_client_that_reads_late_misses_nothing_and_holds_nothing_up(project: Project, serve: Any) -> None:
    text = "".join(f"word {number} " for number in range(200_000))
    serve(lambda request: Reply(text))
    client = SlowClient(project)
    client.prompt(3)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not project.json("runs", "list", "--json")["runs"]:
        time.sleep(0.1)
    while time.monotonic() < deadline and not no_run_lives(project):
        time.sleep(0.1)
    assert no_run_lives(project), "the run ends while nobody reads"
    updates = [frame["params"]["update"] for frame in client.read(3) if "method" in frame]
    said = [each["content"]["text"] for each in updates if each["sessionUpdate"] == "agent_message_chunk"]
    assert "".join(said) == text
    client.process.terminate()
    client.end()
    client.out.close()


def value(chance: random.Random, sessions: list[str], cwd: str) -> Any:
    odd = [None, True, -1, 2**70, 1e300, "", "x" * 1000, "\u0000", "\ud800", [], {}, [[[]]], {"a": {"b": []}}]
    right = [*sessions, cwd, "/", "allow", "mode", "plan", [{"type": "text", "text": "Go"}], [], 1]
    return chance.choice(odd + right * 2)


def frames(chance: random.Random, sessions: list[str], cwd: str) -> bytes:
    """Return one line: a request that is almost right, or pieces of one."""
    keys = (
        "sessionId",
        "cwd",
        "mcpServers",
        "prompt",
        "modeId",
        "configId",
        "value",
        "requestId",
        "methodId",
        "cursor",
    )
    params = {key: value(chance, sessions, cwd) for key in chance.sample(keys, chance.randint(0, len(keys)))}
    if chance.random() < 0.6:
        params |= {"sessionId": chance.choice([*sessions, "nobody"]), "cwd": cwd, "mcpServers": []}
    frame: dict[str, Any] = {"jsonrpc": "2.0", "method": chance.choice(METHODS), "params": params}
    if chance.random() < 0.8:
        frame["id"] = chance.choice([chance.randint(0, 10**6), f"id-{chance.random()}"])
    if chance.random() < 0.1:
        frame = {"jsonrpc": "2.0", "id": chance.randint(0, 50), "result": value(chance, sessions, cwd)}
    if chance.random() < 0.1:
        frame.pop(chance.choice(list(frame)))
    line = json.dumps(frame).encode()
    if chance.random() < 0.1:
        line = line[: chance.randint(0, len(line))] + bytes(chance.randbytes(chance.randint(0, 20)))
    return line.replace(b"\n", b" ") + b"\n"


@pytest.mark.parametrize("seed", range(int(os.environ.get("RETINUE_FUZZ", "3"))))
def test_a_client_that_sends_anything(project: Project, serve: Any, edit: Edit, seed: int) -> None:
    chance = random.Random(seed)

    def answer(request: Request) -> Reply:
        if request.turn == 0 and "look" not in json.dumps(request.body["messages"])[:120]:
            call = {"prompt": "look", "subagent_type": "Explore", "description": "child"}
            return Reply("Text.", calls=[("Agent", call)])
        return Reply("Text.", hang=chance.random() < 0.2)

    serve(answer)
    editor = edit()
    # Answers to odd requests cannot be matched to methods: only that they are JSON-RPC is checked here.
    editor.lenient = True
    editor.initialize()
    sessions = [editor.new(project.cwd) for _ in range(3)]
    for _ in range(300):
        editor.raw(frames(chance, sessions, str(project.cwd)))
    editor.initialize()
    again = editor.new(project.cwd)
    assert editor.prompt(again, "/agents") == "end_turn"
    code, error = editor.leave()
    assert code == 0, error
    assert "Traceback" not in error, error
    assert no_run_lives(project)
