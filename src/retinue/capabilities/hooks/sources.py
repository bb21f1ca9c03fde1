"""Where hooks come from: our settings, Claude Code's settings files, CodingCode's hooks files, plugins and the program.

A handler is made from any of the forms that files use. CodingCode's points are mapped onto Claude Code's events, so
that there is one bus. Hooks of a project's file take effect only if someone has consented to exactly that content.
Entries that cannot be read are reported; those for a guarding event stay as handlers that cannot run, and refuse.
Where nobody can tell what an entry guards, no run is started: a misspelt event, a file that cannot be read.
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

_EVENT_SECONDS: Mapping[HookEvent, float] = {"UserPromptSubmit": 30.0, "SessionEnd": 1.5}


def default_seconds(event: HookEvent, *, point: bool) -> float:
    """Return how long a handler without a time of its own may take. `point`: it is one of CodingCode's."""
    return _EVENT_SECONDS.get(event, 30.0 if point else 600.0)


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
            condition=condition if isinstance(condition, str) else None,
            seconds=hook.timeout_seconds or default_seconds(event, point=bool(point)),
            environment=_texts(raw.get("env")),
            headers=_texts(raw.get("headers")),
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
            event=each,
            kind="python",
            target=function,
            matcher=matcher,
            seconds=timeout or default_seconds(each, point=False),
            priority=priority,
            point=event if event in POINTS else "",
        )
        for each in events
    ]


def _target(raw: Mapping[str, Any], *, no_shell: bool) -> tuple[Kind, str, tuple[str, ...]]:
    """Return what to run. What cannot be run stays a handler, with the reason, so that it can refuse."""
    kind = raw.get("type")
    if kind in _UNSUPPORTED or "prompt" in raw:
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


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        return {}
    return {str(key): str(each) for key, each in value.items()}


_MAX_FILE_BYTES = 4 * 1024 * 1024
_CORRECT = "Correct the file, or remove it."


class Refusal(Struct, frozen=True):
    """Hooks that guard nobody knows what: where they stand, and what to do."""

    message: str
    remedy: str


class HookSources(Struct):
    """The hooks of all runs, what is wrong with their files, and what had no
    effect for want of consent."""

    handlers: list[Handler] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    withheld: list[str] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    """What keeps every run from being started."""

    def refuse(self, where: str, why: str, remedy: str) -> None:
        self.refusals.append(
            Refusal(f"{where}: {why}. What it guards would go unguarded, so nothing is started.", remedy)
        )

    def require_readable(self) -> None:
        """Raise LaunchError for hooks of which nobody can tell what they guard."""
        for refusal in self.refusals:
            raise LaunchError(refusal.message, remedy=refusal.remedy)


def group(handlers: Iterable[Handler]) -> dict[HookEvent, tuple[Handler, ...]]:
    """Return handlers by event, the lowest priority number first; equal numbers keep their order."""
    grouped: dict[HookEvent, tuple[Handler, ...]] = {}
    for handler in sorted(handlers, key=lambda handler: handler.priority):
        grouped[handler.event] = (*grouped.get(handler.event, ()), handler)
    return grouped


def session_hooks(cwd: Path, loaded: Loaded, trust: Trust, environment: Mapping[str, str]) -> HookSources:
    """Return the hooks of the settings, as seen from `cwd`. `loaded` is already without what is not
    trusted; other programs' files are checked here."""
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
        handlers = _of_file(file, trust, sources)
        if file.folder == ".claude":
            sources.handlers += handlers
        else:
            # A project's entry replaces a global one of the same name.
            for handler in handlers:
                by_name[f"{handler.event} {handler.name or id(handler)}"] = handler
    sources.handlers += by_name.values()
    return sources


def agent_hooks(spec: AgentSpec, problems: list[str]) -> list[Handler]:
    """Return the hooks of an agent's own file, for its run only. Its `Stop` is the end of that run."""
    source = f"agent '{spec.name}'"
    dialect: Dialect = "claude" if spec.dialect == "claude" else "retinue"
    handlers: list[Handler] = []
    for hook in spec.hooks:
        made, problem = from_spec(hook, source=source, dialect=dialect)
        handlers += made
        if problem:
            problems.append(problem)
    at_end = {handler.identity for handler in handlers if handler.event == "SubagentStop"}
    for handler in list(handlers):
        if handler.event == "Stop" and handler.identity not in at_end:
            handlers.append(replace(handler, event="SubagentStop"))
    return handlers


