"""Calls as models write them, read as the tools want them; a first check of them, and what models are told.

The check covers types, required names, enums and unknown names, in words a model can act on, without
importing a validator. It never refuses what the schema allows: parts it does not know (anyOf, $ref,
…) it leaves to the tool, which validates for itself.

Models mix up the tools they were trained on: `Read` for `read`, `file_path` for `path`, "5" for
5, a list as a JSON string. All of that has one meaning, so it is understood instead of refused.
It happens before the call is announced, judged and run: hooks, rules and people see the tool and
the arguments that really run, never another spelling of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.messages import StopReason, ToolCall
from retinue.core.permission import READ_ONLY
from retinue.core.tool import Spellings, ToolSpec
from retinue.core.tool_names import canonical, fold_name

_MOST_SHOWN = 8
_DEEPEST = 32
LEFT_TO_THE_TOOL = frozenset({"$ref", "anyOf", "oneOf", "allOf", "not", "if", "$dynamicRef"})


def problem(arguments: Any, schema: Any) -> str | None:
    """Return the first few things wrong with `arguments`, or None."""
    found: list[str] = []
    _check(arguments, schema, "", found, 0)
    if not found:
        return None
    shown = found[:_MOST_SHOWN]
    if len(found) > _MOST_SHOWN:
        shown.append(f"… and {len(found) - _MOST_SHOWN} more")
    return "; ".join(shown)


def fits(value: Any, schema: Any) -> bool:
    """Return whether `value` has a type that `schema` allows; its parts are not looked at."""
    wanted = schema.get("type") if isinstance(schema, Mapping) else None
    return wanted is None or _is_one_of(value, wanted)


def _check(value: Any, schema: Any, position: str, found: list[str], depth: int) -> None:
    if not isinstance(schema, Mapping) or depth > _DEEPEST or not LEFT_TO_THE_TOOL.isdisjoint(schema):
        return
    wanted = schema.get("type")
    if wanted is not None and not _is_one_of(value, wanted):
        found.append(f"{_name(position)} must be {_words(wanted)}, not {_kind(value)}")
        return
    options = schema.get("enum")
    if isinstance(options, (list, tuple)) and not any(_same(value, option) for option in options):
        found.append(f"{_name(position)} must be one of {_listing(options)}")
        return
    if isinstance(value, Mapping):
        _check_object(value, schema, position, found, depth)
    elif isinstance(value, (list, tuple)) and "prefixItems" not in schema:
        for index, item in enumerate(value):
            _check(item, schema.get("items"), f"{position}[{index}]", found, depth + 1)


def _check_object(
    value: Mapping[str, Any], schema: Mapping[str, Any], position: str, found: list[str], depth: int
) -> None:
    known = schema.get("properties")
    properties: Mapping[str, Any] = known if isinstance(known, Mapping) else {}
    required = schema.get("required")
    if isinstance(required, (list, tuple)):
        for key in required:
            if key not in value:
                found.append(f"{_join(position, key)} is required and missing")
    # Patterns of names are left to the tool.
    closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    for key, item in value.items():
        if key in properties:
            _check(item, properties[key], _join(position, key), found, depth + 1)
        elif closed:
            names = ", ".join(map(str, properties)) or "none"
            found.append(f"{_join(position, key)} is not a parameter (known: {names})")


def _is_one_of(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return _is(value, wanted)
    if isinstance(wanted, (list, tuple)):
        return any(isinstance(each, str) and _is(value, each) for each in wanted)
    return True


def _is(value: Any, name: str) -> bool:
    match name:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return not isinstance(value, bool) and (
                isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            )
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "object":
            return isinstance(value, Mapping)
        case "array":
            return isinstance(value, (list, tuple))
        case "null":
            return value is None
        case _:
            return True


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal in JSON: 1 is 1.0, but not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def _kind(value: Any) -> str:
    for name in ("null", "boolean", "string", "integer", "number", "object", "array"):
        if _is(value, name):
            return _article(name)
    return type(value).__name__


def _words(wanted: Any) -> str:
    if isinstance(wanted, str):
        return _article(wanted)
    return " or ".join(map(_article, map(str, wanted)))


def _article(name: str) -> str:
    if name == "null":
        return "null"
    if name[:1] in "aio":
        return f"an {name}"
    return f"a {name}"


def _listing(options: Sequence[Any]) -> str:
    shown = list(map(repr, options[:20]))
    if len(options) > 20:
        shown.append("…")
    return ", ".join(shown)


def _join(position: str, key: Any) -> str:
    return f"{position}.{key}" if position else str(key)


def _name(position: str) -> str:
    return position or "the arguments"


LIMIT = "Not run: this run has used all its tool calls. Give your final answer from what you know."
AFTER_ANSWER = "Not run: the result had already been handed in."
NOT_RUN = "Not run: the run was stopped before this call started."
STOPPED = "Stopped while running: whether it took effect is not known. Check before you repeat it."
CANCELLED = "The tool cancelled itself; whether it took effect is not known. Check before you repeat it."

_SHOWN = 200
_NAMED = 60


def reason(
    call: ToolCall, stop: StopReason, tools: Mapping[str, ToolSpec], absent: Callable[[str], str] = lambda name: ""
) -> str | None:
    """Return why `call` cannot be run, or None. `absent` says why a run lacks a tool."""
    spec = tools.get(call.name)
    if spec is None:
        return _unknown(call.name, tools, absent)
    if call.broken is not None:
        return _broken(call, stop)
    for name, why in spec.unavailable.items():
        if name in call.arguments:
            return f"Not run: {call.name} has no {name} here: {why}. Call it again without {name}."
    wrong = problem(call.arguments, schema_of(spec))
    if wrong is not None:
        return f"Not run: the arguments do not fit {call.name}: {wrong}. Correct them and call it again."
    return None


def schema_of(spec: ToolSpec) -> Mapping[str, Any]:
    """Return the schema of all that a tool accepts, which may be more than models are shown."""
    return spec.parameters if spec.spellings is None else spec.spellings.schema


def _unknown(name: str, tools: Mapping[str, ToolSpec], absent: Callable[[str], str]) -> str:
    shown = [spec.name for spec in tools.values() if spec.shown]
    offered = ", ".join(shown[:_NAMED]) or "none"
    if len(shown) > _NAMED:
        offered += f" and {len(shown) - _NAMED} more"
    meant = canonical(name)
    several = list(filter(tools.__contains__, meant))
    if several:
        return f"Not run: {name[:_SHOWN]!r} could be any of {', '.join(several)}. Call the one you mean."
    known = meant[0] if meant else name[:_SHOWN]
    why = absent(known)
    if meant and not why:
        why = "your definition does not give it to you."
    if why:
        return f"Not run: {known} is not among your tools: {why} The tools you have: {offered}."
    return f"There is no tool named {name[:_SHOWN]!r}. The tools you have: {offered}."


def timed_out(seconds: float) -> str:
    return (
        f"Stopped after {seconds:g} seconds, the longest one call may take; whether it took effect is not known. "
        "Try a smaller step, or one that does not wait."
    )


def defect(name: str, why: str) -> str:
    return f"The tool {name} failed inside, through no fault of yours ({why}). Try another way."


def _broken(call: ToolCall, stop: StopReason) -> str:
    if stop == "length":
        return (
            "Not run: your answer was cut off at the output limit in the middle of this call. "
            "Do it again in smaller pieces, with less text per call."
        )
    shown = call.broken or ""
    if len(shown) > _SHOWN:
        shown = shown[:_SHOWN] + "…"
    return f"Not run: the arguments are not a JSON object: {shown!r}. Call {call.name} again with valid JSON."


_STOPPING = frozenset({"killbash", "killshell", "taskstop"})
"""Names under which other systems end a command in the background: here bash_output does."""
_STAND_INS = {"list_subagents": "get_subagent_result", "get_search_content": "fetch_content"}
"""Tools that are offered only where a file names them, and the tool that does the same."""
_TRUE = frozenset({"true", "yes", "1", "on"})
_FALSE = frozenset({"false", "no", "0", "off"})
_PREFIXES = ("functions.", "default_api.", "tools.", "tool.")
_RESTRAINTS = frozenset({"dryrun", "simulate", "preview", "checkonly", "readonly", "append", "insertline", "undo"})
"""Names that would make a call do less or something else. Dropping one is not harmless, so a
call that has one the tool does not know is refused."""


class Understood(Struct, frozen=True):
    """A call in the form that runs, and what the model should know about how it was read."""

    call: ToolCall
    notes: tuple[str, ...] = ()


def understand(call: ToolCall, specs: Mapping[str, ToolSpec]) -> Understood:
    """Return the tool of `specs` that `call` means, with arguments in the tool's own form. What is not
    understood stays as it is: the check that follows says what is wrong with it."""
    spec = specs.get(call.name)
    if spec is None:
        found = _from_text_editor(call, specs) or replace(call, name=offered_name(call.name, specs) or call.name)
        spec = specs.get(found.name)
        if spec is None:
            return Understood(call)
        if call.name.casefold() in _STOPPING:
            found = replace(found, arguments={**found.arguments, "stop": True})
        call = found
    # A result is judged by its schema as it was handed in.
    if call.broken is not None or spec.ends_run:
        return Understood(call)
    notes: list[str] = []
    arguments = normalise(call.arguments, spec, notes)
    if arguments != call.arguments:
        call = replace(call, arguments=arguments)
    return Understood(call, tuple(notes))


def offered_name(name: str, specs: Mapping[str, ToolSpec]) -> str | None:
    """Return the one tool of `specs` that is also called `name`; None where none or several are."""
    # Some models leave marks of their template behind.
    plain = name.strip().partition("<|")[0]
    for prefix in _PREFIXES:
        plain = plain.removeprefix(prefix)
    if plain in specs:
        return plain
    for candidates in (canonical(plain), [each for each in specs if each.casefold() == plain.casefold()]):
        offered = list(filter(specs.__contains__, candidates))
        if len(offered) == 1:
            return offered[0]
    for known in (plain.casefold(), *canonical(plain)):
        if _STAND_INS.get(known) in specs:
            return _STAND_INS[known]
    return None


_EDITOR = frozenset({"str_replace_based_edit_tool", "str_replace_editor", "text_editor"})
_EDITOR_TOOLS = {"view": "read", "create": "write", "str_replace": "edit"}


def _from_text_editor(call: ToolCall, specs: Mapping[str, ToolSpec]) -> ToolCall | None:
    """Return a call of Anthropic's text editor, one tool with a `command`, as a call of the tool for it."""
    if call.name not in _EDITOR:
        return None
    name = _EDITOR_TOOLS.get(str(call.arguments.get("command")))
    if name is None or name not in specs:
        return None
    arguments = dict(call.arguments)
    del arguments["command"]
    return replace(call, name=name, arguments=arguments)


