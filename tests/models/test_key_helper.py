"""Keys that a program or the keyring gives: fresh enough, asked for once, never for a project's file."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.http.transport import Transport
from retinue.models import keys as key_helper
from retinue.models.build import build_model
from retinue.models.inventory import served_models
from retinue.models.keys import KeyHelper, helped_key
from retinue.models.providers import Provider, Providers
from retinue.models.select import ModelSelection
from retinue.settings.field import Origin
from retinue.settings.table import Settings
from tests.models.scripts import collect, info, said
from tests.models.servers import Reply, Server, failing

WRONG = failing(401, {"error": {"message": "The access token has expired", "type": "invalid_request_error"}})


@pytest.fixture
def helper(tmp_path: Path) -> tuple[str, ...]:
    """A program that prints a new token each time it is started."""
    script = tmp_path / "token.py"
    script.write_text(
        "import pathlib, sys\n"
        f"path = pathlib.Path({str(tmp_path / 'count')!r})\n"
        "number = len(path.read_text()) + 1 if path.exists() else 1\n"
        "path.write_text('x' * number)\n"
        "print(f'token-{number}')\n"
    )
    return sys.executable, str(script)


def provider_with(entry: dict[str, Any], url: str, origin: Origin | None = None) -> Provider:
    entry = {"baseUrl": url, **entry}
    origins = {"providers.mine": origin} if origin is not None else {}
    found = Providers(Settings({"providers": {"mine": entry}}, origins), {}).get("mine")
    assert found is not None
    return found


async def ask(provider: Provider, times: int = 1) -> list[Any]:
    transport = Transport()
    selection = ModelSelection(info("mine", id="m"), provider, "call", "", attempts=1)
    messages = []
    for _ in range(times):
        messages.append((await collect(build_model(selection, transport)))[0])
    await transport.close()
    return messages


async def test_a_program_gives_the_key_and_is_started_once_in_five_minutes(helper: tuple[str, ...]) -> None:
    fine = Reply(said("openai", "ok"))
    async with Server(fine, fine) as server:
        provider = provider_with({"apiKeyHelper": helper}, server.url)
        assert provider.problem is None and provider.api_key == ""
        messages = await ask(provider, 2)
    assert [message.text for message in messages] == ["ok", "ok"]
    assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer token-1", "Bearer token-1"]


async def test_an_old_key_is_renewed(helper: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_helper, "KEY_SECONDS", 0.0)
    fine = Reply(said("openai", "ok"))
    async with Server(fine, fine) as server:
        await ask(provider_with({"apiKeyHelper": helper}, server.url), 2)
    assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer token-1", "Bearer token-2"]


async def test_a_key_that_the_server_refuses_is_asked_for_once_more(helper: tuple[str, ...]) -> None:
    async with Server(WRONG, Reply(said("openai", "ok"))) as server:
        (message,) = await ask(provider_with({"apiKeyHelper": helper}, server.url))
    assert message.text == "ok"
    assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer token-1", "Bearer token-2"]
    async with Server(WRONG, WRONG) as server:
        (message,) = await ask(provider_with({"apiKeyHelper": helper}, server.url))
    assert message.failure is not None and message.failure.kind == "authentication" and len(server.seen) == 2


async def test_many_requests_at_once_start_one_program(helper: tuple[str, ...]) -> None:
    keys = await asyncio.gather(*(helped_key(KeyHelper(argv=helper)) for _ in range(20)))
    assert set(keys) == {"token-1"}


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((sys.executable, "-c", "import sys; sys.exit('please log in first')"), "please log in first"),
        ((sys.executable, "-c", "print('two words')"), "printed no key"),
        ((sys.executable, "-c", ""), "printed no key"),
        (("/no/such/program",), "cannot be started"),
    ],
)
async def test_a_program_that_gives_no_key_is_a_failure_with_its_reason(argv: tuple[str, ...], words: str) -> None:
    async with Server() as server:
        (message,) = await ask(provider_with({"apiKeyHelper": argv}, server.url))
    assert message.failure is not None and message.failure.kind == "authentication"
    assert words in message.failure.message and "settings" in message.failure.remedy
    assert not server.seen, "nothing is sent without a key"


async def test_the_program_gets_no_keys_of_other_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    argv = (sys.executable, "-c", "import os; print('seen' if 'OPENAI_API_KEY' in os.environ else 'nothing')")
    assert await helped_key(KeyHelper(argv=argv)) == "nothing"


def test_a_projects_file_names_no_program_without_consent(helper: tuple[str, ...]) -> None:
    provider = provider_with({"apiKeyHelper": helper}, "https://models.example", Origin("project", "settings.json"))
    assert provider.helper is None
    assert any("apiKeyHelper" in note and "your own settings" in note for note in provider.notes)


def test_a_provider_without_a_key_says_that_the_projects_program_was_not_asked(helper: tuple[str, ...]) -> None:
    entry = {"providers": {"anthropic": {"apiKeyHelper": helper}}}
    origins = {"providers.anthropic": Origin("project", "settings.json")}
    found = Providers(Settings(entry, origins), {}).get("anthropic")
    assert found is not None and found.problem is not None
    assert "has no key: set ANTHROPIC_API_KEY" in found.problem
    assert "'apiKeyHelper' of 'anthropic' is not used: a project's file names it" in found.problem


# ------------------------------------------------------------------ the library `keyring` itself
@pytest.fixture
def keyring_environment(tmp_path: Path) -> dict[str, str]:
    """A keyring in a file below the test's folder."""
    pytest.importorskip("keyrings.alt.file")
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "RETINUE_HOME": str(tmp_path / "home"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "PYTHON_KEYRING_BACKEND": "keyrings.alt.file.PlaintextKeyring",
    }


