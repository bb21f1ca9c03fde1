"""The sources of hooks: our settings, Claude Code's settings files, CodingCode's hooks files, plugins and the program.

All forms that files use become handlers. CodingCode's points are mapped onto Claude Code's events, so one bus serves
both. Hooks of a project's file take effect only if someone has consented to exactly that content.

Entries that cannot be read are reported. For a guarding event they become handlers that cannot run and therefore deny.
If it is unknown what an entry guards (a misspelt event, an unreadable file), no run is started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.agents.dialects.table import BadValueError
from retinue.agents.dialects.values import HOOKS, UNKNOWN_EVENT
from retinue.agents.yaml_reader import YamlError, load_mapping
from retinue.capabilities.hooks import HookFile, hook_files
from retinue.core.files import read_file
from retinue.core.hook_events import POINTS, TOOL_EVENTS, events_of, matcher_problem
from retinue.core.permission import HookEvent
from retinue.core.spec import AgentSpec, HookSpec
from retinue.core.spelling import distance
from retinue.errors import LaunchError
from retinue.guard.trust import (
    REMEDY,
    Trust,
    TrustSubject,
    describe_event,
    describe_program,
    named_event,
    settings_subject,
)
from retinue.settings.foreign import line_of, parse_object
from retinue.settings.load import Loaded

if TYPE_CHECKING:
    from retinue.runs.capability import ExtensionHooks


GUARDING_EVENTS: frozenset[HookEvent] = frozenset(
    {"PreToolUse", "PermissionRequest", "SubagentSpawn", "UserPromptSubmit", "PreModelSwitch"}
)
"""Events on which a handler that fails denies."""

STRICT_EVENTS: frozenset[HookEvent] = GUARDING_EVENTS | {"WorktreeCreate"}

MATCHED_EVENTS: frozenset[HookEvent] = TOOL_EVENTS | {
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
"""Events whose handlers may have a matcher; on others a matcher is ignored."""

CONTEXT_EVENTS: frozenset[HookEvent] = frozenset({"UserPromptSubmit", "SessionStart"})
"""Events on which plain output is context for the model."""

END_EVENTS: frozenset[HookEvent] = frozenset({"Stop", "SubagentStop"})
"""Events on which a denial makes the run continue."""

BLOCKABLE_EVENTS: frozenset[HookEvent] = GUARDING_EVENTS | END_EVENTS | {"PostToolUse", "PreCompact", "WorktreeCreate"}
"""Events on which exit code 2 and `block` have an effect."""

DECIDING_POINTS = frozenset({"tool.approval.pre", "agent.turn.stop", "agent.subagent.spawn.before"})
"""CodingCode's points whose handlers decide, unless they are observers."""

_TIMEOUT_SECONDS: Mapping[HookEvent, float] = {"UserPromptSubmit": 30.0, "SessionEnd": 1.5}


def default_seconds(event: HookEvent, *, point: bool) -> float:
    """Return the timeout of a handler that sets none. `point`: it is for one of CodingCode's points."""
    return _TIMEOUT_SECONDS.get(event, 30.0 if point else 600.0)


Kind = Literal["exec", "shell", "http", "python", "broken"]
Dialect = Literal["retinue", "claude", "codingcode"]

_UNSUPPORTED_TYPES = ("prompt", "agent", "mcp_tool")
_PROGRAM_TYPES = ("command", "http", "python")


