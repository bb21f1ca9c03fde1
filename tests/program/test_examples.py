"""Every program of examples/ does what it says, against a real model server."""

import ast
import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.program.model_server import Reply, Request

EXAMPLES = Path(__file__).parents[2] / "examples"
SAMPLES = {"string": "text", "integer": 1, "boolean": True}


def submit(request: Request, **values: object) -> Reply:
    """Answer with a result that fits the schema: `values`, and samples for the rest."""
    (tool,) = [tool for tool in request.body["tools"] if tool["name"] == "submit_result"]
    properties = tool["input_schema"]["properties"]
    return Reply(
        calls=[
            (
                "submit_result",
                {name: values.get(name, SAMPLES.get(each.get("type"))) for name, each in properties.items()},
            )
        ]
    )


def wants_result(request: Request) -> bool:
    return any(tool["name"] == "submit_result" for tool in request.body["tools"])


def run(project, name: str, *arguments: str):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=project.cwd,
        env=project.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_every_example_is_run_here():
    named = Path(__file__).read_text("utf-8")
    assert [path.name for path in EXAMPLES.rglob("*.py") if path.name not in named and "plugin" not in path.parts] == []


def test_custom_tool_py(project, serve):
    def answer(request: Request) -> Reply:
        if request.turn == 0:
            return Reply(calls=[("look_up_order", {"number": "A-17"})])
        return submit(request, order="A-17", text=request.results[0]["content"])

    serve(answer)
    assert run(project, "custom_tool.py").stdout == "A-17: shipped on Monday\n"


def test_fan_out_py(project, serve):
    serve(lambda request: submit(request, file="a", purpose="holds text"))
    done = run(project, "fan_out.py", "f0.txt", "f1.txt", "f2.txt", "f3.txt")
    assert done.stdout == "a: holds text\n" * 4 and "4 of 4" in done.stderr


def test_approvals_py(project, serve):
    project.mode = ""

    def answer(request: Request) -> Reply:
        writes = [("write", {"path": path, "content": "x"}) for path in ("notes/files.md", "other.md")]
        return Reply("Done.") if request.turn else Reply(calls=writes)

    serve(answer)
    done = run(project, "approvals.py", "Write a list")
    assert "allowed: " in done.stderr and "refused: " in done.stderr
    assert (project.cwd / "notes" / "files.md").exists() and not (project.cwd / "other.md").exists()


def test_watch_and_steer_py(project):
    done = run(project, "watch_and_steer.py")
    assert "1 run.created" in done.stdout and "completed" in done.stdout


def test_test_with_a_script_py(project):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(EXAMPLES / "test_with_a_script.py")],
        cwd=project.cwd,
        env=project.environment,
        capture_output=True,
        text=True,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


async def test_products_api_server_py(project, serve, monkeypatch):
    """A person allows what the agent of the web service wants to write."""
    pytest.importorskip("fastapi")
    import httpx

    project.mode = ""
    serve(
        lambda request: Reply("Done.") if request.turn else Reply(calls=[("write", {"path": "a.md", "content": "x"})])
    )
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PROJECT", str(project.cwd))
    spec = importlib.util.spec_from_file_location("api_server", EXAMPLES / "products" / "api_server.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "api_server", module)
    spec.loader.exec_module(module)
    async with module.lifespan(module.app):
        transport = httpx.ASGITransport(app=module.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            assert (await client.post("/runs", json={"task": "x", "agent": "nobody"})).status_code == 422
            started = (await client.post("/runs", json={"task": "Write a.md"})).json()["id"]
            assert (await client.get("/runs/unknown")).status_code == 404
            while not (waiting := (await client.get("/approvals")).json()):
                await asyncio.sleep(0.05)
            assert (await client.get(f"/runs/{started}")).json() == {"state": "running"}
            assert (await client.post(f"/approvals/{waiting[0]['id']}", json={"choice": "allow"})).status_code == 200
            while (shown := (await client.get(f"/runs/{started}")).json())["state"] == "running":
                await asyncio.sleep(0.05)
            assert (shown["state"], shown["text"]) == ("completed", "Done.")
            assert (await client.post(f"/approvals/{waiting[0]['id']}", json={"choice": "deny"})).status_code == 409
    assert (project.cwd / "a.md").read_text() == "x"


async def test_products_review_ipynb(project, serve, monkeypatch, capsys):
    """The cells run as a notebook runs them: in one namespace, on a loop that is running."""
    serve(lambda request: submit(request, risk="low", reason="small") if wants_result(request) else Reply("None."))
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(project.cwd)
    for number in range(2):
        Path(f"m{number}.py").write_text("x = 1\n")
    notebook = json.loads((EXAMPLES / "products" / "review.ipynb").read_text("utf-8"))
    namespace: dict[str, object] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            code = compile("".join(cell["source"]), cell["id"], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            waiting = eval(code, namespace)
            if waiting is not None:
                await waiting
    said = capsys.readouterr().out
    assert said.startswith("None.\n") and "✓ 2 of 2" in said and said.count("low ") == 2


@pytest.mark.parametrize(("level", "code"), [("warning", 0), ("error", 1)])
def test_products_ci(project, serve, level, code):
    """The script of the CI job reviews a real change and fails for an error."""
    finding = {"level": level, "file": "f0.txt", "line": 1, "text": "look here"}
    server = serve(lambda request: Reply(calls=[("submit_result", {"findings": [finding]})]))
    binaries = project.home / "bin"
    binaries.mkdir()
    (binaries / "retinue").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m retinue "$@"\n')
    (binaries / "retinue").chmod(0o755)
    env = project.environment | {"PATH": f"{binaries}:{os.environ['PATH']}"}
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "one"], ["checkout", "-qb", "change"]):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=project.cwd, env=env, check=True
        )
    (project.cwd / "f0.txt").write_text("changed\n")
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "two"],
        cwd=project.cwd,
        env=env,
        check=True,
    )
    script = EXAMPLES / "products" / "ci" / "review.sh"
    done = subprocess.run(["sh", str(script), "main"], cwd=project.cwd, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, f"::{level} file=f0.txt,line=1::look here\n"), done.stderr
    assert "+changed" in json.dumps(server.requests[0].body["messages"])