def normalise(arguments: Mapping[str, Any], spec: ToolSpec, notes: list[str]) -> Mapping[str, Any]:
    """Return `arguments` in the form of `spec`. Tools with spellings lose names they do not know, with a
    note; of others only the types of values are corrected."""
    spellings = spec.spellings
    schema: Any = spec.parameters
    if spellings is not None:
        schema = spellings.schema
        if spellings.rewrite is not None:
            arguments = spellings.rewrite(dict(arguments))
    return _Reader(spec, spellings, notes).object(arguments, schema, "", 0)


class _Reader:
    """Reads the arguments of one call."""

    def __init__(self, spec: ToolSpec, spellings: Spellings | None, notes: list[str]) -> None:
        self._spec = spec
        self._spellings = spellings
        self._notes = notes

    def object(self, value: Mapping[str, Any], schema: Any, position: str, depth: int) -> dict[str, Any]:
        known = schema.get("properties") if isinstance(schema, Mapping) else None
        if not isinstance(known, Mapping) or depth > _DEEPEST or not LEFT_TO_THE_TOOL.isdisjoint(schema):
            return dict(value)
        required = schema.get("required") or ()
        read: dict[str, Any] = {}
        for key, item in value.items():
            name = self._name(key, known, position)
            if name not in known:
                if self._keeps(key, item, schema):
                    read[key] = item
                elif key not in self._ignored:
                    self._notes.append(f'"{key}" was ignored: {self._spec.name} has no such parameter.')
            elif name != key and value.get(name) is not None:
                self._notes.append(f'"{key}" was ignored, because "{name}" was given too.')
            elif (item is None or item == "") and name not in required and not fits(item, known[name]):
                continue
            elif name not in read:
                read[name] = self._value(item, known[name], _join(position, name), depth + 1)
        return read

    @property
    def _ignored(self) -> frozenset[str]:
        return self._spellings.ignored if self._spellings is not None else frozenset()

    def _name(self, key: str, known: Mapping[str, Any], position: str) -> str:
        """Return the parameter that `key` stands for, or `key`."""
        if key in known or self._spellings is None:
            return key
        names = self._spellings.names
        found = names.get(_join(position, key)) or names.get(_join(position, fold_name(key)))
        if found is not None:
            return found.rpartition(".")[2]
        return next((name for name in known if fold_name(name) == fold_name(key)), key)

    def _keeps(self, key: str, item: Any, schema: Mapping[str, Any]) -> bool:
        """Return whether an unknown name stays, for the tool to use or the check to refuse."""
        if self._spellings is None or schema.get("additionalProperties") is not False:
            return True
        # It stays, so that the check can say why it is not there.
        if key in self._spec.unavailable and item:
            return True
        # A reading call does no harm without the parameter, and an empty value asks for nothing.
        harmless = self._spec.effects <= READ_ONLY or not item
        return not harmless and fold_name(key) in _RESTRAINTS

    def _value(self, value: Any, schema: Any, position: str, depth: int) -> Any:
        if not isinstance(schema, Mapping) or depth > _DEEPEST or not LEFT_TO_THE_TOOL.isdisjoint(schema):
            return value
        if not fits(value, schema):
            value = _coerced(value, schema)
            if self._spellings is not None and isinstance(value, (int, float)) and not isinstance(value, bool):
                value = str(value) if fits("", schema) else value
        value = self._word(value, schema, position)
        if isinstance(value, Mapping):
            return self.object(value, schema, position, depth)
        if isinstance(value, list):
            items = schema.get("items")
            return [self._value(item, items, position, depth + 1) for item in value]
        return value

    def _word(self, value: Any, schema: Mapping[str, Any], position: str) -> Any:
        """Return one of the words of an enum for a word in another case, or another word for it."""
        options = schema.get("enum")
        if not isinstance(value, str) or not isinstance(options, (list, tuple)) or value in options:
            return value
        words = self._spellings.words.get(position, {}) if self._spellings is not None else {}
        plain = value.strip().casefold().replace(" ", "_")
        if plain in words:
            return words[plain]
        return next((option for option in options if isinstance(option, str) and option.casefold() == plain), value)


