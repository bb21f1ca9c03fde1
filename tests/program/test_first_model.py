"""From nothing to an answer of one's own model: at most three commands, and no file edited."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import run_program
from tests.program.chat_server import ChatServer

KEY = "sk-or-v1-plain-test-key-0001"
SONNET = "anthropic/claude-sonnet-5.5"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return what runs one command on a fresh machine: an empty home, and no keyring that could keep anything."""
    (tmp_path / "project").mkdir(parents=True)

    def execute(*words: str, input: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "HOME": str(tmp_path / "home"),
            "PATH": os.environ["PATH"],
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
            **more,
        }
        return run_program(words, tmp_path / "project", environment, input)

    return execute


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_newcomer_with_a_key_of_openrouter_gets_an_answer_with_two_commands(run: Run, tmp_path: Path) -> None:
    with ChatServer(SONNET, "openai/gpt-5.5", key=KEY) as server:
        # --url stands in for openrouter.ai.
        added = run("models", "add", "openrouter", "--url", server.url, "--key-stdin", input=KEY)
        assert added.returncode == 0, added.stderr
        answer = run("-p", "Say hello")
        assert answer.returncode == 0, answer.stderr
        assert answer.stdout.strip() == "Hello from a real model."
        assert [body["model"] for body in server.requests] == [SONNET, SONNET]
        assert {key for path, key, _ in server.asked if path.endswith("/completions")} == {KEY}
    lines = added.stdout.splitlines()
    assert lines[0].startswith(f"✓ openrouter/{SONNET} answered in ")
    assert lines[1].startswith("The key is stored in ") and "readable by you only" in lines[1]
    assert "retinue -p" in lines[3]
    assert KEY not in added.stdout + added.stderr
    assert files(tmp_path / "project") == set()


def test_a_newcomer_with_ollama_gets_an_answer_with_one_command(run: Run) -> None:
    with ChatServer("qwen3:8b") as server:
        answer = run("-p", "Say hello", OLLAMA_HOST=f"127.0.0.1:{server.port}")
        assert answer.stdout.strip() == "Hello from a real model.", answer.stderr
        assert server.requests[0]["model"] == "qwen3:8b"


def test_a_newcomer_with_a_server_of_the_company_gets_an_answer_with_two_commands(run: Run, tmp_path: Path) -> None:
    with ChatServer("corp-70b", key=KEY) as server:
        added = run("models", "add", "work", "--url", server.url, "--key-stdin", input=KEY)
        assert added.returncode == 0, added.stderr
        assert run("-p", "Say hello").stdout.strip() == "Hello from a real model."
    written = json.loads((tmp_path / "home/.retinue/settings.json").read_text())
    assert written == {"providers": {"work": {"baseUrl": server.url}}}


def test_the_key_is_kept_in_a_file_for_the_owner_only(run: Run, tmp_path: Path) -> None:
    with ChatServer(SONNET, key=KEY) as server:
        run("models", "add", "openrouter", "--url", server.url, "--key-stdin", input=f"{KEY}\n")
    path = tmp_path / "home/.retinue/keys.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["openrouter"]["key"] == KEY
    assert KEY not in (tmp_path / "home/.retinue/settings.json").read_text()


def test_a_key_that_is_refused_is_not_kept(run: Run, tmp_path: Path) -> None:
    with ChatServer(SONNET, key=KEY) as server:
        done = run("models", "add", "openrouter", "--url", server.url, "--key-stdin", input="sk-wrong")
    assert done.returncode == 2
    assert "Nothing was kept. Check the key, and enter it again." in done.stderr
    assert not (tmp_path / "home/.retinue").exists()


def test_a_stored_key_is_sent_only_to_the_address_it_was_given_for(run: Run, tmp_path: Path) -> None:
    with ChatServer(SONNET, key=KEY) as server, ChatServer(SONNET) as other:
        run("models", "add", "openrouter", "--url", server.url, "--key-stdin", input=KEY)
        settings = tmp_path / "project/.retinue/settings.json"
        settings.parent.mkdir(parents=True)
        settings.write_text(json.dumps({"providers": {"openrouter": {"baseUrl": other.url}}}))
        run("-p", "Say hello")
        run("models", "list")
        assert all(KEY not in key for _, key, _ in other.asked)


def test_a_removed_provider_is_no_longer_the_default(run: Run, tmp_path: Path) -> None:
    """The default named it for ever: every later run was refused."""
    assert (
        run("models", "add", "work", "--url", "http://127.0.0.1:9/v1", "--model", "big", "--no-check").returncode == 0
    )
    assert run("settings", "set", "model", "work/big", "--user").returncode == 0
    removed = run("models", "remove", "work")
    assert removed.returncode == 0, removed.stderr
    assert "work/big is no longer the default.\n" in removed.stdout
    assert "The default model is offline/planner" in removed.stdout
    assert run("models", "resolve").returncode == 0


def test_the_default_of_a_project_that_a_removal_breaks_is_told(run: Run, tmp_path: Path) -> None:
    assert (
        run("models", "add", "work", "--url", "http://127.0.0.1:9/v1", "--model", "big", "--no-check").returncode == 0
    )
    assert run("settings", "set", "model", "work/big", "--project").returncode == 0
    removed = run("models", "remove", "work")
    assert "There is no default model now: see retinue models resolve" in removed.stdout
    assert ".retinue/settings.json" in run("models", "resolve").stderr


