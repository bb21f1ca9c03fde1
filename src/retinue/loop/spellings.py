"""Calls as models write them, turned into calls as the tools want them.

Models mix up the tools they were trained on: `Read` for `read`, `file_path` for `path`, "5" for
5, a list as a JSON string. All of that has one meaning, so it is understood instead of refused.
It happens before the call is announced, judged and run: hooks, rules and people see the tool and
the arguments that really run, never another spelling of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.messages import ToolCall
from retinue.core.permission import READ_ONLY
from retinue.core.tool import Spellings, ToolSpec
from retinue.core.toolnames import canonical, fold_name
from retinue.loop.arguments import LEFT_TO_THE_TOOL, fits

_DEEPEST = 32
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


def _join(position: str, key: str) -> str:
    return f"{position}.{key}" if position else key
