"""Which model a run gets, and why. Servers are real ones on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from retinue.http.transport import Transport
from retinue.models.select import ModelSelection, build_model, select_model, unsent_level
from retinue.settings.table import Settings
from tests.program_main import run_main

KEYS = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o", "GEMINI_API_KEY": "g"}


async def select(
    query: str | None = None,
    environment: dict[str, str] | None = None,
    settings: dict[str, Any] | None = None,
    **more: Any,
) -> ModelSelection:
    return await select_model(query, settings=Settings(settings), environment=environment or {}, **more)


class Resolve:
    """`resolve("haiku", KEYS)`: what `retinue models resolve` says, with these variables and these settings of a
    user. `refused` returns why it found none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "project").mkdir()

    def _document(
        self, query: str | None, environment: dict[str, str] | None, settings: dict[str, Any] | None, *more: str
    ) -> Any:
        (self._folder / "settings.json").write_text(json.dumps(settings or {}))
        home = {"HOME": str(self._folder), "RETINUE_HOME": str(self._folder)}
        asked = ("models", "resolve", *more, "--json", "--cwd", str(self._folder / "project"))
        if query is not None:
            asked += ("--", query)
        return json.loads(run_main(*asked, environment=home | (environment or {})).stdout)

    def __call__(
        self,
        query: str | None = None,
        environment: dict[str, str] | None = None,
        settings: dict[str, Any] | None = None,
        agent_model: str | None = None,
    ) -> SimpleNamespace:
        more = () if agent_model is None else ("--agent-model", agent_model)
        return SimpleNamespace(**self._document(query, environment, settings, *more))

    def refused(
        self,
        query: str | None = None,
        environment: dict[str, str] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> str:
        error = self._document(query, environment, settings)["error"]
        assert error["code"] == "UNKNOWN_MODEL"
        return f"{error['message']}\n{error['remedy']}"


@pytest.fixture
def resolve(tmp_path: Path) -> Resolve:
    return Resolve(tmp_path)


class Server(ThreadingHTTPServer):
    """Answers GET …/models with `answer`, and remembers what it was asked."""

    daemon_threads = True
    answer: bytes = b"{}"
    status = 200

    def __init__(self) -> None:
        self.seen: list[tuple[str, str | None]] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def serves(self, *models: str) -> None:
        self.answer = json.dumps({"data": [{"id": model} for model in models]}).encode()


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers.get("authorization")))
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, *parts: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        yield made
        made.shutdown()


# ---------------------------------------------------------------- the order
def test_the_offline_planner_is_there_when_nothing_else_is(resolve: Resolve) -> None:
    chosen = resolve()
    assert (chosen.source, chosen.model) == ("offline", "offline/planner")
    assert set(chosen.prices.values()) == {0.0}
    assert chosen.warnings == []


async def test_the_whole_order(server: Server, tmp_path: Path) -> None:
    server.serves("served-model")
    environment: dict[str, str] = {}
    settings: dict[str, Any] = {}
    settings["providers"] = {"mine": {"baseUrl": server.url}}
    chosen = await select(None, environment, settings)
    assert (chosen.source, chosen.info.full_name) == ("server", "mine/served-model")
    environment["GEMINI_API_KEY"] = "g"
    chosen = await select(None, environment, settings)
    assert (chosen.source, chosen.info.provider) == ("key", "gemini")
    assert "GEMINI_API_KEY" in chosen.why
    settings["model"] = "gemini/gemini-2.5-pro"
    chosen = await select(None, environment, settings)
    assert (chosen.source, chosen.info.id) == ("settings", "gemini-2.5-pro")
    environment["RETINUE_MODEL"] = "gemini/gemini-2.5-flash"
    chosen = await select(None, environment, settings)
    assert (chosen.source, chosen.info.id) == ("environment", "gemini-2.5-flash")
    parent = chosen.info
    environment["RETINUE_MODEL"] = "gemini/gemini-3.8-flash"
    chosen = await select(None, environment, settings, parent=parent)
    assert (chosen.source, chosen.info) == ("parent", parent)
    chosen = await select("gemini-3.5-flash-lite", environment, settings, parent=parent)
    assert (chosen.source, chosen.info.id) == ("call", "gemini-3.5-flash-lite")
    chosen = await select("gemini-3.5-flash-lite", environment, settings, parent=parent, file_model="gemini-2.5-pro")
    assert (chosen.source, chosen.info.id) == ("file", "gemini-2.5-pro")
    assert "gemini-3.5-flash-lite" in chosen.notes[-1]


