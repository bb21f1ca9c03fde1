"""Calls of other programs over the event bus: ping, spawn, stop.

A request is an event `subagents:rpc:<method>` with a `requestId` chosen by the caller. The reply is the event
`subagents:rpc:<method>:reply:<requestId>`, so that callers do not disturb each other. It is
`{"success": true, "data": …}` or `{"success": false, "error": "…"}`. A request cannot set the parent of a run, its
depth, or the run that it resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from retinue.core.delegation import Refusal
from retinue.core.request import EVERYTHING, RunRequest
from retinue.core.usage import Budget
from retinue.errors import RetinueError, UsageError
from retinue.runs.bus import EventBus
from retinue.runs.requests import resolve_type

if TYPE_CHECKING:
    from retinue.runs.supervisor import Supervisor

PROTOCOL_VERSION = 2
CHANNEL = "subagents:rpc:"
NO_SESSION = "No active session"

Method = Literal["ping", "spawn", "stop"]
Envelope = dict[str, Any]


class Rpc:
    """Answers requests on the bus after `open`. After the supervisor is closed, it answers with an error, so that no
    caller waits in vain."""

    def __init__(self, supervisor: Supervisor, bus: EventBus) -> None:
        self._supervisor = supervisor
        self._bus = bus
        self._registered: list[Callable[[], None]] = []

    def open(self) -> None:
        """Register the methods on the bus, once."""
        if not self._registered:
            self._registered = [
                self._bus.on(f"{CHANNEL}{method}", partial(self._receive, method)) for method in get_args(Method)
            ]

    async def call(self, method: Method, request: Mapping[str, Any]) -> Envelope:
        """Return the reply to one request. Mistakes of the caller do not raise."""
        try:
            match method:
                case "ping":
                    return _success({"version": PROTOCOL_VERSION})
                case "spawn":
                    return await self._spawn(request)
                case "stop":
                    return self._stop(request)
                case _:
                    return _failure(f"Unknown method: {method}. Known: {', '.join(get_args(Method))}.")
        except RetinueError as error:
            return _failure(str(error))
        except Exception as error:  # noqa: BLE001 - the caller must get a reply
            return _failure(f"{type(error).__name__}: {error}")

    def _receive(self, method: Method, request: Any) -> None:
        """Answer a request. A request without an id is ignored, because the reply could not be addressed."""
        if not isinstance(request, Mapping):
            return
        request_id = request.get("requestId")
        if not isinstance(request_id, str) or not request_id:
            return
        self._bus.spawn(self._reply(method, request, request_id), f"{CHANNEL}{method}")

    async def _reply(self, method: Method, request: Mapping[str, Any], request_id: str) -> None:
        self._bus.emit(f"{CHANNEL}{method}:reply:{request_id}", await self.call(method, request))

    async def _spawn(self, request: Mapping[str, Any]) -> Envelope:
        supervisor = self._supervisor
        if not supervisor.opened:
            return _failure(NO_SESSION)
        options = request.get("options") or {}
        if not isinstance(options, Mapping):
            return _failure("options must be an object.")
        prompt = request.get("prompt")
        if not isinstance(prompt, str) or not prompt.strip():
            return _failure("Missing required argument: prompt.")
        resolved = resolve_type(_text(request, "type"), supervisor.project.catalog(), supervisor.settings)
        if isinstance(resolved, Refusal):
            return _failure(resolved.message)
        spec = resolved.spec
        model, budget = _model(options.get("model")), options.get("budget")
        if options.get("isolation") not in (None, "off", "worktree"):
            return _failure("isolation must be 'worktree' or 'off'.")
        run = RunRequest(
            spec=spec,
            task=await supervisor.project.with_initial_prompt(spec, prompt),
            cwd=_folder(options.get("cwd")) or supervisor.project.cwd,
            model=model,
            thinking=_text(options, "thinking"),
            limits=_limits(options.get("maxTurns")),
            budget=Budget.read(budget) if budget is not None else None,
            pinned=EVERYTHING if model else EVERYTHING - {"model"},
            schema=spec.output_schema,
            isolation="worktree" if options.get("isolation") == "worktree" else None,
            permission_mode=supervisor.session_mode,
            depth=1,
        )
        node = await supervisor.start(
            run,
            description=_text(options, "description") or spec.name,
            background=options.get("isBackground") is not False,
            name=_text(options, "name"),
            notes=(resolved.note,) if resolved.note else (),
        )
        return _success({"id": node.id, **({"notes": list(node.notes)} if node.notes else {})})

    def _stop(self, request: Mapping[str, Any]) -> Envelope:
        if not self._supervisor.opened:
            return _failure(NO_SESSION)
        node = self._supervisor.members.get(_text(request, "agentId") or "")
        if node is None:
            return _failure("Agent not found")
        if not node.live:
            return _failure(f"Agent has already ended ({node.status})")
        if not self._supervisor.stop(node, "Stopped by another program.", by="program"):
            return _failure("Agent is being stopped already")
        return _success()


def _success(data: Any = None) -> Envelope:
    return {"success": True} if data is None else {"success": True, "data": data}


def _failure(error: str) -> Envelope:
    return {"success": False, "error": error}


def _text(source: Mapping[str, Any], name: str) -> str | None:
    value = source.get(name)
    return value.strip() or None if isinstance(value, str) else None


def _limits(turns: Any) -> dict[str, float | None]:
    if turns is None:
        return {}
    if type(turns) is not int or turns < 0:
        raise UsageError(f"maxTurns must be a whole number, 0 or more, not {turns!r}.")
    return {"max_turns": turns or None}


def _model(value: Any) -> str | None:
    """Return the name of a model, which is given as a name or as an object with `provider` and `id`."""
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, Mapping):
        provider, model = value.get("provider"), value.get("id")
    else:
        provider, model = getattr(value, "provider", None), getattr(value, "id", None)
    if isinstance(provider, str) and isinstance(model, str):
        return f"{provider}/{model}"
    raise UsageError("model must be a name, or an object with provider and id.")


def _folder(value: Any) -> Path | None:
    """Return the folder, checked before anything is started, so that a wrong one leaves no run."""
    if value is None:
        return None
    if not isinstance(value, str) or not Path(value).is_absolute():
        raise UsageError(f"cwd must be an absolute path of an existing folder, not {value!r}.")
    path = Path(value)
    if not path.exists():
        raise UsageError(f"cwd does not exist: {value}")
    if not path.is_dir():
        raise UsageError(f"cwd is not a directory: {value}")
    return path
