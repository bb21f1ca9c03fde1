"""`retinue models`, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.fork_server import run_program
from tests.git_folder import make_git_folder

Run = Callable[..., subprocess.CompletedProcess[str]]
SECRET = "sk-ant-REAL-SECRET-000000000000"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    make_git_folder(tmp_path / "project")

    def execute(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"], **environment}
        return run_program(("models", *words), tmp_path / "project", environment)

    return execute


def settings(tmp_path: Path, content: Any, where: str = "home/.retinue/settings.json") -> None:
    path = tmp_path / where
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def test_all_available_models_are_listed_and_the_active_one_is_marked(run: Run) -> None:
    done = run("list", ANTHROPIC_API_KEY=SECRET)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "* anthropic/claude-sonnet-5-5 (Claude Sonnet 5.5) · ctx 1M · reasoning · $2/$10" in lines
    assert "  anthropic/claude-haiku-4-5 (Claude Haiku 4.5) · ctx 200k · reasoning · $1/$5" in lines
    assert sum(line.startswith("*") for line in lines) == 1
    assert lines[-1].startswith("The default model is anthropic/claude-sonnet-5-5: ")
    assert "ANTHROPIC_API_KEY" in lines[-1]
    assert SECRET not in done.stdout


def test_the_provider_filter_ignores_capitals(run: Run) -> None:
    keys = {"ANTHROPIC_API_KEY": "a", "GEMINI_API_KEY": "g"}
    for name in ("gemini", "GEMINI", "google"):
        done = run("list", "--provider", name, "--json", **keys)
        assert {model["provider"] for model in json.loads(done.stdout)["models"]} == {"gemini"}


@pytest.mark.parametrize(("name", "word"), [("anthropic", "ANTHROPIC_API_KEY"), ("nobody", "no provider 'nobody'")])
def test_an_empty_list_explains_itself(run: Run, name: str, word: str) -> None:
    done = run("list", "--provider", name)
    assert done.returncode == 0
    assert word in done.stdout


def test_without_anything_the_planner_is_used_and_nothing_is_created(run: Run, tmp_path: Path) -> None:
    done = run("list")
    assert "* offline/planner" in done.stdout
    assert "no key is set" in done.stdout
    assert not (tmp_path / "home").exists()


def test_the_document_of_list(run: Run) -> None:
    document = json.loads(run("list", "--json", OPENAI_API_KEY=SECRET).stdout)
    assert SECRET not in json.dumps(document)
    assert document["active"]["model"] == "openai-responses/gpt-6.1-sol"
    assert [model["id"] for model in document["models"] if model["active"]] == ["gpt-6.1-sol"]
    four = next(model for model in document["models"] if (model["provider"], model["id"]) == ("openai", "gpt-4o"))
    assert four["prices"] == {"input": 2.5, "output": 10, "cacheRead": 1.25, "cacheWrite": None}
    assert (four["window"], four["maxOutput"], four["thinking"], four["images"]) == (128_000, 16_384, False, True)
    assert document["date"]


@contextmanager
def model_server(answers: Mapping[str, Any]) -> Iterator[str]:
    """Answer each path with a document, any other with an empty one, and yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answers.get(self.path, {})).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *parts: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_server_of_ones_own_is_asked_for_its_models(run: Run, tmp_path: Path) -> None:
    with model_server({"/v1/models": {"data": [{"id": "llama-x"}, {"id": "qwen-y"}]}}) as url:
        settings(tmp_path, {"providers": {"ollama": {"baseUrl": url}}})
        done = run("list")
    assert "* ollama/llama-x · ctx 32.8k · free" in done.stdout
    assert "  ollama/qwen-y · ctx 32.8k · free" in done.stdout
    assert "the server 'ollama' answers" in done.stdout


def test_the_list_has_the_window_that_a_server_gives_its_model(run: Run, tmp_path: Path) -> None:
    props = {"default_generation_settings": {"n_ctx": 8192}}
    with model_server({"/v1/models": {"data": [{"id": "small"}]}, "/props": props}) as url:
        settings(tmp_path, {"providers": {"llama.cpp": {"baseUrl": f"{url}/v1"}}})
        done = run("list")
    assert "* llama.cpp/small · ctx 8.19k · free" in done.stdout