async def run_program(environment: dict[str, str], *words: str, stdin: str = "") -> tuple[int | None, str, str]:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *words),
        cwd=environment["HOME"],
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            out, complaints = await program.communicate(stdin.encode())
    finally:
        if program.returncode is None:
            program.kill()
    return program.returncode, out.decode(), complaints.decode()


def describe_server(environment: dict[str, str], url: str, entry: str) -> None:
    home = Path(environment["RETINUE_HOME"])
    home.mkdir(exist_ok=True)
    # A window that is known is not asked for: the server's first request is the model's.
    mine = {"baseUrl": url, "apiKeyKeyring": entry, "models": [{"id": "m", "window": 60000}]}
    (home / "settings.json").write_text(json.dumps({"providers": {"mine": mine}, "model": "mine/m"}))


async def test_a_key_stored_with_the_keyrings_own_program_reaches_the_server(
    keyring_environment: dict[str, str],
) -> None:
    stored = await run_program(keyring_environment, "keyring", "set", "models", "me", stdin="ring-key\n")
    assert stored[0] == 0, stored
    async with Server(Reply(said("openai", "ok"))) as server:
        describe_server(keyring_environment, server.url, "models/me")
        code, out, complaints = await run_program(keyring_environment, "retinue", "-p", "hello")
    assert (code, out.strip()) == (0, "ok"), complaints
    assert server.seen[-1].headers["authorization"] == "Bearer ring-key"


@pytest.mark.parametrize(
    ("backend", "said"),
    [
        ("keyrings.alt.file.PlaintextKeyring", "is not there; store it with: keyring set models me"),
        ("keyring.backends.fail.Keyring", "cannot be read (NoKeyringError: No recommended backend was available)"),
    ],
)
async def test_a_keyring_without_the_key_says_so_and_nothing_is_sent(
    keyring_environment: dict[str, str], backend: str, said: str
) -> None:
    async with Server() as server:
        describe_server(keyring_environment, server.url, "models/me")
        environment = keyring_environment | {"PYTHON_KEYRING_BACKEND": backend}
        code, _, complaints = await run_program(environment, "retinue", "-p", "hello")
    assert code == 1
    assert f"the keyring entry 'models/me' {said}" in complaints
    assert "Try `keyring get models me`" in complaints
    assert not any(seen.method == "POST" for seen in server.seen)


async def test_a_list_of_models_is_asked_for_with_the_key(helper: tuple[str, ...]) -> None:
    async with Server(failing(200, {"data": [{"id": "m"}]})) as server:
        assert await served_models(provider_with({"apiKeyHelper": helper}, server.url), seconds=20) == ("m",)
    assert server.seen[0].headers["authorization"] == "Bearer token-1"
