"""The kinds of nested values: models with fallbacks, MCP servers, hooks, budgets, observers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from retinue.agents.dialects.table import UNSET, BadValueError, FieldKind
from retinue.agents.dialects.tools import describe, read_names
from retinue.agents.dialects.values import SOME_NAMES, UNSET_RULE
from retinue.core.hook_events import ELSEWHERE, TOOL_EVENTS, events_of, matcher_problem, meant_event
from retinue.core.spec import HookSpec, ServerRef
from retinue.core.tool_list import bare
from retinue.core.usage import NO_LIMITS, Budget
from retinue.errors import UsageError

_EVENT_KEYS = ("event", "point", "hook")
_HANDLER_KEYS = ("command", "url", "prompt", "python", "script", "handler")
_MILLISECONDS_FROM = 1000
MOST_OBSERVERS = 4
UNKNOWN_EVENT = "unknown-event"


class ModelChoice(NamedTuple):
    """`written` as in the file; `name` None inherits."""

    written: str | tuple[str, ...]
    name: str | None
    fallbacks: tuple[str, ...] = ()


def _model(value: Any) -> Any:
    if value is None:
        return UNSET
    if not isinstance(value, (str, list)):
        raise BadValueError(f"the name of a model is wanted, not {describe(value)}")
    if isinstance(value, str) and "," not in value and value.lstrip()[:1] != "[":
        return _one_model(value.strip())
    names = read_names(value)
    if not names:
        return UNSET
    written = value.strip() if isinstance(value, str) else names
    first = None if names[0] == "inherit" else names[0]
    return ModelChoice(written, first, names[1:])


@lru_cache(maxsize=256)
def _one_model(name: str) -> Any:
    # Thousands of files name the same few models.
    model = bare(name)
    if model:
        return ModelChoice(name, None if model == "inherit" else model)
    return UNSET


def _servers(value: Any) -> Any:
    """Read names, `{name: config}` entries, or one map of them."""
    if value is None:
        return UNSET
    if isinstance(value, dict):
        value = [{name: config} for name, config in value.items()]
    if isinstance(value, str):
        value = list(read_names(value))
    if not isinstance(value, list):
        raise BadValueError(f"a list of servers is wanted, not {describe(value)}", instead=())
    found: list[ServerRef] = []
    strange: Any = UNSET
    for entry in value:
        references = _server(entry)
        if references is None:
            strange = entry
        else:
            found += references
    if strange is not UNSET:
        why = f"one server is {describe(strange)}, not a name or a 'name: settings' pair"
        raise BadValueError(why, instead=tuple(found))
    return tuple(found)


def _server(entry: Any) -> list[ServerRef] | None:
    if isinstance(entry, str) and entry.strip():
        return [ServerRef(entry.strip())]
    if not isinstance(entry, dict) or not entry:
        return None
    name = entry.get("name")
    if isinstance(name, str) and ("command" in entry or "url" in entry):
        return [ServerRef(name, _without(entry, "name"))]
    found = []
    for key, config in entry.items():
        if config is not None and not isinstance(config, dict):
            return None
        found.append(ServerRef(key, config))
    return found


def _without(entry: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in keys}


def _hooks(value: Any) -> Any:
    """Read Claude Code's `{Event: [{matcher, hooks: […]}]}`, the flat `{Event: [{command}]}`, and CodingCode's list
    of `{event, command}`."""
    if value is None or value == [] or value == {}:
        return UNSET
    found: list[HookSpec] = []
    if isinstance(value, dict):
        for event, entries in value.items():
            for entry in entries if isinstance(entries, list) else [entries]:
                found += _hook(event, entry)
    elif isinstance(value, list):
        for entry in value:
            event = None
            if isinstance(entry, dict):
                event = entry.get("event") or entry.get("point") or entry.get("hook")
            if not event or not isinstance(event, str):
                raise BadValueError("a hook does not say which event it is for")
            found += _hook(event, _without(entry, *_EVENT_KEYS))
    else:
        raise BadValueError(f"hooks are a mapping of events, not {describe(value)}")
    return tuple(found)


def _hook(event: str, entry: Any) -> list[HookSpec]:
    if isinstance(entry, str):
        entry = {"command": entry}
    if not isinstance(entry, dict):
        raise BadValueError(f"a hook of '{event}' is {describe(entry)}")
    _check_event(event, entry)
    matcher = entry.get("matcher")
    if matcher is not None and not isinstance(matcher, str):
        raise BadValueError(f"the matcher of a '{event}' hook is {describe(matcher)}, not text")
    if matcher and not TOOL_EVENTS.isdisjoint(events_of(event) or ()):
        problem = matcher_problem(matcher)
        if problem is not None:
            raise BadValueError(f"the matcher {describe(matcher)} of a '{event}' hook {problem.why}", problem.remedy)
    nested = entry.get("hooks")
    if nested is None:
        return [_handler(event, entry, matcher)]
    if not isinstance(nested, list):
        raise BadValueError(f"'hooks' of '{event}' is {describe(nested)}, not a list")
    return [_handler(event, handler, matcher) for handler in nested]


def _check_event(event: str, entry: dict[str, Any]) -> None:
    """Raise BadValueError for a misspelt event, and for an unknown one with a handler that says it decides: what it
    guards would go unguarded. Other programs have events of their own, which never happen here."""
    if events_of(event) is not None or event in ELSEWHERE:
        return
    meant = meant_event(event)
    if meant is None and entry.get("type") != "decision":
        return
    remedy = f"Did you mean '{meant}'?" if meant else "The events are listed in docs/hooks.md."
    raise BadValueError(f"there is no event '{event}' to hook into", remedy, code=UNKNOWN_EVENT)


def _handler(event: str, entry: Any, matcher: str | None) -> HookSpec:
    if not isinstance(entry, dict) or not any(isinstance(entry.get(key), str) for key in _HANDLER_KEYS):
        raise BadValueError(f"a hook of '{event}' has nothing to run")
    return HookSpec(event, _without(entry, "matcher", "timeout"), matcher, _timeout(event, entry.get("timeout")))


def _timeout(event: str, value: Any) -> float | None:
    # Some programs count milliseconds; nobody waits 1,000 seconds for a hook.
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise BadValueError(f"the timeout of a '{event}' hook is {describe(value)}, not a positive number")
    if value >= _MILLISECONDS_FROM:
        return value / 1000
    return float(value)


def _budget(value: Any) -> Any:
    if value is None:
        return UNSET
    try:
        budget = Budget.read(value)
        if budget == NO_LIMITS:
            return UNSET
        return budget
    except UsageError as error:
        raise BadValueError(error.message.rstrip("."), error.remedy) from error


def _observers(value: Any) -> Any:
    names = SOME_NAMES.read(value)
    if names is not UNSET and len(names) > MOST_OBSERVERS:
        why = f"{len(names)} agents are named, and at most {MOST_OBSERVERS} watch a run; the first ones do"
        raise BadValueError(why, "Name those that matter most.", instead=names[:MOST_OBSERVERS])
    return names


MODEL = FieldKind("name of a model, or a list to try in order; inherit", UNSET_RULE, _model, textual=True)
SERVERS = FieldKind("names, or name: settings pairs", "the entry is dropped, and reported", _servers, "grants")
OBSERVERS = FieldKind("up to four names: comma text or list", UNSET_RULE, _observers)
HOOKS = FieldKind("mapping of events to handlers", UNSET_RULE, _hooks, "grants")
BUDGET = FieldKind(
    "mapping: tokens, usd, turns, tool_calls, seconds, spawns",
    UNSET_RULE,
    _budget,
    combine=lambda one, other: one.within(other),
)