class Handler(Struct, frozen=True, kw_only=True):
    """One hook. `target` is a program, a shell line, a URL, or a callable (or `module:name` of one). A handler of kind
    `broken` cannot be run, for the reason in `target`: on a guarding event it denies."""

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
    """Environment variables that its headers may use."""
    priority: int = 0
    observes: bool = False
    """Its answer is ignored."""
    detached: bool = False
    """The run does not wait for it."""
    name: str = ""
    source: str = ""
    dialect: Dialect = "retinue"
    on_failure: Literal["continue", "block"] | None = None
    """The effect of a failure; None leaves it to the event and the settings."""
    point: str = ""
    """Its event in the file, if that is one of CodingCode's points."""
    folder: Path | None = None
    """The folder of the project that contains it; None if a person configured it."""

    @property
    def label(self) -> str:
        """Its name in messages to people."""
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
        """Equal for handlers that do the same, of which only one runs."""
        # A callable need not be hashable.
        target = self.target if isinstance(self.target, str) else id(self.target)
        tables = (tuple(sorted(self.environment.items())), tuple(sorted(self.headers.items())))
        return (self.kind, target, self.arguments, self.observes, self.detached, *tables)


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
    kind, target, arguments = _target(raw, no_shell=bool(point))
    problem = target if kind == "broken" else None
    condition, priority, on_failure = raw.get("if"), raw.get("priority"), raw.get("onFailure")
    if on_failure not in (None, "continue", "block"):
        problem = problem or f"onFailure is continue or block, not {on_failure!r}; it is left out"
        on_failure = None
    if problem is not None:
        problem = f"{source}: {hook.event}: {problem}"
    # A handler of an unknown type may have been meant to decide.
    listens = raw.get("type") in (None, *_PROGRAM_TYPES) and bool(point) and point not in DECIDING_POINTS
    observes = raw.get("type") == "observer" or listens
    handlers = [
        Handler(
            event=event,
            kind=kind,
            target=target,
            arguments=arguments,
            matcher=hook.matcher or "",
            condition=condition if isinstance(condition, str) else None,
            seconds=hook.timeout_seconds or default_seconds(event, point=bool(point)),
            environment=_string_table(raw.get("env")),
            headers=_string_table(raw.get("headers")),
            variables=tuple(map(str, raw.get("allowedEnvVars") or ())),
            priority=priority if type(priority) is int else 0,
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
    return [
        Handler(
            event=event_name,
            kind="python",
            target=function,
            matcher=matcher,
            seconds=timeout or default_seconds(event_name, point=False),
            priority=priority,
            point=event if event in POINTS else "",
        )
        for event_name in events
    ]


def _target(raw: Mapping[str, Any], *, no_shell: bool) -> tuple[Kind, str, tuple[str, ...]]:
    """Return the kind of the handler, its target and arguments. One that cannot be run is `broken`, with the reason."""
    kind = raw.get("type")
    if kind in _UNSUPPORTED_TYPES or "prompt" in raw:
        return "broken", f"handlers of type '{kind or 'prompt'}' are not supported", ()
    if isinstance(raw.get("url"), str):
        return "http", raw["url"], ()
    python = raw.get("python", raw.get("handler"))
    if isinstance(python, str) and ":" in python:
        return "python", python.strip(), ()
    command = raw.get("command", raw.get("script", python))
    if not isinstance(command, str) or not command.strip():
        return "broken", "it has nothing to run", ()
    arguments = raw.get("args")
    if arguments is not None and not isinstance(arguments, (list, tuple)):
        return "broken", "'args' must be a list", ()
    if arguments is not None or no_shell:
        return "exec", command, tuple(map(str, arguments or ()))
    return "shell", command, ()


def _string_table(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        return {}
    return {str(key): str(text) for key, text in value.items()}


_MAX_HOOK_FILE_BYTES = 4 * 1024 * 1024
_CORRECT_REMEDY = "Correct the file, or remove it."


class HookSources(Struct):
    """The hooks of all runs. `problems` are mistakes in their files, `withheld` are hooks without consent."""

    handlers: list[Handler] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    withheld: list[str] = field(default_factory=list)
    refusals: list[LaunchError] = field(default_factory=list)
    """Mistakes that keep every run from being started, because it is unknown what the hooks guard."""

    def refuse(self, where: str, why: str, remedy: str) -> None:
        message = f"{where}: {why}. What it guards would go unguarded, so nothing is started."
        self.refusals.append(LaunchError(message, remedy=remedy))

    def require_readable(self) -> None:
        """Raise LaunchError if it is unknown what some hooks guard."""
        for refusal in self.refusals:
            raise refusal.with_traceback(None)


def group(handlers: Iterable[Handler]) -> dict[HookEvent, tuple[Handler, ...]]:
    """Group handlers by event, the lowest priority number first; equal numbers keep their order."""
    grouped: dict[HookEvent, tuple[Handler, ...]] = {}
    for handler in sorted(handlers, key=lambda handler: handler.priority):
        grouped[handler.event] = (*grouped.get(handler.event, ()), handler)
    return grouped


def session_hooks(cwd: Path, loaded: Loaded, trust: Trust, environment: Mapping[str, str]) -> HookSources:
    """Return the hooks of the settings, as seen from `cwd`. `loaded` contains only trusted settings; consent to the
    files of other programs is checked here."""
    if loaded.settings.disable_all_hooks:
        return HookSources()
    sources = HookSources()
    for layer in loaded.layers:
        value, origin = layer.values.get("hooks"), layer.origin
        if value:
            project = None if origin.personal else Path(origin.where).parent.parent
            sources.handlers += read_hooks(value, origin.where or "hooks", "retinue", sources, project)
    by_name: dict[str, Handler] = {}
    for file in hook_files(cwd, environment):
        handlers = _read_hook_file(file, trust, sources)
        if file.folder == ".claude":
            sources.handlers += handlers
        else:
            # A project's entry replaces a global one of the same name.
            for handler in handlers:
                by_name[f"{handler.event} {handler.name or id(handler)}"] = handler
    sources.handlers += by_name.values()
    return sources


def agent_hooks(spec: AgentSpec, problems: list[str]) -> list[Handler]:
    """Return the hooks of an agent's file, for its run only. Its `Stop` hooks also run at `SubagentStop`."""
    source = f"agent '{spec.name}'"
    dialect: Dialect = "claude" if spec.dialect == "claude" else "retinue"
    handlers: list[Handler] = []
    for hook in spec.hooks:
        handlers_of_hook, problem = from_spec(hook, source=source, dialect=dialect)
        handlers += handlers_of_hook
        if problem:
            problems.append(problem)
    at_end = {handler.identity for handler in handlers if handler.event == "SubagentStop"}
    for handler in list(handlers):
        if handler.event == "Stop" and handler.identity not in at_end:
            handlers.append(replace(handler, event="SubagentStop"))
    return handlers


def read_hooks(
    value: Any, source: str, dialect: Dialect, sources: HookSources, folder: Path | None = None
) -> list[Handler]:
    """Return the handlers of one `hooks` value. Each entry is read on its own: a wrong one affects no other."""
    handlers: list[Handler] = []
    for event, entry in _entries(value, source, sources):
        table = [entry] if event is None else {event: [entry]}
        try:
            specs = HOOKS.read(table)
        except BadValueError as error:
            name = event or ""
            if event is None and isinstance(entry, Mapping):
                name = str(entry.get("event") or entry.get("point") or entry.get("hook") or "")
            if error.code == UNKNOWN_EVENT:
                line = line_of(Path(source), f"hooks.{name}")
                sources.refuse(f"{source}{f':{line}' if line else ''}", error.why, error.remedy)
            sources.problems.append(f"{source}: {error}")
            for broken in events_of(name) or ():
                handler = Handler(event=broken, kind="broken", target=str(error), name="unreadable", source=source)
                handlers.append(handler)
            continue
        for hook in specs if isinstance(specs, tuple) else ():
            handlers_of_hook, problem = from_spec(hook, source=source, dialect=dialect, folder=folder)
            handlers += handlers_of_hook
            if problem:
                sources.problems.append(problem)
    return handlers


def project_subjects(cwd: Path, environment: Mapping[str, str]) -> list[TrustSubject]:
    """Return the hooks in settings files of other programs in this project, as subjects of consent."""
    subjects: list[TrustSubject] = []
    for path, provenance, folder in hook_files(cwd, environment):
        content = _read_content(path) if provenance != "person" else None
        if content is None:
            continue
        if folder == ".claude":
            subject = settings_subject(path, parse_object(content)[0], content)
            subjects += [subject] if subject else []
            continue
        entries = filter(lambda entry: isinstance(entry, Mapping), _yaml_hooks(path, content, HookSources()))
        what = [f"{describe_event(named_event(entry))}: {describe_program(entry)}" for entry in entries]
        if what:
            subjects.append(TrustSubject(path, (content,), tuple(what)))
    return subjects


def _entries(value: Any, source: str, sources: HookSources) -> list[tuple[str | None, Any]]:
    if isinstance(value, Mapping):
        entries: list[tuple[str | None, Any]] = []
        for event, listed in value.items():
            entries += [(str(event), entry) for entry in (listed if isinstance(listed, list) else [listed])]
        return entries
    if isinstance(value, list):
        return [(None, entry) for entry in value]
    sources.refuse(source, "hooks must be an object from events to handlers", "Correct 'hooks', or remove it.")
    return []


def _read_hook_file(file: HookFile, trust: Trust, sources: HookSources) -> list[Handler]:
    path = file.path
    content = _read_content(path)
    if content is None:
        sources.refuse(str(path), "it cannot be read", _CORRECT_REMEDY)
        return []
    value: Any
    if file.folder == ".claude":
        data, problem, *_ = parse_object(content)
        if problem is not None and content.strip():
            sources.refuse(str(path), f"it {problem}", _CORRECT_REMEDY)
        value = data.get("hooks")
        if data.get("disableAllHooks") is True:
            return []
        _refuse_misspelt(path, data, sources)
    else:
        value = _yaml_hooks(path, content, sources)
    if not value:
        return []
    if not trust.permits("hooks", file.provenance, path, lambda: content):
        remedy = f"it is not trusted. {REMEDY}" if trust.allowed is None else trust.remedy("hooks", path)
        sources.withheld.append(f"{path}: its hooks have no effect: {remedy}")
        return []
    dialect: Dialect = "claude" if file.folder == ".claude" else "codingcode"
    project = None if file.provenance == "person" else path.parent.parent
    return read_hooks(value, str(path), dialect, sources, project)


def _yaml_hooks(path: Path, content: bytes, sources: HookSources) -> list[Any]:
    try:
        items = load_mapping(content.decode("utf-8-sig"))
    except (YamlError, UnicodeDecodeError) as error:
        sources.refuse(str(path), f"it cannot be read ({error})", _CORRECT_REMEDY)
        return []
    _refuse_misspelt(path, (item.key for item in items), sources)
    value = next((item.value for item in items if item.key == "hooks"), None)
    if value is not None and not isinstance(value, list):
        sources.refuse(str(path), "'hooks' must be a list", _CORRECT_REMEDY)
        return []
    return value or []


def _refuse_misspelt(path: Path, keys: Iterable[str], sources: HookSources) -> None:
    """Refuse a file with a key that was probably meant to be `hooks`."""
    for key in keys:
        if key != "hooks" and distance(key.lower(), "hooks", 1) <= 1:
            sources.refuse(str(path), f"there is no key '{key}'", "Did you mean 'hooks'?")


def _read_content(path: Path) -> bytes | None:
    try:
        return read_file(path, _MAX_HOOK_FILE_BYTES)
    except OSError:
        return None


def plugin_hooks(tables: Iterable[ExtensionHooks], sources: HookSources) -> list[Handler]:
    """Return the handlers in the tables of plugins. A shell gets the plugin's folder as a variable; in a command
    without a shell the variable is filled in."""
    handlers: list[Handler] = []
    for table in tables:
        for handler in read_hooks(table.table, table.source, "claude", sources, table.folder):
            handler = replace(handler, environment={**table.variables, **handler.environment})
            if handler.kind == "exec":
                target, *arguments = (fill(word, table.variables) for word in (handler.target, *handler.arguments))
                handler = replace(handler, target=target, arguments=tuple(arguments))
            handlers.append(handler)
    return handlers


def fill(text: str, variables: Mapping[str, str]) -> str:
    """Return a word of a command with each `${NAME}` filled in, for commands that no shell reads."""
    for name, value in variables.items():
        text = text.replace(f"${{{name}}}", value)
    return text