@pytest.mark.parametrize(("loaded", "window", "output"), [(65_536, 65_536, 32_768), (None, 32_768, 16_384)])
def test_resolve_asks_the_server_for_the_window_and_says_no_output_above_it(
    run: Run, tmp_path: Path, loaded: int | None, window: int, output: int
) -> None:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            models = [{"name": "deepseek-v4-pro", "context_length": loaded}] if loaded else []
            body = json.dumps({"models": models, "data": [{"id": "deepseek-v4-pro"}]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *parts: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        settings(tmp_path, {"providers": {"ollama": {"baseUrl": f"http://127.0.0.1:{server.server_address[1]}"}}})
        done = run("resolve", "ollama/deepseek-v4-pro", "--json")
        server.shutdown()
    found = json.loads(done.stdout)
    assert (found["window"], found["maxOutput"]) == (window, output), done.stdout
    assert "/api/ps" in asked and "/api/generate" not in asked
    assert any("once a run has loaded it" in each for each in found["warnings"]) is (loaded is None)


def test_a_wrong_choice_does_not_hide_the_list(run: Run) -> None:
    done = run("list", GEMINI_API_KEY="g", RETINUE_MODEL="nonsense")
    assert done.returncode == 0
    assert "  gemini/gemini-2.5-pro" in done.stdout
    assert 'Model not found: "nonsense"' in done.stderr
    assert "RETINUE_MODEL" in done.stderr


def test_problems_of_settings_are_said_on_stderr(run: Run, tmp_path: Path) -> None:
    settings(tmp_path, {"model": 7}, "project/.retinue/settings.json")
    done = run("list")
    assert done.returncode == 0
    assert "settings.json: model is ignored; it must be a model name" in done.stderr
    assert json.loads(run("list", "--json").stdout)["warnings"]


def test_resolve_says_which_why_and_from_where(run: Run) -> None:
    done = run("resolve", "haiku 4.5", ANTHROPIC_API_KEY=SECRET)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "anthropic/claude-haiku-4-5 (Claude Haiku 4.5)"
    text = done.stdout
    for part in ("was asked for", "https://api.anthropic.com", "key from ANTHROPIC_API_KEY", "200k", "$1 in, $5 out"):
        assert part in text
    assert SECRET not in text


def test_resolve_without_a_query_says_what_a_run_gets(run: Run, tmp_path: Path) -> None:
    settings(tmp_path, {"model": "gemini/gemini-2.5-pro"}, "project/.retinue/settings.local.json")
    document = json.loads(run("resolve", "--json", GEMINI_API_KEY="g").stdout)
    assert (document["model"], document["source"]) == ("gemini/gemini-2.5-pro", "settings")
    assert "settings.local.json" in document["why"]
    assert document["baseUrl"] == "https://generativelanguage.googleapis.com"
    document = json.loads(run("resolve", "--json", GEMINI_API_KEY="g", RETINUE_MODEL="gemini-3.8-flash").stdout)
    assert (document["id"], document["source"]) == ("gemini-3.8-flash", "environment")


def test_resolve_as_an_agents_file_would(run: Run) -> None:
    document = json.loads(run("resolve", "--agent-model", "opus", "--json", GEMINI_API_KEY="g").stdout)
    assert (document["provider"], document["source"]) == ("gemini", "key")
    assert '"opus"' in document["warnings"][0]


def test_resolve_ends_with_2_and_the_list(run: Run) -> None:
    done = run("resolve", "nonexistent-model", ANTHROPIC_API_KEY="a")
    assert (done.returncode, done.stdout) == (2, "")
    assert 'Model not found: "nonexistent-model"' in done.stderr
    assert "Available models:" in done.stderr
    assert "anthropic/claude-opus-4-6\n" in done.stderr
    done = run("resolve", "nonexistent-model", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "UNKNOWN_MODEL"


def test_an_empty_query_matches_nothing(run: Run) -> None:
    assert run("resolve", "", ANTHROPIC_API_KEY="a").returncode == 2


def test_a_folder_that_is_none_is_a_usage_error(run: Run) -> None:
    assert run("list", "--cwd", "nowhere").returncode == 2