def read_hooks(
    value: Any, source: str, dialect: Dialect, report: HookSources, folder: Path | None = None
) -> list[Handler]:
    """Return the handlers of one `hooks` value. Each entry is read alone: a wrong one costs no other."""
    handlers: list[Handler] = []
    for event, entry in _entries(value, source, report):
        table = [entry] if event is None else {event: [entry]}
        try:
            specs = HOOKS.read(table)
        except BadValueError as error:
            name = event or ""
            if event is None and isinstance(entry, Mapping):
                name = str(entry.get("event") or entry.get("point") or entry.get("hook") or "")
            if error.code == UNKNOWN_EVENT:
                line = line_of(Path(source), f"hooks.{name}")
                report.refuse(f"{source}{f':{line}' if line else ''}", error.why, error.remedy)
            report.problems.append(f"{source}: {error}")
            for broken in events_of(name) or ():
                handler = Handler(event=broken, kind="broken", target=str(error), name="unreadable", source=source)
                handlers.append(handler)
            continue
        for hook in specs if isinstance(specs, tuple) else ():
            made, problem = from_spec(hook, source=source, dialect=dialect, folder=folder)
            handlers += made
            if problem:
                report.problems.append(problem)
    return handlers


def project_subjects(cwd: Path, environment: Mapping[str, str]) -> list[TrustSubject]:
    """Return what the settings files of other programs in this project would bring."""
    subjects: list[TrustSubject] = []
    for path, provenance, folder in hook_files(cwd, environment):
        content = _content(path) if provenance != "person" else None
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


def _entries(value: Any, source: str, report: HookSources) -> list[tuple[str | None, Any]]:
    if isinstance(value, Mapping):
        entries: list[tuple[str | None, Any]] = []
        for event, listed in value.items():
            entries += [(str(event), entry) for entry in (listed if isinstance(listed, list) else [listed])]
        return entries
    if isinstance(value, list):
        return [(None, entry) for entry in value]
    report.refuse(source, "hooks must be an object from events to handlers", "Correct 'hooks', or remove it.")
    return []


def _of_file(file: HookFile, trust: Trust, report: HookSources) -> list[Handler]:
    path = file.path
    content = _content(path)
    if content is None:
        report.refuse(str(path), "it cannot be read", _CORRECT)
        return []
    value: Any
    if file.folder == ".claude":
        data, problem, *_ = parse_object(content)
        if problem is not None and content.strip():
            report.refuse(str(path), f"it {problem}", _CORRECT)
        value = data.get("hooks")
        if data.get("disableAllHooks") is True:
            return []
    else:
        value = _yaml_hooks(path, content, report)
    if not value:
        return []
    if not trust.permits("hooks", file.provenance, path, lambda: content):
        remedy = f"it is not trusted. {REMEDY}" if trust.allowed is None else trust.remedy("hooks", path)
        report.withheld.append(f"{path}: hooks has no effect: {remedy}")
        return []
    dialect: Dialect = "claude" if file.folder == ".claude" else "codingcode"
    project = None if file.provenance == "person" else path.parent.parent
    return read_hooks(value, str(path), dialect, report, project)


def _yaml_hooks(path: Path, content: bytes, report: HookSources) -> list[Any]:
    try:
        items = load_mapping(content.decode("utf-8-sig"))
    except (YamlError, UnicodeDecodeError) as error:
        report.refuse(str(path), f"it cannot be read ({error})", _CORRECT)
        return []
    value = next((item.value for item in items if item.key == "hooks"), None)
    if value is not None and not isinstance(value, list):
        report.refuse(str(path), "'hooks' must be a list", _CORRECT)
        return []
    return value or []


def _content(path: Path) -> bytes | None:
    try:
        return read_file(path, _MAX_FILE_BYTES)
    except OSError:
        return None


def plugin_hooks(tables: Iterable[ExtensionHooks], report: HookSources) -> list[Handler]:
    """Return the handlers in tables that plugins bring. A shell finds the plugin's folder in its environment; what
    no shell reads has it filled in."""
    handlers: list[Handler] = []
    for table in tables:
        for handler in read_hooks(table.table, table.source, "claude", report, table.folder):
            handler = replace(handler, environment={**table.variables, **handler.environment})
            if handler.kind == "exec":
                target, *arguments = (fill(word, table.variables) for word in (handler.target, *handler.arguments))
                handler = replace(handler, target=target, arguments=tuple(arguments))
            handlers.append(handler)
    return handlers


def fill(text: str, variables: Mapping[str, str]) -> str:
    """Return a word of a command with `${NAME}` filled in, where no shell does it."""
    for name, value in variables.items():
        text = text.replace(f"${{{name}}}", value)
    return text