def _coerced(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return `value` as one of the types that `schema` wants, where there is one way to see it so."""
    wanted = schema.get("type")
    if isinstance(wanted, str):
        wanted = [wanted]
    for kind in wanted or ():
        found = _as(value, kind, schema)
        if found is not None:
            return found
    return value


def _as(value: Any, kind: str, schema: Mapping[str, Any]) -> Any:
    match kind:
        case "integer" | "number":
            return _number(value, kind)
        case "boolean":
            return _flag(value)
        case "array":
            return _list(value, schema.get("items"))
        case "object":
            found = _json(value)
            return found if isinstance(found, Mapping) else None
    return None


def _number(value: Any, kind: str) -> int | float | None:
    if not isinstance(value, str):
        return None
    try:
        number = float(value.strip().replace("_", ""))
    except ValueError:
        return None
    if number.is_integer() and abs(number) < 2**53:
        return int(number)
    if kind == "number" and number - number == 0:
        return number
    return None


def _flag(value: Any) -> bool | None:
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        word = str(value).strip().casefold()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
    return None


def _list(value: Any, items: Any) -> list[Any] | None:
    """Return the list that a JSON string holds; a lone item is a list of one."""
    found = _json(value)
    if isinstance(found, list):
        return found
    if isinstance(found, Mapping):
        return [found]
    if isinstance(value, str) and value.strip() and fits(value, items):
        return [value]
    return None


def _json(value: Any) -> Any:
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value