@pytest.mark.parametrize("nothing", [None, "inherit"])
async def test_inherit_is_the_same_as_nothing_everywhere(nothing: str | None) -> None:
    environment = {"ANTHROPIC_API_KEY": "a", "RETINUE_MODEL": "inherit"}
    parent = (await select("haiku", environment)).info
    assert (await select(nothing, environment, {"model": "inherit"}, file_model=nothing)).source == "key"
    chosen = await select(nothing, environment, {"model": "inherit"}, file_model=nothing, parent=parent)
    assert (chosen.source, chosen.info) == ("parent", parent)


def test_inherit_is_a_keyword_in_lower_case_only(resolve: Resolve) -> None:
    assert resolve.refused("Inherit", KEYS)


@pytest.mark.parametrize(
    ("environment", "model"),
    [
        ({"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o"}, "anthropic/claude-sonnet-5-5"),
        ({"OPENAI_API_KEY": "o", "GEMINI_API_KEY": "g"}, "openai-responses/gpt-6.1-sol"),
        ({"GOOGLE_API_KEY": "g"}, "gemini/gemini-4-argon"),
        ({"ANTHROPIC_API_KEY": "  ", "DEEPSEEK_API_KEY": "d"}, "deepseek/deepseek-v4-pro"),
    ],
)
def test_a_key_brings_its_providers_everyday_model(resolve: Resolve, environment: dict[str, str], model: str) -> None:
    assert resolve(None, environment).model == model


@pytest.mark.parametrize("name", ["local", "offline", "pydantic-ai"])
async def test_a_server_may_have_the_name_of_an_embedded_model(name: str) -> None:
    described = {"providers": {name: {"api": "openai", "baseUrl": "http://127.0.0.1:9/v1"}}}
    selection = await select(f"{name}/mine", settings=described)
    assert (selection.provider.base_url, selection.info.id) == ("http://127.0.0.1:9/v1", "mine")
    assert type(build_model(selection, Transport())).__name__ in ("OpenAIChatModel", "RetryingModel")


def test_a_described_provider_with_a_key_counts(resolve: Resolve) -> None:
    entry = {"deepseek": {}, "mine": {"baseUrl": "https://x.example/v1", "apiKeyEnv": "MINE", "models": ["m1", "m2"]}}
    assert resolve(None, {"DEEPSEEK_API_KEY": "d"}, {"providers": entry}).id == "deepseek-v4-pro"
    assert resolve(None, {"MINE": "k"}, {"providers": entry}).model == "mine/m1"


# ---------------------------------------------------------------- names
@pytest.mark.parametrize(
    ("query", "model"),
    [
        ("haiku", "anthropic/claude-haiku-5-5"),
        ("anthropic/haiku", "anthropic/claude-haiku-5-5"),
        ("opus", "anthropic/claude-opus-5-5"),
        ("fable", "anthropic/claude-fable-5-2"),
        ("claude-opus-4.6", "anthropic/claude-opus-4-6"),
        ("anthropic/claude-opus-4.6", "anthropic/claude-opus-4-6"),
        ("anthropic/sonnet-4.5", "anthropic/claude-sonnet-4-5"),
        ("anthropic/claude-haiku-4-5-20251001", "anthropic/claude-haiku-4-5-20251001"),
        ("claude-haiku-4-5-20251001", "anthropic/claude-haiku-4-5"),
        ("google/gemini-2.5-pro", "gemini/gemini-2.5-pro"),
        ("gpt-4o@openai", "openai/gpt-4o"),
        ("openai-codex/gpt-5.5", "openai/gpt-5.5"),
        ("GPT-5.6 Luna (copilot)", "openai-responses/gpt-5.6-luna"),
        ("Gemini 3.6 Flash (copilot)", "gemini/gemini-3.6-flash"),
        ("openrouter/anthropic/claude-opus-4.6", "anthropic/claude-opus-4-6"),
        ("offline", "offline/planner"),
        ("Offline/Planner", "offline/planner"),
    ],
)
def test_names(resolve: Resolve, query: str, model: str) -> None:
    chosen = resolve(query, KEYS)
    assert chosen.model == model
    assert chosen.warnings == []


