"""The methods of the Agent Client Protocol, version 1, and the sessions of one client.

What a session needs is imported when the first one is opened: `initialize` is answered before that.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.core.version import __version__
from retinue.faces.acp.pipes import LinePipes, take_standard_streams
from retinue.faces.acp.rpc import (
    AUTHENTICATION_REQUIRED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    NOT_FOUND,
    UNKNOWN_METHOD,
    Id,
    RpcConnection,
    RpcError,
)
from retinue.faces.acp.updates import ClientFeatures

if TYPE_CHECKING:
    from retinue.faces.acp.session import AcpSession

VERSION = 1
MOST_SESSIONS = 64
SETUP = "setup"
MODELS = "models"
_CAPABILITIES = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": True},
    "sessionCapabilities": {"list": {}, "delete": {}, "additionalDirectories": {}, "resume": {}, "close": {}},
}

Params = Mapping[str, Any]
Result = dict[str, Any]


class EditorAgent:
    """What an editor may ask for. `connection` is set before the first request comes."""

    connection: RpcConnection

    def __init__(self) -> None:
        self._features: ClientFeatures | None = None
        self._sessions: dict[str, AcpSession] = {}
        self._prompts: dict[Id, AcpSession] = {}
        self._opening = 0
        self._methods: dict[str, Callable[[Params], Awaitable[Result]]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new_session,
            "session/load": self._load_session,
            "session/resume": self._resume_session,
            "session/list": self._list_sessions,
            "session/close": self._close_session,
            "session/delete": self._delete_session,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
        }

    async def request(self, method: str, params: Params, request_id: Id) -> Result:
        if method not in self._methods and method != "session/prompt":
            raise RpcError(UNKNOWN_METHOD, f"There is no method '{method}'.")
        if self._features is None and method != "initialize":
            raise RpcError(INVALID_REQUEST, "The first request must be `initialize`.")
        if method == "session/prompt":
            return await self._prompt(params, request_id)
        return await self._methods[method](params)

    async def notification(self, method: str, params: Params) -> None:
        if method == "session/cancel":
            await self._cancel(params)
        elif method == "$/cancel_request":
            request_id = params.get("requestId")
            if not isinstance(request_id, (str, int)):
                return
            session = self._prompts.get(request_id)
            if session is not None:
                await session.cancel()
            else:
                self.connection.withdraw(request_id)
        elif not method.startswith("$/"):
            raise RpcError(UNKNOWN_METHOD, f"There is no notification '{method}'.")

    async def close(self) -> None:
        """Stop everything that works in this process."""
        sessions, self._sessions = list(self._sessions.values()), {}
        for result in await asyncio.gather(*(session.close() for session in sessions), return_exceptions=True):
            if isinstance(result, Exception):
                sys.stderr.write(f"retinue acp: {result}\n")

    # The connection

    async def _initialize(self, params: Params) -> Result:
        version = params.get("protocolVersion")
        if type(version) is not int:
            raise RpcError(INVALID_PARAMS, "`protocolVersion` must be a whole number.")
        told = params.get("clientCapabilities")
        self._features = ClientFeatures.read(told if isinstance(told, dict) else {})
        return {
            "protocolVersion": VERSION,
            "agentCapabilities": _CAPABILITIES,
            "agentInfo": {"name": "retinue", "title": "Retinue", "version": __version__},
            "authMethods": self._ways_to_a_model(),
        }

    def _ways_to_a_model(self) -> list[Result]:
        about = "Retinue asks for a key or finds a local server. In a terminal: retinue models add"
        ways: list[Result] = [{"id": MODELS, "name": "Use the model that is set up", "description": about}]
        if self._features is not None and self._features.terminal_login:
            way = {"type": "terminal", "id": SETUP, "name": "Set up a model", "description": about, "args": ["--setup"]}
            ways.insert(0, way)
        return ways

    async def _authenticate(self, params: Params) -> Result:
        """Say whether there is a model to work with. Keys are never asked for here."""
        if params.get("methodId") != MODELS:
            raise RpcError(INVALID_PARAMS, f"There is no such method: {MODELS}.")
        from retinue.errors import RetinueError
        from retinue.guard.trust import settings_in_effect
        from retinue.models.keys import environment
        from retinue.models.select import select_model

        try:
            settings = settings_in_effect(Path.cwd(), environment()).settings
            found = await select_model(settings=settings, environment=environment())
        except RetinueError as error:
            raise RpcError(AUTHENTICATION_REQUIRED, str(error)) from error
        if found.source == "offline":
            raise RpcError(AUTHENTICATION_REQUIRED, "No model is set up. In a terminal: retinue models add")
        return {}

    # Sessions

    async def _new_session(self, params: Params) -> Result:
        from retinue.core.delegation import new_run_id
        from retinue.faces.acp.sessions import read_cwd

        session = await self._open(new_run_id(), read_cwd(params), None, params)
        described = await session.describe()
        asyncio.get_running_loop().call_soon(session.tell_commands)
        return {"sessionId": session.id, **described}

    async def _load_session(self, params: Params) -> Result:
        return await self._take_up(params, tells=True)

    async def _resume_session(self, params: Params) -> Result:
        return await self._take_up(params, tells=False)

    async def _take_up(self, params: Params, *, tells: bool) -> Result:
        from retinue.faces.acp.sessions import find_conversation, read_cwd

        session_id, cwd = self._session_id(params), read_cwd(params)
        session = self._sessions.get(session_id)
        if session is None:
            folder, row = await asyncio.to_thread(find_conversation, session_id, cwd)
            session = await self._open(row.id, Path(row.cwd), folder, params)
        elif not session.has_run:
            raise RpcError(NOT_FOUND, f"Nothing was said in the session '{session_id}' yet.")
        await session.load(tells=tells)
        described = await session.describe()
        asyncio.get_running_loop().call_soon(session.tell_commands)
        return described

    async def _open(self, session_id: str, cwd: Path, folder: Path | None, params: Params) -> AcpSession:
        from retinue.app.feed import Feed
        from retinue.faces.acp.session import AcpSession
        from retinue.faces.acp.sessions import session_settings

        if len(self._sessions) + self._opening >= MOST_SESSIONS:
            raise RpcError(INVALID_REQUEST, f"{MOST_SESSIONS} sessions are open. Close one with session/close.")
        feed = Feed(cwd, folder, settings=session_settings(params))
        session = AcpSession(session_id, feed, self.connection, self._features or ClientFeatures())
        self._opening += 1
        try:
            await session.open()
        except BaseException:
            await session.close()
            raise
        finally:
            self._opening -= 1
        self._sessions[session_id] = session
        return session

    async def _list_sessions(self, params: Params) -> Result:
        from retinue.faces.acp.sessions import list_conversations

        cwd, cursor = params.get("cwd"), params.get("cursor")
        if not isinstance(cwd, (str, type(None))) or not isinstance(cursor, (str, type(None))):
            raise RpcError(INVALID_PARAMS, "`cwd` and `cursor` must be texts.")
        return await asyncio.to_thread(list_conversations, cwd, cursor)

    async def _close_session(self, params: Params) -> Result:
        session = self._session(params)
        del self._sessions[session.id]
        await session.close()
        return {}

    async def _delete_session(self, params: Params) -> Result:
        from retinue.core.delegation import LIVE
        from retinue.faces.acp.sessions import find_conversation, hide_conversation

        session_id = self._session_id(params)
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await session.close()
            if not session.has_run:
                return {}
        folder, row = await asyncio.to_thread(find_conversation, session_id, None)
        if row.state in LIVE:
            raise RpcError(INVALID_REQUEST, f"It works in another process. Stop it with: retinue runs stop {row.id}")
        await asyncio.to_thread(hide_conversation, folder, row.id)
        return {}

    async def _set_mode(self, params: Params) -> Result:
        await self._session(params).set_mode(params.get("modeId"))
        return {}

    async def _set_option(self, params: Params) -> Result:
        options = await self._session(params).set_option(params.get("configId"), params.get("value"))
        return {"configOptions": options}

    async def _prompt(self, params: Params, request_id: Id) -> Result:
        session, blocks = self._session(params), params.get("prompt")
        if not isinstance(blocks, list):
            raise RpcError(INVALID_PARAMS, "`prompt` must be a list of content blocks.")
        self._prompts[request_id] = session
        try:
            return {"stopReason": await session.prompt(blocks)}
        finally:
            self._prompts.pop(request_id, None)

    async def _cancel(self, params: Params) -> None:
        session_id = self._session_id(params)
        session = self._sessions.get(session_id)
        if session is not None:
            await session.cancel()
            return
        for above in self._sessions.values():
            if session_id in above.story.runs:
                await above.cancel_child(session_id)

    def _session(self, params: Params) -> AcpSession:
        session_id = self._session_id(params)
        session = self._sessions.get(session_id)
        if session is None:
            raise RpcError(NOT_FOUND, f"No session '{session_id}' is open. Open it with session/load.")
        return session

    def _session_id(self, params: Params) -> str:
        session_id = params.get("sessionId")
        if not isinstance(session_id, str) or not session_id:
            raise RpcError(INVALID_PARAMS, "`sessionId` must be a text.")
        return session_id


async def serve_editor() -> None:
    """Serve one client on standard input and output until it leaves or a signal comes. Then everything that works in
    this process is stopped."""
    reading, writing = take_standard_streams()
    agent = EditorAgent()
    ended = asyncio.Event()
    pipes = LinePipes(reading, writing, closed=ended.set)
    agent.connection = RpcConnection(pipes, agent)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Windows has no handlers in event loops: KeyboardInterrupt ends the program there.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, ended.set)
    pipes.start()
    serving = asyncio.create_task(agent.connection.serve())
    leaving = asyncio.create_task(ended.wait())
    try:
        await asyncio.wait({serving, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        serving.cancel()
        leaving.cancel()
        await agent.close()
        pipes.end()
