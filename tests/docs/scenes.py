"""What each page needs to be followed, and what its ids and addresses stand for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from tests.capabilities.telemetry.sink import Collector
from tests.docs.reader import Reader
from tests.program.chat_server import ChatServer
from tests.program.model_server import Reply, Request
from tests.recordings.scenes import FIXER, fix, git

RUN = "3f2a9c1d"
SAMPLES = {"string": "text", "integer": 1, "boolean": True}


def answer(request: Request) -> Reply:
    """Answer anything: with a result where one is asked for."""
    for tool in request.body.get("tools", ()):
        if tool["name"] == "submit_result":
            properties = tool["input_schema"]["properties"]
            return Reply(calls=[("submit_result", {name: SAMPLES[each["type"]] for name, each in properties.items()})])
    return Reply("Done.")


def calls(*steps: tuple[str, dict[str, Any]]) -> Callable[[Request], Reply]:
    """Return a model that makes these calls, one a turn, and then answers."""

    def play(request: Request) -> Reply:
        return Reply(calls=[steps[request.turn]]) if request.turn < len(steps) else Reply("Done.")

    return play


def finish_run(reader: Reader, *steps: tuple[str, dict[str, Any]], options: tuple[str, ...] = ()) -> str:
    """Run an agent that makes these calls, and return the id of its run."""
    assert reader.project.server is not None
    reader.project.server.answer = calls(*steps)
    mode = ("--permission-mode", "bypassPermissions")
    done = reader.project.retinue("run", "general-purpose", "Prepare this page", *mode, *options, "--json")
    reader.project.server.answer = answer
    assert done.stdout, done.stderr
    return str(reader.project.json("runs", "list", "--json")["runs"][0]["id"])


def write(path: str) -> tuple[str, dict[str, Any]]:
    return ("write", {"path": path, "content": "new\n"})


@contextmanager
def plain(reader: Reader) -> Iterator[None]:
    yield


@contextmanager
def a_run(reader: Reader) -> Iterator[None]:
    """A run whose time was over before it was done."""
    reader.words[RUN] = finish_run(reader, *[write(f"w{n}.txt") for n in range(9)], options=("--max-turns", "3"))
    yield


@contextmanager
def cluster(reader: Reader) -> Iterator[None]:
    """A database of its own on the server of the tests."""
    import psycopg

    url = reader.fixture("postgres")
    name = f"page_{time.time_ns()}"
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"')
    reader.words["postgresql://retinue:PASSWORD@db.example/retinue"] = f"'{url.replace('/postgres?', f'/{name}?')}'"
    yield
    listed = json.loads(reader.run("retinue", "runs", "list", "--json"))["runs"]
    assert [(run["agent"], run["ended"]) for run in listed] == [("reviewer", "completed")], listed


@contextmanager
def context(reader: Reader) -> Iterator[None]:
    """A memory of the reviewer, and the skills that the page names."""
    reader.put("~/.retinue/agent-memory/reviewer/MEMORY.md", "- The tests are slow.\n")
    for name in ("pdf", "style"):
        reader.put(f".retinue/skills/{name}/SKILL.md", f"---\nname: {name}\ndescription: About {name}.\n---\nDo $0.\n")
    yield


@contextmanager
def hooks(reader: Reader) -> Iterator[None]:
    """The programs that the hooks of the page start, and a run that meets them."""
    reader.put("~/hooks/guard.sh", "#!/bin/sh\ncat > guard.seen\n").chmod(0o755)
    reader.put("~/hooks/notify.sh", "#!/bin/sh\ntouch notify.seen\n").chmod(0o755)
    yield
    (settings,) = reader.settings
    reader.put("~/.retinue/settings.json", settings)
    finish_run(reader, ("bash", {"command": "echo hello"}))
    assert json.loads((reader.cwd / "guard.seen").read_text())["tool_input"] == {"command": "echo hello"}
    assert (reader.cwd / "notify.seen").exists()


@contextmanager
def models(reader: Reader) -> Iterator[None]:
    """Servers in place of those of the page, and a key that is typed."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "RETINUE_MODEL"):
        del reader.environment[name]
    with ChatServer("anthropic/claude-sonnet-5.5", key="k") as router, ChatServer("corp-70b") as work:
        typed = f"printf k | retinue models add openrouter --key-stdin --url {router.url}"
        reader.words = {"retinue models add openrouter": typed, "https://llm.example.com/v1": work.url}
        yield


@contextmanager
def plugins(reader: Reader) -> Iterator[None]:
    yield
    out = reader.run("retinue", "plugins", "check")
    assert "time_in" in out, out
    finish_run(reader, ("time_in", {"zone": "Europe/Rome"}))
    assert reader.project.server is not None
    result = reader.project.server.requests[-1].results[0]
    assert "+0" in json.dumps(result), result


@contextmanager
def serve(reader: Reader) -> Iterator[None]:
    reader.words = {"4747": str(reader.port), RUN: finish_run(reader)}
    yield


@contextmanager
def telemetry(reader: Reader) -> Iterator[None]:
    with Collector() as collector:
        reader.words = {"http://localhost:4318": collector.url, RUN: finish_run(reader)}
        yield
        assert "invoke_agent main" in {span.name for span in collector.spans()}


@contextmanager
def testing_agents(reader: Reader) -> Iterator[None]:
    """A file to fix, a model that fixes it, and a second version of the agent."""
    assert reader.project.server is not None
    reader.put("src/io.py", "def f(): pass\n")
    reader.put("fixer-2.md", FIXER)
    git(reader.cwd, "add", ".")
    git(reader.cwd, "-c", "user.name=x", "-c", "user.email=x@example.invalid", "commit", "-qm", "second")
    reader.project.server.answer = fix
    yield


@contextmanager
def trust(reader: Reader) -> Iterator[None]:
    """A run that changed files, two that wait for an answer, and a repository that names a filter."""
    reader.words[RUN] = finish_run(reader, *[write(f"w{n}.txt") for n in range(5)])
    assert reader.project.server is not None
    reader.project.server.answer = calls(write("asked.txt"))
    waiting = [
        reader.project.start("run", "general-purpose", "Write it", env={"RETINUE_PERMISSIONS_HEADLESS": "wait"})
        for _ in range(2)
    ]
    items: list[dict[str, Any]] = []
    while len(items) < len(waiting):
        items = reader.project.json("inbox", "list", "--json")["items"]
        time.sleep(0.1)
    reader.words |= {"4736c164": items[0]["id"], "9b0d2f11": items[1]["id"]}
    git(reader.cwd, "config", "filter.example.smudge", "cat")
    try:
        yield
        for process in waiting:
            assert process.wait(60) == 0
    finally:
        for process in waiting:
            with suppress(ProcessLookupError):
                process.kill()
            process.communicate()


@contextmanager
def tutorial(reader: Reader) -> Iterator[None]:
    yield
    assert "reviewer-of-money completed" in reader.said


SCENES: dict[str, Callable[[Reader], AbstractContextManager[None]]] = {
    "README.md": a_run,
    "docs/cluster.md": cluster,
    "docs/context.md": context,
    "docs/hooks.md": hooks,
    "docs/models.md": models,
    "docs/plugins.md": plugins,
    "docs/questions.md": a_run,
    "docs/serve.md": serve,
    "docs/telemetry.md": telemetry,
    "docs/testing-agents.md": testing_agents,
    "docs/trust.md": trust,
    "docs/tutorial.md": tutorial,
}
