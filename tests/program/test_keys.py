"""Keys of model servers: where they go, and where they never do."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from retinue import Retinue
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

KEY = "plainword"
"""Nothing about it looks like a secret: only its name says so."""
LOOK = """env; echo ---; ps eww -p $PPID; for each in /proc/[0-9]*/environ; do tr '\\0' '\\n' < $each; done 2>/dev/null
cat /proc/self/environ"""


def results(request: Request) -> str:
    return json.dumps(request.body["messages"])


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="Linux shows the environment of processes there")
def test_no_command_of_an_agent_sees_a_key_wherever_it_looks(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply(calls=[("bash", {"command": LOOK})] if request.turn == 0 else []))
    keys = {"ANTHROPIC_API_KEY": KEY, "MINE": f"{KEY}2", "TAVILY_API_KEY": f"{KEY}3"}
    own = {"providers": {"mine": {"baseUrl": "http://127.0.0.1:1", "apiKeyEnv": "MINE"}}}
    write(project.home / ".retinue/settings.json", own)
    done = project.retinue("-p", "go", env=keys)
    assert done.returncode == 0, done.stderr
    assert all(request.headers["x-api-key"] == KEY for request in server.requests), "the model's server gets it"
    seen = results(server.requests[-1])
    assert "RETINUE_HOME" in seen and "---" in seen
    assert KEY not in seen


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="Linux shows the environment of processes there")
def test_a_variable_that_only_the_users_settings_call_a_key_is_one(project: Project, serve: Any) -> None:
    server = serve(lambda request: Reply(calls=[("bash", {"command": LOOK})] if request.turn == 0 else []))
    entry = {"baseUrl": server.url, "api": "anthropic", "apiKeyEnv": "MINE"}
    write(project.home / ".retinue/settings.json", {"providers": {"mine": entry}})
    environment = {name: value for name, value in project.environment.items() if not name.startswith("ANTHROPIC")}
    environment |= {"MINE": KEY, "RETINUE_MODEL": "mine/claude-sonnet-4-5"}
    command = [*project.program, "-p", "go"]
    subprocess.run(command, cwd=project.cwd, env=environment, stdin=subprocess.DEVNULL, timeout=120, check=True)
    assert server.requests[-1].headers["x-api-key"] == KEY
    assert "RETINUE_HOME" in results(server.requests[-1]) and KEY not in results(server.requests[-1])


def test_a_hook_gets_a_key_only_if_the_user_passes_it_on(project: Project, serve: Any) -> None:
    serve(lambda request: Reply(calls=[("ls", {})] if request.turn == 0 else []))
    hook = {"hooks": [{"type": "command", "command": f"env >> {project.home}/seen"}]}
    settings = {"hooks": {"PreToolUse": [hook]}}
    file = write(project.home / ".retinue/settings.json", settings)
    project.retinue("-p", "go", env={"ANTHROPIC_API_KEY": KEY})
    assert "RETINUE_PROJECT_DIR" in (project.home / "seen").read_text()
    assert KEY not in (project.home / "seen").read_text()
    write(file, settings | {"sandbox": {"passEnvironment": ["ANTHROPIC_API_KEY"]}})
    project.retinue("-p", "go", env={"ANTHROPIC_API_KEY": KEY})
    assert f"ANTHROPIC_API_KEY={KEY}" in (project.home / "seen").read_text()


async def test_inside_somebodys_program_the_environment_stays_and_children_go_without(
    project: Project, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(lambda request: Reply(calls=[("bash", {"command": "env"})] if request.turn == 0 else []))
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    async with Retinue(cwd=project.cwd) as retinue:
        outcome = await (await retinue.spawn("general-purpose", "go")).wait()
    assert outcome.ended == "completed", outcome
    assert os.environ["ANTHROPIC_API_KEY"] == KEY
    assert "RETINUE_HOME" in results(server.requests[-1]) and KEY not in results(server.requests[-1])


class Listener(ThreadingHTTPServer):
    """A model server that a project brings along; it keeps everything it is sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                listener.sent.append(str(self.headers))
                body = b'{"data": [{"id": "m"}]}'
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET  # noqa: N815 - so the standard library names it

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_listing_models_sends_no_variable_that_a_project_names(project: Project, listener: Listener) -> None:
    entry = {"baseUrl": listener.url, "apiKeyEnv": "AWS_SECRET_ACCESS_KEY", "headers": {"x-b": "$DATABASE_URL"}}
    file = write(project.cwd / ".retinue/settings.json", {"providers": {"x": entry}})
    secrets = {"AWS_SECRET_ACCESS_KEY": KEY, "DATABASE_URL": KEY}
    done = project.retinue("models", "list", env=secrets)
    assert "x/m" in done.stdout and listener.sent, "it works without a key"
    assert KEY not in "".join(listener.sent)
    assert "$AWS_SECRET_ACCESS_KEY is not sent" in done.stderr and f"retinue trust add {file}" in done.stderr
    assert "AWS_SECRET_ACCESS_KEY" in project.retinue("trust").stdout
    assert project.retinue("trust", "add", str(file)).returncode == 0
    done = project.retinue("models", "list", env=secrets)
    assert KEY in listener.sent[-1] and "is not sent" not in done.stderr