@pytest.mark.parametrize(
    "query",
    [
        "anthropic/claude-sonnet-6",
        "openai/gpt-4",
        "openai/gpt-5.6",
        "ollama/gpt-oss:20b",
        "gemini/models/b",
        "anthropic/claude-fake",
    ],
)
def test_a_new_model_of_a_configured_provider_is_taken_as_it_is(resolve: Resolve, query: str) -> None:
    chosen = resolve(query, KEYS)
    assert chosen.model == query
    if not query.startswith("ollama"):
        assert "taken as it is" in chosen.notes[0]
        assert chosen.prices is None


@pytest.mark.parametrize("query", ["anthropic/nonexistent-model", "anthropic/fake", "gemini/a/b", "openai/sonnet-9"])
def test_a_name_that_no_provider_has_is_an_error_and_not_taken_as_it_is(resolve: Resolve, query: str) -> None:
    refused = resolve.refused(query, KEYS)
    assert "has no such model; if it is new, describe it under `models` in the settings" in refused


def test_a_provider_that_lacks_the_model_gives_way_to_the_one_that_has_it(resolve: Resolve) -> None:
    chosen = resolve("anthropic/gpt-4o", KEYS)
    assert chosen.model == "openai/gpt-4o"
    assert chosen.warnings == ["anthropic has no such model: openai/gpt-4o is used"]
    alone = {name: value for name, value in KEYS.items() if name.startswith("ANTHROPIC")}
    assert resolve.refused("anthropic/gpt-4o", alone)


def test_a_server_at_another_address_may_have_any_model(resolve: Resolve) -> None:
    chosen = resolve("anthropic/glm-4.6", KEYS | {"ANTHROPIC_BASE_URL": "https://proxy.example.com"})
    assert chosen.model == "anthropic/glm-4.6"


def test_what_settings_say_of_a_new_model_needs_no_note(resolve: Resolve) -> None:
    chosen = resolve("anthropic/new", KEYS, {"models": {"anthropic/new": {"window": 77, "maxOutput": 7}}})
    assert (chosen.window, chosen.maxOutput, chosen.notes) == (77, 7, [])
    assert resolve("new", KEYS, {"models": {"anthropic/new": {"window": 77}}}).model == "anthropic/new"


def test_another_version_than_the_named_one_is_a_warning(resolve: Resolve) -> None:
    chosen = resolve("claude-sonnet-4-20250514", KEYS)
    assert chosen.id == "claude-sonnet-4-6"
    assert "another version" in chosen.warnings[0]


def test_a_thinking_level_at_the_end_of_a_name(resolve: Resolve) -> None:
    chosen = resolve("openai/gpt-5.5:high", KEYS)
    assert (chosen.model, chosen.thinkingLevel) == ("openai/gpt-5.5", "high")
    assert resolve("haiku:low", KEYS).thinkingLevel == "low"


@pytest.mark.parametrize("query", ["", " ", "nonexistent-model", "local/nothing", "offline/other", "mine/x-y", "/"])
def test_a_name_that_means_nothing_is_an_error_with_the_list(resolve: Resolve, query: str) -> None:
    error = resolve.refused(query, KEYS)
    assert f'Model not found: "{query}"' in error
    assert "Available models:" in error
    assert "  anthropic/claude-sonnet-5-5\n" in error
    assert "  offline/planner" in error


