"""One handler: what it runs, for which events, for how long. Made from any of the forms files use.

The table of events says which of them guard something, what matchers look at, and how long handlers
may take. CodingCode's points are mapped onto Claude Code's events, so that there is one bus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

from retinue.core.hook_events import POINTS, TOOL_EVENTS, events_of, matcher_problem
from retinue.core.permission import HookEvent
from retinue.core.spec import HookSpec

GUARDS: frozenset[HookEvent] = frozenset(
    {"PreToolUse", "PermissionRequest", "SubagentSpawn", "UserPromptSubmit", "PreModelSwitch"}
)
"""Where a handler that breaks has to count as a no."""

STRICT: frozenset[HookEvent] = GUARDS | {"WorktreeCreate"}

MATCHED: frozenset[HookEvent] = TOOL_EVENTS | {
    "SessionStart",
    "SessionEnd",
    "StopFailure",
    "SubagentSpawn",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "PostCompact",
    "Notification",
    "PreModelSwitch",
    "PostModelSwitch",
}
"""Events with something to match; on the others a matcher is ignored."""

SPEAKS: frozenset[HookEvent] = frozenset({"UserPromptSubmit", "SessionStart"})
"""Events where plain output is text for the model."""

ENDS: frozenset[HookEvent] = frozenset({"Stop", "SubagentStop"})
"""Events where a no means: go on."""

BLOCKABLE: frozenset[HookEvent] = GUARDS | ENDS | {"PostToolUse", "PreCompact", "WorktreeCreate"}
"""Events where exit code 2 and `block` mean something."""

DECISIONS = frozenset({"tool.approval.pre", "agent.turn.stop", "agent.subagent.spawn.before"})
"""Points whose handlers decide unless they say that they only observe."""

_SECONDS = 600.0
_POINT_SECONDS = 30.0
_BY_EVENT: Mapping[HookEvent, float] = {"UserPromptSubmit": 30.0, "SessionEnd": 1.5}


def default_seconds(event: HookEvent, *, point: bool) -> float:
    """Return how long a handler without a time of its own may take. `point`: it is one of CodingCode's."""
    usual = _POINT_SECONDS if point else _SECONDS
    return _BY_EVENT.get(event, usual)


Kind = Literal["exec", "shell", "http", "python", "broken"]
Dialect = Literal["retinue", "claude", "codingcode"]

_UNSUPPORTED = ("prompt", "agent", "mcp_tool")
_RUNNING = ("command", "http", "python")