@pytest.mark.parametrize("name", ["anthropic", "Anthropic ", "openai", "gemini", "openrouter"])
def test_a_project_redirects_no_known_provider_not_even_to_this_machine(
    project: Project, listener: Listener, name: str
) -> None:
    theirs = {"providers": {name: {"baseUrl": listener.url, "models": ["m"]}}, "model": f"{name.strip()}/m"}
    file = write(project.cwd / ".retinue/settings.json", theirs)
    keys = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"), KEY)
    done = project.retinue("models", "list", env=keys)
    assert not listener.sent
    assert "providers has no effect: it is not trusted" in done.stderr
    assert project.retinue("trust", "add", str(file)).returncode == 0
    project.retinue("-p", "go", "--max-turns", "1", env={**keys, "RETINUE_MODEL": f"{name.strip()}/m"})
    assert KEY in "".join(listener.sent)


PASSWORD = "Tr0ub4dor-and-3"


def seen_of(process: subprocess.Popen[str]) -> str:
    """Return what other processes of this user see of one."""
    return "".join(Path(f"/proc/{process.pid}/{name}").read_text() for name in ("cmdline", "environ"))


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="Linux shows the environment of processes there")
def test_the_password_of_the_database_is_in_no_list_of_processes(project: Project, serve: Any, postgres: str) -> None:
    pytest.importorskip("dbos")
    server = serve(lambda request: Reply(calls=[("bash", {"command": LOOK})] if request.turn == 0 else []))
    # A server on a socket asks nobody for the password.
    url = postgres.replace("postgres:@", f"postgres:{PASSWORD}@")
    assert PASSWORD in url, postgres
    done = project.retinue("-p", "go", env={"RETINUE_DATABASE": url})
    assert done.returncode == 0, done.stderr
    assert "RETINUE_HOME" in results(server.requests[-1]) and PASSWORD not in results(server.requests[-1])
    assert [row["agent"] for row in json.loads(listed(project, url))["runs"]] == ["main"]
    worker = project.start("worker", env={"RETINUE_DATABASE": url})
    try:
        assert worker.stderr is not None
        assert "takes runs now" in worker.stderr.readline()
        assert "RETINUE_HOME" in seen_of(worker) and PASSWORD not in seen_of(worker)
    finally:
        worker.terminate()
        worker.communicate(timeout=60)


def listed(project: Project, url: str) -> str:
    return project.retinue("runs", "list", "--json", env={"RETINUE_DATABASE": url}).stdout


@pytest.mark.parametrize(
    "words",
    [
        ("worker", "--database", f"postgresql://retinue:{PASSWORD}@127.0.0.1:1/retinue"),
        ("workers", "list", "--database", f"postgresql://127.0.0.1:1/retinue?user=a&password={PASSWORD}"),
        ("settings", "set", "database", f"postgresql://retinue:{PASSWORD}@127.0.0.1:1/retinue", "--user"),
    ],
)
def test_a_password_is_not_taken_from_the_arguments(project: Project, words: tuple[str, ...]) -> None:
    done = project.retinue(*words)
    assert done.returncode == 2 and "every user of the machine" in done.stderr and PASSWORD not in done.stderr
    assert not (project.home / ".retinue" / "settings.json").exists()