@pytest.mark.parametrize("default", ["anthropic/claude-sonnet-4-5", "anthropic/not-listed"])
def test_the_default_is_among_the_available_models_though_no_server_lists_it(resolve, server, default: str) -> None:
    server.serves("my-model-7b")
    environment = {"ANTHROPIC_API_KEY": "a", "ANTHROPIC_BASE_URL": server.url}
    for variables, values in (({"RETINUE_MODEL": default}, {}), ({}, {"model": default})):
        error = resolve.refused("claude-sonet", environment | variables, values)
        assert f"  {default}\n" in error and "  anthropic/my-model-7b\n" in error


def test_a_provider_without_its_key_is_not_available_and_the_error_says_why(resolve: Resolve) -> None:
    error = resolve.refused("anthropic/claude-opus-4-6", {})
    assert "ANTHROPIC_API_KEY" in error
    for environment, settings in (
        ({"RETINUE_MODEL": "openai/gpt-4o"}, {}),
        ({}, {"model": "openai/gpt-4o"}),
    ):
        error = resolve.refused(None, environment, settings)
        assert "OPENAI_API_KEY" in error
        assert "RETINUE_MODEL" in error or "settings" in error


# ---------------------------------------------------------------- the agent's file
def test_a_files_model_that_is_not_here_gives_way_with_a_warning(resolve: Resolve) -> None:
    chosen = resolve("gemini-2.5-pro", {"GEMINI_API_KEY": "g"}, agent_model="anthropic/claude-opus-4-6")
    assert (chosen.source, chosen.id) == ("call", "gemini-2.5-pro")
    assert chosen.warnings == [
        "the agent's model \"anthropic/claude-opus-4-6\" ('anthropic' has no key: set ANTHROPIC_API_KEY or "
        "ANTHROPIC_AUTH_TOKEN) is not available here; gemini/gemini-2.5-pro is used instead",
    ]
    alone = resolve(None, {}, agent_model="sonnet")
    assert alone.source == "offline"
    assert "sonnet" in alone.warnings[0]


async def test_a_files_fallbacks_are_tried_in_order() -> None:
    environment = {"GEMINI_API_KEY": "g"}
    chosen = await select(None, environment, file_model="pi/smol", fallbacks=["haiku", "flash", "gemini-2.5-pro"])
    assert chosen.source == "file"
    assert chosen.info.id.endswith("flash")
    for written in ("pi/slow, haiku, gemini-2.5-pro", "GPT-4.1 | 'gemini-2.5-pro'"):
        chosen = await select(None, environment, file_model=written)
        assert (chosen.source, chosen.info.id, chosen.warnings) == ("file", "gemini-2.5-pro", ())


def test_the_files_model_wins_without_a_note_when_the_call_agrees(resolve: Resolve) -> None:
    assert resolve("claude-haiku-5-5", KEYS, agent_model="haiku").notes == [
        '"haiku" means anthropic/claude-haiku-5-5 here',
    ]


# ---------------------------------------------------------------- servers
def test_a_server_is_asked_with_its_key_and_its_first_model_is_taken(resolve: Resolve, server: Server) -> None:
    server.serves("one", "two")
    providers = {"mine": {"baseUrl": server.url + "/v1/"}}
    chosen = resolve(None, {}, {"providers": providers})
    assert chosen.model == "mine/one"
    assert server.seen[0] == ("/v1/models", None)
    chosen = resolve(None, {"K": "secret"}, {"providers": {"mine": {"baseUrl": server.url, "apiKeyEnv": "K"}}})
    assert (chosen.source, chosen.id) == ("key", "one")
    assert server.seen[-1] == ("/v1/models", "Bearer secret")


def test_a_listed_model_is_preferred_to_what_the_server_says_first(resolve: Resolve, server: Server) -> None:
    server.serves("one", "two")
    chosen = resolve(None, {}, {"providers": {"mine": {"baseUrl": server.url, "models": ["two"]}}})
    assert chosen.model == "mine/two"