def test_a_removed_key_is_gone_and_what_is_left_is_said(run: Run, tmp_path: Path) -> None:
    with ChatServer(SONNET, key=KEY) as server:
        run("models", "add", "openrouter", "--url", server.url, "--key-stdin", input=KEY)
    done = run("models", "remove", "openrouter", OPENROUTER_API_KEY="x")
    assert done.stdout.splitlines() == [
        "Removed of openrouter: its key and its entry in your settings.",
        "It is still usable: its key comes from OPENROUTER_API_KEY.",
    ]
    assert KEY not in (tmp_path / "home/.retinue/keys.json").read_text()
    again = run("models", "remove", "openrouter")
    assert (again.returncode, "Nothing is stored for 'openrouter'" in again.stderr) == (2, True)


def test_an_agent_that_reads_the_stored_key_gets_it_redacted(run: Run, tmp_path: Path) -> None:
    with ChatServer(SONNET, key=KEY, says=f"the key is {KEY}") as server:
        run("models", "add", "openrouter", "--url", server.url, "--key-stdin", input=KEY)
        run("-p", "What is the key?")
    logs = b"".join(path.read_bytes() for path in (tmp_path / "home/.retinue/projects").rglob("log.db*"))
    assert logs and KEY.encode() not in logs


def test_a_model_is_tested_with_one_small_request(run: Run) -> None:
    with ChatServer("qwen3:8b", says="ok") as server:
        host = f"127.0.0.1:{server.port}"
        done = run("models", "test", "qwen3", OLLAMA_HOST=host)
        assert (done.returncode, done.stdout.startswith("✓ ollama/qwen3:8b answered in ")) == (0, True)
        assert len(server.requests) == 1
        failed = run("models", "test", "ollama/other", "--json", OLLAMA_HOST=host)
        document = json.loads(failed.stdout)
        assert (failed.returncode, document["ok"], document["failure"]["kind"]) == (1, False, "not_found")


def test_the_default_is_the_users_own_setting_and_what_wins_over_it_is_said(run: Run, tmp_path: Path) -> None:
    keys = {"ANTHROPIC_API_KEY": "a", "GROQ_API_KEY": "g"}
    done = run("models", "default", "haiku", **keys)
    assert "default model is anthropic/claude-haiku-5-5 (" in done.stdout
    assert json.loads((tmp_path / "home/.retinue/settings.json").read_text()) == {"model": "anthropic/claude-haiku-5-5"}
    assert "* anthropic/claude-haiku-5-5" in run("models", "list", **keys).stdout
    again = run("models", "default", "sonnet", RETINUE_MODEL="haiku", **keys)
    assert again.stdout.splitlines()[1].startswith(
        "Here the default is still anthropic/claude-haiku-5-5: RETINUE_MODEL"
    )


def test_a_second_provider_says_which_one_is_used_and_how_to_change_it(run: Run) -> None:
    with ChatServer("corp-70b") as server:
        done = run("models", "add", "work", "--url", server.url, ANTHROPIC_API_KEY="a")
        assert "is still anthropic/claude-sonnet-5-5: " in done.stdout
        assert "retinue models default work/corp-70b" in done.stdout
        more = run("models", "add", "work", "--url", server.url, "--default", "--json", ANTHROPIC_API_KEY="a")
    document: dict[str, Any] = json.loads(more.stdout)
    assert (document["active"], document["keptIn"], document["test"]["ok"]) == ("work/corp-70b", None, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add",), "A provider can only be chosen in a terminal"),
        (("add", "openrouter"), "Use --key-stdin"),
        (("add", "openruter"), "There is no provider 'openruter'"),
        (("add", "work", "--url", "http://127.0.0.1:9/v1"), "does not say which models it has"),
        (("add", "openrouter", "--key-stdin"), "There is no key on standard input"),
        (("add", "qwen3.gguf"), "Retinue runs no weights itself"),
        (("test", "nonsense"), "Model not found"),
        (("default", "nonsense"), "Model not found"),
    ],
)
def test_bad_input_is_a_sentence_with_a_remedy(words: tuple[str, ...], said: str, run: Run, tmp_path: Path) -> None:
    done = run("models", *words)
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) >= 2
    assert not (tmp_path / "home/.retinue").exists()


def test_without_a_model_the_list_leads_to_one(run: Run) -> None:
    done = run("models", "list")
    assert "no language model yet." in done.stdout
    assert "retinue models add" in done.stdout
    assert "no language model yet." not in run("models", "list", GROQ_API_KEY="g").stdout
    refused = run("-p", "hello")
    assert (refused.returncode, refused.stdout) == (2, "") and "retinue models add" in refused.stderr


def test_a_model_that_is_listed_is_a_language_model_although_its_server_is_away(run: Run, tmp_path: Path) -> None:
    settings = tmp_path / "home/.retinue/settings.json"
    settings.parent.mkdir(parents=True)
    server = {"api": "openai", "baseUrl": "http://127.0.0.1:9/v1", "models": ["smollm2"]}
    settings.write_text(json.dumps({"providers": {"local": server}}))
    listed = run("models", "list").stdout
    assert "local/smollm2" in listed and "no language model yet" not in listed
    assert "retinue models default NAME" in listed
    assert run("models", "default", "local/smollm2").returncode == 0
    assert "* local/smollm2" in run("models", "list").stdout
