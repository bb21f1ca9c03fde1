"""The kinds of values that fields take: text, numbers, switches, choices, models, MCP servers, hooks, budgets.

Each reader returns a value, returns UNSET for a key that says nothing, or raises BadValueError.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from operator import and_, or_
from typing import Any, NamedTuple

from retinue.agents.dialects.table import UNSET, BadValueError, FieldKind
from retinue.agents.dialects.tools import ALL_TOOLS_WORDS, BadNamesError, both_allow, describe, read_names, says_none
from retinue.agents.yaml_reader import too_deep
from retinue.core.hook_events import CLAUDE_ONLY_EVENTS, TOOL_EVENTS, events_of, matcher_problem, meant_event
from retinue.core.request import ClusterPlacement
from retinue.core.spec import HookSpec, ServerRef
from retinue.core.tool_names import bare, off_by_one
from retinue.core.usage import NO_LIMITS, Budget
from retinue.errors import UsageError

_SCHEMA_REMEDY = "Write a JSON Schema such as {type: object, properties: {answer: {type: string}}}."
_MAX_PLAUSIBLE_SECONDS = 10_000
_SEPARATORS = frozenset(" \t\n;|&+，、；")
_YES = frozenset({"true", "yes", "on", "1"})
_NO = frozenset({"false", "no", "off", "0"})
_WIDE_SANDBOXES = (*_NO, "none", "danger-full-access", "workspace-write")


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        raise BadValueError(f"text is wanted, not {describe(value)}", "Write it as one value, in quotes if need be.")
    return value.strip() or UNSET


def _label(value: Any) -> Any:
    """Read text that may be blank: a name or description that was written, if only as `""`."""
    if type(value) is str:
        return value.strip()
    return _text(value)


def _names(value: Any) -> Any:
    try:
        return read_names(value)
    except BadNamesError as error:
        error.instead = error.readable or UNSET
        raise


def _whole_number(minimum: int, value: Any) -> Any:
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or number < minimum:
        raise BadValueError(f"a whole number from {minimum} on is wanted, not {describe(value)}")
    return number


def _seconds(factor: float, value: Any) -> Any:
    number = _decimal(value)
    if number is None or not 0 < number <= 10**9:
        raise BadValueError(f"a positive number is wanted, not {describe(value)}")
    return number * factor


def _timeout(value: Any) -> Any:
    """Read a time whose unit the key does not name."""
    seconds = _seconds(1, value)
    if seconds >= _MAX_PLAUSIBLE_SECONDS:
        why = f"nobody can tell whether {describe(value)} are seconds or milliseconds"
        raise BadValueError(why, "Write 'timeout_seconds' with a number of seconds.")
    return seconds


def _excluded(value: Any) -> Any:
    """Read names to leave out; `none` leaves nothing out. Names with a wrong separator would match nothing."""
    names = _names(value)
    if names is UNSET or not names or says_none(names):
        return UNSET
    for name in names:
        if not _SEPARATORS.isdisjoint(name):
            raise BadValueError(f"{describe(name)} is not one name", "Put a comma between two names.")
    return names


def _temperature(value: Any) -> Any:
    number = _decimal(value)
    if number is None or not 0 <= number <= 2:
        raise BadValueError(f"a number from 0 to 2 is wanted, not {describe(value)}")
    return number


def _decimal(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _words(
    words: Mapping[str, Any],
    why: str,
    remedy: str = "Write one of these words.",
    *,
    instead: Any = UNSET,
    code: str = "bad-value",
    exact: bool = False,
) -> Callable[[Any], Any]:
    """Return a reader of words with their meanings; unless they are `exact`, in capital letters as well."""

    def read(value: Any) -> Any:
        word = str(value).strip()
        if not exact:
            word = word.lower()
        if word in words:
            return words[word]
        raise BadValueError(why.format(describe(value)), remedy, instead=instead, code=code)

    return read


def _switch(yes: Any = True, no: Any = False, remedy: str = "", instead: Any = UNSET) -> Callable[[Any], Any]:
    """Return a reader of true and false in every spelling."""
    words = {**dict.fromkeys(_YES, yes), **dict.fromkeys(_NO, no)}
    return _words(words, "true or false is wanted, not {}", remedy, instead=instead)


def _exact_true(value: Any) -> Any:
    # pi's rule: of a key that is present, only an unquoted `true` means yes.
    if isinstance(value, bool):
        return value
    raise BadValueError(f"only an unquoted true counts as yes; {describe(value)} was read as false", instead=False)


def _devkit_readonly(value: Any) -> Any:
    # devkit-pi compares with these words; `yes` would leave its agent writable, so it is reported.
    word = value if isinstance(value, str) else ("true" if value is True else str(value))
    word = word.split(" #")[0].strip()
    if word in ("true", "1"):
        return True
    if word.lower() in _NO:
        return False
    raise BadValueError(
        f"devkit-pi takes only true or 1 for read-only, so {describe(value)} leaves it writable",
        "Write 'readonly: true'.",
        instead=False,
    )


def _enabled(value: Any) -> Any:
    # pi compares with false itself; a quoted "false" would leave the agent on.
    if isinstance(value, bool):
        return value
    raise BadValueError(
        f"only an unquoted false switches an agent off, not {describe(value)}", "Write 'enabled: false'."
    )


def _placement(value: Any) -> Any:
    word = str(value).strip()
    try:
        ClusterPlacement.read(word)
    except UsageError as error:
        raise BadValueError(error.message, error.remedy or "") from None
    return word


def _all_or_names(value: Any) -> Any:
    """Read `extensions`, `skills`, `allowed_subagents`: everything, nothing, or these names."""
    if isinstance(value, bool):
        return value
    try:
        names = read_names(value)
    except BadNamesError as error:
        raise BadValueError(f"{error.why}; read as none", error.remedy, instead=False) from None
    words = {name.lower() for name in names}
    if words <= {"none", "false", "no", "off"}:
        return False
    if isinstance(value, str) and _decimal(value) is not None:
        raise BadValueError(f"{describe(value)} is no name; read as none", "Write names, or false.", instead=False)
    if isinstance(value, str) and len(names) == 1 and off_by_one(names[0].lower(), "false"):
        # A name that nothing has would leave the agent more than `false` does.
        remedy = f"Did you mean 'false'? If something is really called so, write '[{names[0]}]'."
        raise BadValueError(f"{describe(value)} is neither false nor a name", remedy, instead=False)
    if len(words) == 1 and words <= {"all", "*", "true"}:
        return True
    return names


def _subagents(value: Any) -> Any:
    agents = _all_or_names(value)
    if isinstance(agents, tuple) and any(name.lower() in ALL_TOOLS_WORDS for name in agents):
        return True
    return agents


def _thinking(value: Any) -> Any:
    if not isinstance(value, str):
        raise BadValueError(f"a level such as low or high is wanted, not {describe(value)}")
    if value in ("true", "True", "TRUE"):
        raise BadValueError("true is not a level", "Write one of off, minimal, low, medium, high, xhigh, max.")
    if value in ("false", "False", "FALSE"):
        return "off"
    return value.strip() or UNSET


def _schema(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise BadValueError("the text is not valid JSON", _SCHEMA_REMEDY) from None
    if not isinstance(value, dict) or too_deep(value):
        raise BadValueError(f"a mapping is wanted, not {describe(value)}", _SCHEMA_REMEDY)
    return value


def _role(value: Any) -> Any:
    if not isinstance(value, dict):
        raise BadValueError(f"a mapping is wanted, not {describe(value)}")
    text = value.get("ROLE_ADDITIONAL", value.get("roleAdditional"))
    return UNSET if text is None else _text(text)


def _fewer(first: Any, second: Any) -> Any:
    """Return what two of `all, none or names` both allow."""
    if isinstance(first, bool):
        return second if first else False
    if isinstance(second, bool):
        return first if second else False
    return both_allow(first, second)


def _fewest(first: int, second: int) -> int:
    """Return the smaller of two limits."""
    # 0 means unlimited, so it is the larger of any two.
    return min(first, second) or max(first, second)


def _together(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


_EVENT_KEYS = ("event", "point", "hook")
_HANDLER_KEYS = ("command", "url", "prompt", "python", "script", "handler")
_HOOK_MILLISECONDS_FROM = 1000
UNKNOWN_EVENT = "unknown-event"


class ModelChoice(NamedTuple):
    """`written` as in the file; `name` None inherits."""

    written: str | tuple[str, ...]
    name: str | None
    fallbacks: tuple[str, ...] = ()


def _model(value: Any) -> Any:
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
    if isinstance(value, dict):
        value = [{name: config} for name, config in value.items()]
    if isinstance(value, str):
        value = list(read_names(value))
    if not isinstance(value, list):
        raise BadValueError(f"a list of servers is wanted, not {describe(value)}", instead=())
    servers: list[ServerRef] = []
    unclear: Any = UNSET
    for entry in value:
        references = _server(entry)
        if references is None:
            unclear = entry
        else:
            servers += references
    if unclear is not UNSET:
        why = f"one server is {describe(unclear)}, not a name or a 'name: settings' pair"
        raise BadValueError(why, instead=tuple(servers))
    return tuple(servers)


def _server(entry: Any) -> list[ServerRef] | None:
    if isinstance(entry, str) and entry.strip():
        return [ServerRef(entry.strip())]
    if not isinstance(entry, dict) or not entry:
        return None
    name = entry.get("name")
    if isinstance(name, str) and ("command" in entry or "url" in entry):
        return [ServerRef(name, _without(entry, "name"))]
    if not all(config is None or isinstance(config, dict) for config in entry.values()):
        return None
    return [ServerRef(name, config) for name, config in entry.items()]


def _without(entry: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in keys}


def _hooks(value: Any) -> Any:
    """Read Claude Code's `{Event: [{matcher, hooks: […]}]}`, the flat `{Event: [{command}]}`, and CodingCode's list
    of `{event, command}`."""
    if value in ([], {}):
        return UNSET
    hooks: list[HookSpec] = []
    if isinstance(value, dict):
        for event, entries in value.items():
            for entry in entries if isinstance(entries, list) else [entries]:
                hooks += _hook(event, entry)
    elif isinstance(value, list):
        for entry in value:
            event = None
            if isinstance(entry, dict):
                event = entry.get("event") or entry.get("point") or entry.get("hook")
            if not event or not isinstance(event, str):
                raise BadValueError("a hook does not say which event it is for")
            hooks += _hook(event, _without(entry, *_EVENT_KEYS))
    else:
        raise BadValueError(f"hooks are a mapping of events, not {describe(value)}")
    return tuple(hooks)


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
    """Raise BadValueError for a misspelt event, for an unknown one whose handler decides about calls, and for a name
    with events below it: these calls would go unguarded. Events of other programs never happen here."""
    if events_of(event) is not None or event in CLAUDE_ONLY_EVENTS:
        return
    if any(key in _EVENT_KEYS or events_of(key) for key in entry):
        raise BadValueError(f"'{event}' is no event, and events are below it", _FLAT_EVENTS, code=UNKNOWN_EVENT)
    meant = meant_event(event)
    if meant is None and entry.get("type") != "decision":
        return
    remedy = f"Did you mean '{meant}'?" if meant else "The events are listed in docs/hooks.md."
    raise BadValueError(f"there is no event '{event}' to hook into", remedy, code=UNKNOWN_EVENT)


def _handler(event: str, entry: Any, matcher: str | None) -> HookSpec:
    if not isinstance(entry, dict) or not any(isinstance(entry.get(key), str) for key in _HANDLER_KEYS):
        raise BadValueError(f"a hook of '{event}' has nothing to run")
    return HookSpec(event, _without(entry, "matcher", "timeout"), matcher, _hook_timeout(event, entry.get("timeout")))


def _hook_timeout(event: str, value: Any) -> float | None:
    # Some programs use milliseconds; nobody waits 1,000 seconds for a hook.
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise BadValueError(f"the timeout of a '{event}' hook is {describe(value)}, not a positive number")
    if value >= _HOOK_MILLISECONDS_FROM:
        return value / 1000
    return float(value)


def _budget(value: Any) -> Any:
    try:
        budget = Budget.read(value)
        if budget == NO_LIMITS:
            return UNSET
        return budget
    except UsageError as error:
        raise BadValueError(error.message.rstrip("."), error.remedy) from error


_PERMISSION_MODES = {
    "default": "default",
    "manual": "default",
    "ask": "default",
    "acceptEdits": "acceptEdits",
    "plan": "plan",
    "dontAsk": "dontAsk",
    "auto": "auto",
    "bypassPermissions": "bypassPermissions",
    "bypass": "bypassPermissions",
}
_FROM_STRICT = ("plan", "dontAsk", "default", "acceptEdits", "auto", "bypassPermissions")

_WRITE = "Write true or false."
_FLAT_EVENTS = "Write the events directly below 'hooks'."

TEXT = FieldKind("text", _text, textual=True)
LABEL = FieldKind("text", _label, textual=True)
NAME_LIST = FieldKind("names: comma text or list", _names)
TURNS = FieldKind("whole number, 0 = unlimited", partial(_whole_number, 0), combine=_fewest)
STEPS = FieldKind("whole number from 1", partial(_whole_number, 1), combine=_fewest)
DURATION_SECONDS = FieldKind("number of seconds", partial(_seconds, 1), combine=min)
MINUTES = FieldKind("number of minutes", partial(_seconds, 60), combine=min)
TIMEOUT = FieldKind("number of seconds below 10,000", _timeout, combine=min)
WORKTREE = FieldKind("true or false", _switch("worktree", UNSET), combine=lambda first, second: first)
EXCLUDED = FieldKind("names: comma text or list", _excluded, combine=_together)
TEMPERATURE = FieldKind("number from 0 to 2", _temperature)
SWITCH = FieldKind("true or false (also yes, no, on, off, 1, 0)", _switch())
EXACT_TRUE = FieldKind("true or false", _exact_true, "anything but an unquoted true is false, and reported")
ISOLATED = FieldKind(SWITCH.type, SWITCH.reader, combine=or_)
EXACT_ISOLATED = FieldKind(EXACT_TRUE.type, _exact_true, combine=or_)
READONLY = FieldKind(SWITCH.type, _switch(remedy=_WRITE, instead=True), combine=or_)
SANDBOX = FieldKind(
    "read-only",
    # A file cannot widen the sandbox, so only `read-only` of Codex's `sandbox_mode` has an effect.
    _words(
        {**dict.fromkeys(_WIDE_SANDBOXES, UNSET), "read-only": True, "readonly": True},
        "only read-only can be enforced for one agent, not {}",
        "Write 'sandbox: read-only', or set sandbox in the settings.",
        instead=True,
    ),
    combine=or_,
)
DEVKIT_READONLY = FieldKind("true or 1", _devkit_readonly, combine=or_)
ENABLED = FieldKind("true or false", _enabled, combine=and_)
SWITCHED_ON = FieldKind("true or false", _switch(remedy=_WRITE, instead=False), combine=and_)
"""`enabled` in the dialects that do not have the key themselves: some of them know only texts."""
DISABLED = FieldKind("true or false", _switch(False, True, _WRITE, False), combine=and_)
PRIMARY = FieldKind(
    "one of primary, subagent, all",
    # opencode's `mode`: a primary agent is for people, the others are for agents as well.
    _words({"subagent": UNSET, "all": UNSET, "primary": False}, "one of primary, subagent, all is wanted, not {}"),
    combine=and_,
)
HIDDEN_SWITCH = FieldKind(SWITCH.type, _switch(False, True), combine=and_)
MODE = FieldKind(
    "one of default, acceptEdits, plan, dontAsk, auto, bypassPermissions",
    _words(
        _PERMISSION_MODES,
        f"one of {', '.join(dict.fromkeys(_PERMISSION_MODES.values()))} is wanted, not {{}}",
        exact=True,
    ),
    role="grants",
    combine=partial(min, key=_FROM_STRICT.index),
)
MEMORY = FieldKind(
    "one of user, project, local",
    _words(
        {"user": "user", "project": "project", "local": "local"},
        "one of user, project, local is wanted, not {}",
        exact=True,
    ),
    role="grants",
)
ROLLBACK = FieldKind(
    "on-failure, or off",
    _words(
        {
            "on-failure": "on-failure",
            "on_failure": "on-failure",
            **dict.fromkeys(("off", "none", "no", "false", "never"), UNSET),
        },
        "only on-failure and off are supported, not {}",
        "",
        code="unsupported-value",
    ),
)
PROMPT_MODE = FieldKind(
    "append or replace",
    _words(
        {"append": "append", "replace": "replace"},
        "append or replace is wanted, not {}; read as replace",
        "",
        instead="replace",
        exact=True,
    ),
    "replace, and reported",
)
ISOLATION = FieldKind(
    "worktree, or off to refuse it",
    _words(
        {"worktree": "worktree", **dict.fromkeys(("off", "none", "no", "false"), "off")},
        "only worktree and off are supported, not {}",
        "Write 'isolation: worktree', or remove the key to work in the checkout itself.",
        code="unsupported-value",
    ),
)
PLACEMENT = FieldKind("local, cluster, or cluster:LABEL,LABEL", _placement)
ALL_OR_NAMES = FieldKind("true, false or names", _all_or_names, "false, and reported", combine=_fewer)
SUBAGENTS = FieldKind("all, none or names of agents", _subagents, blank=False, combine=_fewer)
THINKING = FieldKind("level: off, minimal, low, medium, high, xhigh, max", _thinking, textual=True)
SCHEMA = FieldKind("JSON Schema, as a mapping or JSON text", _schema)
ROLE = FieldKind("mapping with ROLE_ADDITIONAL", _role)
ANY_VALUE = FieldKind("anything", lambda value: value, "kept as it is")
MODEL = FieldKind("name of a model, or a list to try in order; inherit", _model, textual=True)
SERVERS = FieldKind("names, or name: settings pairs", _servers, "the entry is dropped, and reported", role="grants")
HOOKS = FieldKind("mapping of events to handlers", _hooks, role="grants")
BUDGET = FieldKind(
    "mapping: tokens, usd, turns, tool_calls, seconds, spawns",
    _budget,
    combine=lambda one, other: one.within(other),
)