def test_openais_key_with_another_address_asks_that_address(resolve: Resolve, server: Server) -> None:
    environment = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url + "/v1"}
    server.serves("qwen3-coder", "llama")
    assert resolve(None, environment).model == "openai/qwen3-coder"
    server.serves("llama", "gpt-6.1-sol")
    assert resolve(None, environment).model == "openai/gpt-6.1-sol"
    server.status = 404
    assert resolve(None, environment).model == "openai/gpt-6.1-sol"


@pytest.mark.parametrize("answer", [b"", b"{", b"[]", b'{"data": 7}', b'{"data": [7, {}, {"id": 3}]}', b"\xff" * 50])
def test_an_answer_that_makes_no_sense_is_no_answer(resolve: Resolve, server: Server, answer: bytes) -> None:
    server.answer = answer
    chosen = resolve(None, {}, {"providers": {"mine": {"baseUrl": server.url}}})
    assert chosen.source == "offline"


def test_servers_that_refuse_or_hang_are_left_after_a_moment(resolve: Resolve, server: Server) -> None:
    server.serves("alive")
    silent = ThreadingHTTPServer(("127.0.0.1", 0), Handler)  # listens and never answers
    with silent:
        providers = {
            "refuses": {"baseUrl": "http://127.0.0.1:1"},
            "hangs": {"baseUrl": f"http://127.0.0.1:{silent.server_address[1]}"},
            "broken": {"baseUrl": "not a url"},
            "alive": {"baseUrl": server.url},
        }
        chosen = resolve(None, {}, {"providers": providers})
    assert chosen.model == "alive/alive"


async def test_a_named_model_never_asks_a_server(server: Server) -> None:
    providers = {"mine": {"baseUrl": server.url}}
    await select("mine/x", {}, {"providers": providers})
    await select(None, {"ANTHROPIC_API_KEY": "k"}, {"providers": providers})
    assert server.seen == []


def test_a_provider_called_local_is_the_users(resolve: Resolve) -> None:
    chosen = resolve("local/x", {}, {"providers": {"Local": {"baseUrl": "http://localhost:9"}}})
    assert (chosen.api, chosen.model) == ("openai", "local/x")


# ---------------------------------------------------------------- building
@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("anthropic/claude-haiku-4-5", "AnthropicModel"),
        ("openai/gpt-4o", "OpenAIChatModel"),
        ("openai-responses/gpt-5.5", "OpenAIResponsesModel"),
        ("gemini/gemini-2.5-pro", "GeminiModel"),
        ("ollama/x", "OpenAIChatModel"),
    ],
)
async def test_a_selection_becomes_the_model_of_its_wire_format(query: str, kind: str) -> None:
    once = await select(query, KEYS, {"retry_enabled": False})
    transport = Transport()
    assert once.attempts == 1
    assert type(build_model(once, transport)).__name__ == kind
    again = await select(query, KEYS, {"retry_max_attempts": 3})
    model = build_model(again, transport)
    assert (again.attempts, type(model).__name__, model.info) == (3, "RetryingModel", again.info)


@pytest.mark.parametrize(
    ("name", "level", "said"),
    [
        ("xai/grok-build-0.1", "high", True),
        ("xai/grok-build-0.1", "off", True),
        ("xai/grok-4.7", "off", False),
        ("anthropic/claude-sonnet-4-5", "high", False),
        ("gemini/gemini-2.5-pro", "high", False),
        ("deepseek/deepseek-reasoner", "high", True),
        ("moonshot/kimi-k2.6", "off", False),
    ],
)
async def test_a_level_that_a_model_does_not_take_is_said(name: str, level: str, said: bool) -> None:
    keys = dict.fromkeys(
        ("XAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "DEEPSEEK_API_KEY", "MOONSHOT_API_KEY"), "k"
    )
    chosen = await select_model(name, settings=Settings({}), environment=keys)
    note = unsent_level(chosen, level)
    assert bool(note) is said, (chosen.info, note)
