"""Builds the model of a selection, with its fallbacks. Only this module knows the model classes.

The fallbacks are the models that the agent's file names in `fallback_models` after the chosen one, then those of the
setting `fallbackModels`. A fallback takes over when the retries of the model before it are used up (overload, errors,
no connection), and at once if retries cannot help: after a refusal, at a spend limit, for a model that does not exist.
It is used for the rest of the run, and the change is reported. The wire formats translate the thinking and call ids of
the earlier model. A wrong key, an invalid request and a full window remain failures, because another model would not
help. The caller may veto a change: then the next fallback is asked, or the failure remains.

A program may also use its own model objects, such as a `ScriptedModel` in a test.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from retinue.core.events import Retrying, TextDelta
from retinue.core.messages import AssistantMessage
from retinue.core.outcome import Failure, FailureKind
from retinue.errors import UsageError
from retinue.models.presets import Api
from retinue.models.protocol import Finished, Model, ModelInfo, ModelRequest, Noted, Part

if TYPE_CHECKING:
    from retinue.http.transport import Transport
    from retinue.models.protocol import Model
    from retinue.models.retry import RequestGate
    from retinue.models.select import ModelSelection


_MODEL_CLASSES: dict[Api, tuple[str, str]] = {
    "anthropic": ("retinue.models.anthropic", "AnthropicModel"),
    "openai": ("retinue.models.openai_chat", "OpenAIChatModel"),
    "openai-responses": ("retinue.models.openai_responses", "OpenAIResponsesModel"),
    "gemini": ("retinue.models.gemini", "GeminiModel"),
}


GateFor = Callable[["ModelSelection"], "RequestGate | None"]


def build_model(selection: ModelSelection, transport: Transport, *, gate_for: GateFor | None = None) -> Model:
    """Return the model of a selection. A model over HTTP retries requests that failed for a temporary reason, each
    attempt through its gate (a limiter that many runs share), and then its fallbacks take over. Opens no connection.
    Raise ConfigurationError for unknown quirks."""
    if not selection.fallbacks:
        return _single(selection, transport, gate_for)

    chain = [selection, *selection.fallbacks]
    hurried = [model._replace(attempts=min(model.attempts, ATTEMPTS_BEFORE_FALLBACK)) for model in chain[:-1]]
    others = [partial(_single, model, transport, gate_for) for model in (*hurried[1:], chain[-1])]
    return Fallback(_single(hurried[0], transport, gate_for), others)


def _single(selection: ModelSelection, transport: Transport, gate_for: GateFor | None) -> Model:
    provider, info = selection.provider, selection.info
    if selection.model is not None:
        return selection.model
    # A server of the user may have such a name as well.
    embedded = provider.id if provider.api == "embedded" else None
    if embedded == "offline":
        from retinue.models.offline.planner import OfflineModel

        return OfflineModel()
    if embedded == "pydantic-ai":
        from retinue.models.bridge import PydanticAIModel

        model: Model = PydanticAIModel(info, info.id)
    else:
        model = _build_wired(selection, transport)
    gate = None if gate_for is None else gate_for(selection)
    if selection.attempts == 1 and gate is None:
        return model
    from retinue.models.retry import RetryingModel, RetryPolicy

    return RetryingModel(model, RetryPolicy(attempts=selection.attempts), gate=gate)


@cache
def _class_for(api: Api) -> Callable[..., Model]:
    module, name = _MODEL_CLASSES[api]
    return cast("Callable[..., Model]", getattr(importlib.import_module(module), name))


def _build_wired(selection: ModelSelection, transport: Transport) -> Model:
    provider, info = selection.provider, selection.info
    make = _class_for(provider.api_for(info.id))
    quirks: dict[str, Any] = dict(provider.quirks)
    if provider.query:
        quirks["query"] = {**provider.query, **quirks.get("query", {})}
    return make(
        info,
        provider.url_for(info.id),
        provider.api_key or None,
        transport,
        headers=provider.headers,
        quirks=quirks,
        key_variable=provider.key_variable,
        helper=provider.helper,
    )


FALLBACK_KINDS: frozenset[FailureKind] = frozenset(
    {"overloaded", "rate_limit", "server", "dropped", "timeout", "malformed", "refused", "quota", "not_found"}
)
ATTEMPTS_BEFORE_FALLBACK = 4
"""The attempts with a model that has a fallback: they take seconds, not minutes."""


BeforeSwitch = Callable[[str, str], Awaitable[str | None]]
"""Called with the full names of the old and the new model. Returns why the change is refused, or None."""
AfterSwitch = Callable[[str, str], Awaitable[None]]


class Fallback:
    """A model with its fallbacks, which are built when they are needed. The caller that runs the model sets
    `before_switch` and `after_switch`."""

    before_switch: BeforeSwitch | None = None
    after_switch: AfterSwitch | None = None

    def __init__(self, first: Model, others: Sequence[Callable[[], Model]]) -> None:
        self._model = first
        self._others = list(others)
        self._used = [first]

    @property
    def info(self) -> ModelInfo:
        """The model that is asked now."""
        return self._model.info

    async def close(self) -> None:
        for model in self._used:
            await model.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        while True:
            shown: list[str] = []
            message: AssistantMessage | None = None
            async with aclosing(self._model.stream(_fitting(request, self.info))) as parts:
                async for event in parts:
                    if isinstance(event, Finished):
                        message = event.message
                        break
                    if isinstance(event, TextDelta):
                        shown.append(event.text)
                    elif isinstance(event, Retrying):
                        shown.clear()
                    yield event
            failure = None if message is None else message.failure
            passing = failure is not None and failure.kind in FALLBACK_KINDS
            if message is not None and (not passing or not self._others):
                yield Finished(message)
                return
            failure = failure or Failure("dropped", f"The stream of {self.info.full_name} ended without an end.")
            before = self.info.full_name
            refusals: list[str] = []
            switched = await self._switch(refusals)
            for refusal in refusals:
                yield Noted("model-fallback", refusal)
            if not switched:
                failed = message or AssistantMessage((), "error", model=before, failure=failure)
                yield Finished(failed)
                return
            yield Retrying(0, 0.0, failure, partial="".join(shown))
            yield Noted("model-fallback", f"{self.info.full_name} took over from {before}: {failure.message}")
            if self.after_switch is not None:
                await self.after_switch(before, self.info.full_name)

    async def _switch(self, refusals: list[str]) -> bool:
        """Switch to the next model that is not refused. Return False if there is none."""
        before = self.info.full_name
        while self._others:
            model = self._others.pop(0)()
            self._used.append(model)
            name = model.info.full_name
            why = None if self.before_switch is None else await self.before_switch(before, name)
            if why is None:
                self._model = model
                return True
            refusals.append(f"{name} may not take over from {before}: {why}")
        return False


def _fitting(request: ModelRequest, info: ModelInfo) -> ModelRequest:
    """Return the request within the output limit of the model that is asked."""
    if request.max_output is None or request.max_output <= info.max_output:
        return request
    return replace(request, max_output=info.max_output)


class ProgramModel:
    """A model object of the program, under a unique name. Runs share it, so the end of a run does not close it."""

    def __init__(self, model: Model, info: ModelInfo) -> None:
        self.inner = model
        self.info = info

    def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        return self.inner.stream(request)

    async def close(self) -> None:
        """Do nothing: the program closes its own objects."""


class ProgramModels:
    """The model objects of one project, by full name. A run uses `default`, if it is set, unless a person chose another
    model: even if the agent's file names one, so that a test reaches no provider."""

    def __init__(self) -> None:
        self._models: dict[str, ProgramModel] = {}
        self.default: str | None = None

    def add(self, model: Any) -> str:
        """Return the name under which `model` is known from now on. Raise UsageError for an object that is no model."""
        info = getattr(model, "info", None)
        if not isinstance(info, ModelInfo) or not callable(getattr(model, "stream", None)):
            raise UsageError(
                f"{type(model).__name__} is no model.",
                remedy="Give the name of a model, or an object with `info` (a ModelInfo) and `stream`.",
            )
        for name, existing in self._models.items():
            if existing.inner is model:
                return name
        number, id = 2, info.id
        while f"{info.provider}/{id}" in self._models:
            id = f"{info.id}-{number}"
            number += 1
        program_model = ProgramModel(model, replace(info, id=id))
        self._models[program_model.info.full_name] = program_model
        return program_model.info.full_name

    def get(self, name: str) -> ProgramModel | None:
        return self._models.get(name.strip())


NO_MODELS = ProgramModels()
