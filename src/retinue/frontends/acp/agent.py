"""The connection of one client that speaks the Agent Client Protocol, version 1: its beginning, its requests, its end.

Modules for sessions are imported with the first session request, after `initialize` has been answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from retinue.app.process import claim_standard_streams, on_end
from retinue.core.version import __version__
from retinue.frontends.acp.pipes import LinePipes
from retinue.frontends.acp.rpc import INVALID_PARAMS, INVALID_REQUEST, UNKNOWN_METHOD, Id, RpcConnection, RpcError
from retinue.frontends.acp.updates import MODELS_METHOD, ClientFeatures

if TYPE_CHECKING:
    from retinue.frontends.acp.sessions import EditorSessions

PROTOCOL_VERSION = 1
SETUP_METHOD = "setup"
_CAPABILITIES = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": True},
    "sessionCapabilities": {"list": {}, "delete": {}, "additionalDirectories": {}, "resume": {}, "close": {}},
}
_SESSION_METHODS = frozenset(
    "authenticate session/new session/load session/resume session/list session/close session/delete session/set_mode "
    "session/set_config_option session/prompt".split()
)


class EditorAgent:
    """Handles the requests of an editor. `connection` is set before the first request arrives."""

    connection: RpcConnection

    def __init__(self) -> None:
        self._features: ClientFeatures | None = None

    @cached_property
    def _sessions(self) -> EditorSessions:
        from retinue.frontends.acp.sessions import EditorSessions

        return EditorSessions(self.connection, self._features or ClientFeatures())

    async def request(self, method: str, params: Mapping[str, Any], request_id: Id) -> Mapping[str, Any]:
        if method == "initialize":
            return self._initialize(params)
        if method not in _SESSION_METHODS:
            raise RpcError(UNKNOWN_METHOD, f"There is no method '{method}'.")
        if self._features is None:
            raise RpcError(INVALID_REQUEST, "The first request must be `initialize`.")
        return await self._sessions.request(method, params, request_id)

    async def notification(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "session/cancel":
            await self._sessions.cancel(params)
        elif method == "$/cancel_request":
            request_id = params.get("requestId")
            if isinstance(request_id, (str, int)) and not await self._sessions.cancel_prompt(request_id):
                self.connection.cancel_request(request_id)
        elif not method.startswith("$/"):
            raise RpcError(UNKNOWN_METHOD, f"There is no notification '{method}'.")

    async def close(self) -> None:
        """Stop everything that runs in this process."""
        if "_sessions" in self.__dict__:
            await self._sessions.close()

    def _initialize(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        version = params.get("protocolVersion")
        if type(version) is not int:
            raise RpcError(INVALID_PARAMS, "`protocolVersion` must be a whole number.")
        capabilities = params.get("clientCapabilities")
        self._features = ClientFeatures.read(capabilities if isinstance(capabilities, dict) else {})
        about = "Retinue asks for a key or finds a local server. In a terminal: retinue models add"
        ways: list[Mapping[str, Any]] = [
            {"id": MODELS_METHOD, "name": "Use the model that is set up", "description": about}
        ]
        if self._features.terminal_login:
            way = {
                "type": "terminal",
                "id": SETUP_METHOD,
                "name": "Set up a model",
                "description": about,
                "args": ["--setup"],
            }
            ways.insert(0, way)
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentCapabilities": _CAPABILITIES,
            "agentInfo": {"name": "retinue", "title": "Retinue", "version": __version__},
            "authMethods": ways,
        }


async def serve_editor() -> None:
    """Serve one client on standard input and output until it disconnects or a signal arrives. Then stop everything that
    runs in this process."""
    reading, writing = claim_standard_streams()
    agent = EditorAgent()
    ended = asyncio.Event()
    pipes = LinePipes(reading, writing, closed=ended.set)
    agent.connection = RpcConnection(pipes, agent)
    pipes.start()
    serving = asyncio.create_task(agent.connection.serve())
    leaving = asyncio.create_task(ended.wait())
    with on_end(ended.set):
        try:
            await asyncio.wait({serving, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            serving.cancel()
            leaving.cancel()
            await agent.close()
            pipes.end()
