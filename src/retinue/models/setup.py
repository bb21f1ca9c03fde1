"""Setting up a provider: check its key or address with one small request, store it, and choose the default model.

`retinue models add` and the app's welcome both use this. Nothing is stored if the request fails. Keys go to the keyring
or a private file (`keys.py`), addresses and the default model to the user's own settings. Nothing is written into a
project.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from retinue.core.messages import Text, UserMessage
from retinue.core.outcome import Failure, FailureKind
from retinue.errors import ConfigurationError, RetinueError, UsageError
from retinue.http.address import display_url, normal_url
from retinue.http.transport import Transport
from retinue.models.build import build_model
from retinue.models.inventory import default_of
from retinue.models.keys import store_key
from retinue.models.presets import BUILT_IN, OTHER_NAMES, PRESETS, Preset
from retinue.models.protocol import Finished, ModelRequest
from retinue.models.providers import Provider, ProviderMaker, Providers
from retinue.models.resolve import ModelSelection
from retinue.settings.field import Origin
from retinue.settings.foreign import read_object
from retinue.settings.load import SETTINGS_FILE
from retinue.settings.places import private_folder, retinue_home
from retinue.settings.table import Settings
from retinue.settings.write import save_settings

FIRST_STEPS = """\
Any one of these is enough:
  retinue models add                      choose a provider and enter its key: it is checked and kept for you
  export ANTHROPIC_API_KEY=…              or OPENAI_API_KEY, GEMINI_API_KEY, OPENROUTER_API_KEY, GROQ_API_KEY, …
  retinue models add openrouter           one key for the models of all makers
  ollama serve                            Ollama, LM Studio, vLLM and llama.cpp on this machine are found by themselves
  retinue models add NAME --url ADDRESS   any server that speaks OpenAI's API, with or without a key
