"""A model behind an address, without a run: to try a server, and to see the requests to it.

    async with ProviderModel("openai", "http://localhost:8000/v1", id="my-model") as model:
        run = await drive(model, "Hello")

It is built as a run builds it. Failures are not repeated, so that a test sees each of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Self, cast

from retinue.http.transport import Transport
from retinue.models.presets import BUILT_IN, PRESETS, Api
from retinue.models.protocol import Model, ModelInfo, ModelRequest, Part
from retinue.models.providers import Provider, Providers
from retinue.models.select import ModelSelection, build_model
from retinue.models.wire import WireModel
from retinue.settings.table import Settings


class ProviderModel:
    """`api` is the wire format: anthropic, openai, openai-responses or gemini. `provider` is the name under which the
    model is known, where it is another one; `quirks` are those of the settings. Further names describe the model as
    `ModelInfo` does. Close it, or use it with `async with`: it holds connections."""

    def __init__(
        self,
        api: Api,
        url: str,
        *,
        id: str = "model",
        provider: str | None = None,
        key: str | None = None,
        key_variable: str | None = None,
        headers: Mapping[str, str] | None = None,
        quirks: Mapping[str, Any] | None = None,
        idle_seconds: float | None = None,
        **info: Any,
    ) -> None:
        server = Provider(
            id=provider or api,
            api=api,
            base_url=url,
            api_key=key or "",
            headers=headers or {},
            quirks=quirks or {},
            key_variable=key_variable,
        )
        self._build(server, ModelInfo(server.id, id, **info), idle_seconds)

    @classmethod
    def known(cls, provider: str, url: str, *, id: str, api_by_model: bool = False, **info: Any) -> Self:
        """Return a model of a provider that Retinue knows, such as mistral, with its wire format and quirks, but at
        `url`. With `api_by_model` the model decides between the two formats of OpenAI, as it does at OpenAI."""
        preset = BUILT_IN.get(provider) or PRESETS[provider]
        environment = dict.fromkeys(preset.keys, "key-1234567")
        if preset.urls:
            environment[preset.urls[0]] = url
        entry = {} if preset.urls else {"baseUrl": url}
        server = Providers(Settings({"providers": {provider: entry}}), environment).get(provider)
        if server is None or server.problem is not None:
            raise LookupError(f"{provider} cannot be used here: {server and server.problem}")
        model = cls.__new__(cls)
        model._build(server._replace(base_url=url, api_by_model=api_by_model), ModelInfo(provider, id, **info), None)
        return model

    def _build(self, server: Provider, info: ModelInfo, idle_seconds: float | None) -> None:
        self._transport = Transport() if idle_seconds is None else Transport(idle_timeout=idle_seconds)
        chosen = ModelSelection(info, server, "call", "The test chose it.", attempts=1)
        self._model: Model = build_model(chosen, self._transport)

    @property
    def info(self) -> ModelInfo:
        return self._model.info

    def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        return self._model.stream(request)

    def body(self, request: ModelRequest) -> dict[str, Any]:
        """Return the body of the request, as the server reads it."""
        return cast("WireModel", self._model).body(request)

    async def close(self) -> None:
        await self._model.close()
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