class Handler(Struct, frozen=True, kw_only=True):
    """`target` is a program, a shell line, a URL, or a callable (or `module:name` of one). A
    handler of kind `broken` cannot be run, for the reason in `target`: where it guards
    something, that is a no."""

    event: HookEvent
    kind: Kind
    target: Any
    arguments: tuple[str, ...] = ()
    matcher: str = ""
    condition: str | None = None
    seconds: float = 600.0
    environment: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    variables: tuple[str, ...] = ()
    """Environment variables that its headers may name."""
    priority: int = 0
    observes: bool = False
    """What it says is not listened to."""
    detached: bool = False
    """Nobody waits for it."""
    name: str = ""
    source: str = ""
    dialect: Dialect = "retinue"
    on_failure: Literal["continue", "block"] | None = None
    """What it means when it breaks; None leaves that to the event and the settings."""
    point: str = ""
    """The name under which the file has it, where that is CodingCode's."""
    folder: Path | None = None
    """The project it belongs to; None for the run's own folder."""

    @property
    def label(self) -> str:
        """How people know it."""
        shown = self.name
        if not shown and callable(self.target):
            shown = getattr(self.target, "__qualname__", "")
        elif not shown:
            shown = " ".join((str(self.target), *self.arguments))
        if len(shown) > 120:
            shown = f"{shown[:119]}…"
        if self.source:
            return f"{self.event} hook '{shown}' of {self.source}"
        return f"{self.event} hook '{shown}'"

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for handlers that would do the same: only one of them runs."""
        target = self.target
        if not isinstance(target, str):
            # A callable need not be hashable.
            target = id(target)
        known = (self.kind, target, self.arguments, self.observes, self.detached)
        return (*known, tuple(sorted(self.environment.items())), tuple(sorted(self.headers.items())))


def from_spec(
    hook: HookSpec, *, source: str, dialect: Dialect, folder: Path | None = None
) -> tuple[list[Handler], str | None]:
    """Return the handlers of one entry of a file, and what is wrong with the entry, if anything."""
    raw = hook.handler
    events = events_of(hook.event)
    if events is None:
        return [], f"{source}: there is no event '{hook.event}' to hook into; the entry is ignored."
    if raw.get("enabled") is False or raw.get("disabled") is True:
        return [], None
    if not events:
        return [], f"{source}: '{hook.event}' never happens here; the entry is ignored."
    point = ""
    if hook.event in POINTS:
        point, dialect = hook.event, "codingcode"
    kind, target, arguments, problem = _target(raw, no_shell=bool(point))
    condition, on_failure = raw.get("if"), raw.get("onFailure")
    if not isinstance(condition, str):
        condition = None
    if on_failure not in (None, "continue", "block"):
        problem = problem or f"onFailure is continue or block, not {on_failure!r}; it is left out"
        on_failure = None
    if problem is not None:
        problem = f"{source}: {hook.event}: {problem}"
    # A kind that nobody knows may have been meant to decide.
    listens = raw.get("type") in (None, *_RUNNING) and bool(point) and point not in DECISIONS
    observes = raw.get("type") == "observer" or listens
    handlers = [
        Handler(
            event=event,
            kind=kind,
            target=target,
            arguments=arguments,
            matcher=hook.matcher or "",
            condition=condition,
            seconds=hook.timeout_seconds or default_seconds(event, point=bool(point)),
            environment=_texts(raw.get("env")),
            headers=_texts(raw.get("headers")),
            variables=tuple(str(each) for each in raw.get("allowedEnvVars") or ()),
            priority=_whole(raw.get("priority")),
            observes=observes,
            detached=raw.get("async") is True or raw.get("asyncRewake") is True,
            name=str(raw.get("name") or ""),
            source=source,
            dialect=dialect,
            on_failure=on_failure,
            point=point,
            folder=folder,
        )
        for event in events
    ]
    return handlers, problem


def from_callable(
    event: str, function: Callable[..., Any], *, matcher: str = "", timeout: float | None = None, priority: int = 0
) -> list[Handler]:
    """Return the handlers of a function of the embedding program. Raise ValueError for an unknown event, and for a
    matcher that cannot be understood."""
    events = events_of(event)
    if not events:
        raise ValueError(f"There is no hook event '{event}'.")
    problem = matcher_problem(matcher) if not TOOL_EVENTS.isdisjoint(events) else None
    if problem is not None:
        raise ValueError(f"The matcher '{matcher}' {problem.why}. {problem.remedy}".rstrip())
    point = event if event in POINTS else ""
    handlers = []
    for each in events:
        seconds = timeout or default_seconds(each, point=False)
        handlers.append(
            Handler(
                event=each,
                kind="python",
                target=function,
                matcher=matcher,
                seconds=seconds,
                priority=priority,
                point=point,
            )
        )
    return handlers


def _target(raw: Mapping[str, Any], *, no_shell: bool) -> tuple[Kind, str, tuple[str, ...], str | None]:
    """Return what to run. What we cannot run stays a handler, so that a guard does not vanish."""
    kind = raw.get("type")
    if kind in _UNSUPPORTED or "prompt" in raw:
        return _broken(f"handlers of type '{kind or 'prompt'}' are not supported")
    if isinstance(raw.get("url"), str):
        return "http", raw["url"], (), None
    python = raw.get("python", raw.get("handler"))
    if isinstance(python, str) and ":" in python:
        return "python", python.strip(), (), None
    command = raw.get("command", raw.get("script", python))
    if not isinstance(command, str) or not command.strip():
        return _broken("it has nothing to run")
    arguments = raw.get("args")
    if arguments is not None and not isinstance(arguments, (list, tuple)):
        return _broken("'args' must be a list")
    if arguments is not None or no_shell:
        return "exec", command, tuple(str(each) for each in arguments or ()), None
    return "shell", command, (), None


def _broken(why: str) -> tuple[Kind, str, tuple[str, ...], str | None]:
    return "broken", why, (), why


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        return {}
    return {str(key): str(each) for key, each in value.items()}


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return value