Then: retinue models test · retinue models default NAME · retinue -p "Say hello"
"""

KEY_PAGES = {
    "anthropic": "console.anthropic.com/settings/keys",
    "openai": "platform.openai.com/api-keys",
    "gemini": "aistudio.google.com/apikey",
    "openrouter": "openrouter.ai/keys",
    "groq": "console.groq.com/keys",
    "mistral": "console.mistral.ai/api-keys",
    "deepseek": "platform.deepseek.com/api_keys",
    "xai": "console.x.ai",
    "together": "api.together.ai/settings/api-keys",
    "fireworks": "app.fireworks.ai/settings/users/api-keys",
    "moonshot": "platform.moonshot.ai/console/api-keys",
    "zai": "z.ai/manage-apikey/apikey-list",
    "qwen": "bailian.console.alibabacloud.com",
    "minimax": "platform.minimax.io",
    "cerebras": "cloud.cerebras.ai",
}
"""The pages where providers issue keys, in the order of the menu."""
TEST_PROMPT = "Reply with the single word: ok"
_NO_MODEL_FILE = "without-model"
MAX_TEST_TOKENS = 200
"""Some models think before they answer."""


class CheckError(ConfigurationError):
    """A provider or a model did not answer as it should."""

    code = "MODEL_CHECK"


class TestFailure(Struct, frozen=True):
    """Why a model did not answer."""

    kind: FailureKind
    message: str
    remedy: str


class TestedModel(Struct, frozen=True, kw_only=True):
    """The result of one small request to a model."""

    model: str
    ok: bool
    text: str
    seconds: float
    failure: TestFailure | None


class AddedProvider(NamedTuple):
    """`key_place` says where the key is stored, and is empty without a key. `test` is None if the model was not
    asked."""

    provider: Provider
    model: str
    key_place: str = ""
    test: TestedModel | None = None


def provider_name(name: str) -> str:
    """Return the id under which Retinue knows a provider."""
    key = name.strip().lower()
    return OTHER_NAMES.get(key, key)


def preset_of(name: str) -> Preset | None:
    return BUILT_IN.get(name) or PRESETS.get(name)


async def try_model(selection: ModelSelection, transport: Transport) -> TestedModel:
    """Ask a model for one word, once."""
    model = build_model(selection._replace(attempts=1, fallbacks=()), transport)
    message = UserMessage((Text(TEST_PROMPT),))
    request = ModelRequest(system="You answer with one word.", messages=(message,), max_output=MAX_TEST_TOKENS)
    began = time.monotonic()
    text = ""
    failure: Failure | None = Failure("dropped", f"{selection.info.full_name} sent no answer.")
    try:
        async for event in model.stream(request):
            if isinstance(event, Finished):
                text = event.message.text.strip()
                failure = event.message.failure
                break
    finally:
        await model.close()
    seconds = time.monotonic() - began
    problem = None if failure is None else TestFailure(failure.kind, failure.message, failure.remedy)
    return TestedModel(model=selection.info.full_name, ok=failure is None, text=text, seconds=seconds, failure=problem)


async def add_provider(
    name: str,
    *,
    key: str = "",
    url: str = "",
    model: str = "",
    check: bool = True,
    settings: Settings,
    environment: Mapping[str, str],
    transport: Transport | None = None,
) -> AddedProvider:
    """Check a key or an address, and store it. Raise CheckError if the check fails, and UsageError if something is
    missing or wrong. Then nothing is stored."""
    provider = _candidate(name, key, url, settings, environment)
    own = Transport() if transport is None else transport
    try:
        selection = await _model_of(provider, model, settings, environment, own)
        test = None
        if check:
            test = await try_model(selection, own)
            if test.failure is not None:
                # The remedy of a refused key names a variable, but this key was typed.
                refused = test.failure.kind == "authentication"
                remedy = "Check the key, and enter it again." if refused else test.failure.remedy
                raise CheckError(test.failure.message, remedy=f"Nothing was kept. {remedy}")
    finally:
        if transport is None:
            await own.close()
    if url:
        _keep_address(provider.id, url, environment)
    key_place = store_key(provider.id, key, provider.base_url, environment) if key else ""
    return AddedProvider(provider, selection.info.full_name, key_place, test)


def _candidate(name: str, key: str, url: str, settings: Settings, environment: Mapping[str, str]) -> Provider:
    """Return the provider as it will be with the new key and address."""
    provider_id = provider_name(name)
    preset = preset_of(provider_id)
    described = dict(Providers(settings, environment).described.get(provider_id, (provider_id, {}))[1])
    if preset is None and not url and not described.get("baseUrl"):
        raise UsageError(
            f"There is no provider '{name}'.",
            remedy=f"Known: {', '.join([*KEY_PAGES, *_local_names()])}. For another server add --url ADDRESS.",
        )
    if "/" in provider_id or not provider_id:
        raise UsageError(f"'{name}' cannot be the name of a provider.", remedy="Use a word, such as my-server.")
    if url:
        described["baseUrl"] = url
    provider = ProviderMaker(
        provider_id, preset or Preset("openai", "", needs_key=False), described, Origin("user"), environment
    ).make()
    if url and normal_url(provider.api, url) != provider.base_url and preset is not None and preset.urls:
        names = " or ".join(preset.urls)
        raise UsageError(f"{names} is set and comes before --url.", remedy=f"Unset it first: unset {preset.urls[0]}")
    if key:
        provider = provider._replace(api_key=key, key_source="the key that was entered", helper=None, problem=None)
    if provider.problem is not None:
        raise UsageError(f"{provider.problem[0].upper()}{provider.problem[1:]}.", remedy="Or give it here, see --help.")
    return provider


def _local_names() -> list[str]:
    return [name for name, preset in PRESETS.items() if not preset.needs_key]


async def _model_of(
    provider: Provider, model: str, settings: Settings, environment: Mapping[str, str], transport: Transport
) -> ModelSelection:
    providers = Providers(settings, environment)
    if model:
        info = providers.info(provider, model.removeprefix(f"{provider.id}/"))
    else:
        default = await default_of(providers, provider, transport)
        if default is None:
            raise CheckError(
                f"'{provider.id}' does not say which models it has at {display_url(provider.base_url)}.",
                remedy="Check that it runs and that the address is right, or name a model: --model ID",
            )
        info = default
    return ModelSelection(info, provider, "call", "it is being set up")


def _keep_address(name: str, url: str, environment: Mapping[str, str]) -> None:
    entries = own_providers(environment)
    entry = entries.get(name)
    entries[name] = {**(entry if isinstance(entry, dict) else {}), "baseUrl": url}
    _save({"providers": entries}, environment)


def forget_address(name: str, environment: Mapping[str, str]) -> bool:
    """Remove a provider from the user's own settings. Return False when it is not there."""
    entries = own_providers(environment)
    if entries.pop(name, None) is None:
        return False
    _save({"providers": entries or None}, environment)
    return True


def own_providers(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the entries of the user's own settings file."""
    written = read_object(retinue_home(environment) / SETTINGS_FILE, exact=True).data.get("providers")
    if isinstance(written, dict):
        return dict(written)
    return {}


def make_default(model: str, environment: Mapping[str, str]) -> Path:
    """Write the user's setting `model`, and return the file."""
    return _save({"model": model}, environment)


def forget_default(provider: str, environment: Mapping[str, str]) -> str | None:
    """Remove the user's setting `model` if it names a model of this provider, and return that name."""
    written = read_object(retinue_home(environment) / SETTINGS_FILE, exact=True).data.get("model")
    if not isinstance(written, str) or not written.startswith(f"{provider}/"):
        return None
    _save({"model": None}, environment)
    return written


def go_without_model(environment: Mapping[str, str]) -> None:
    """Remember that the user chose the planner, so that the app does not ask again at every start. A model that is
    available later is used anyway."""
    with contextlib.suppress(OSError):
        (private_folder(retinue_home(environment)) / _NO_MODEL_FILE).touch(mode=0o600)


def is_without_model(environment: Mapping[str, str]) -> bool:
    return (retinue_home(environment) / _NO_MODEL_FILE).exists()


def _save(changes: Mapping[str, Any], environment: Mapping[str, str]) -> Path:
    saved = save_settings(changes, cwd=Path.cwd(), target="user", environment=environment)
    if not saved.persisted:
        raise RetinueError(saved.problem or "The settings cannot be written.", remedy="Correct that, and try again.")
    return saved.path
