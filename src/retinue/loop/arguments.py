"""Translate tool calls from the forms that models write, and tell a model why a call does not run.

Models mix up the tools they were trained on: `Read` for `read`, `file_path` for `path`, "5" for 5, a list as a JSON
string. Each of these has one meaning, so the call is translated instead of refused. That happens before the call is
announced, judged and run: hooks, rules and people see the tool and the arguments that really run, never another
spelling of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.messages import StopReason, ToolCall
from retinue.core.permission import READ_ONLY
from retinue.core.tool import ArgumentAliases, ToolSpec
from retinue.core.tool_names import canonical, fold_name
from retinue.loop.schema_check import LEFT_TO_THE_TOOL, MAX_DEPTH, fits, join, problem

LIMIT_REACHED = "Not run: this run has used all its tool calls. Give your final answer from what you know."
AFTER_ANSWER = "Not run: the result had already been handed in."
NOT_RUN = "Not run: the run was stopped before this call started."
STOPPED = "Stopped while running: whether it took effect is not known. Check before you repeat it."
CANCELLED = "The tool cancelled itself; whether it took effect is not known. Check before you repeat it."

_MAX_QUOTED_CHARACTERS = 200
_MAX_NAMED_TOOLS = 60


def refusal_reason(
    call: ToolCall, stop: StopReason, tools: Mapping[str, ToolSpec], absent: Callable[[str], str] = lambda name: ""
) -> str | None:
    """Return why `call` cannot run, or None. `absent` returns the reason why the run lacks a tool."""
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
    """Return the schema of everything that a tool accepts, which may be more than the model sees."""
    return spec.parameters if spec.aliases is None else spec.aliases.schema


def _unknown(name: str, tools: Mapping[str, ToolSpec], absent: Callable[[str], str]) -> str:
    shown = [spec.name for spec in tools.values() if spec.shown]
    offered = ", ".join(shown[:_MAX_NAMED_TOOLS]) or "none"
    if len(shown) > _MAX_NAMED_TOOLS:
        offered += f" and {len(shown) - _MAX_NAMED_TOOLS} more"
    meant = canonical(name)
    several = list(filter(tools.__contains__, meant))
    if several:
        return (
            f"Not run: {name[:_MAX_QUOTED_CHARACTERS]!r} could be any of {', '.join(several)}. Call the one you mean."
        )
    requested = meant[0] if meant else name[:_MAX_QUOTED_CHARACTERS]
    why = absent(requested)
    if meant and not why:
        why = "your definition does not give it to you."
    if why:
        return f"Not run: {requested} is not among your tools: {why} The tools you have: {offered}."
    return f"There is no tool named {name[:_MAX_QUOTED_CHARACTERS]!r}. The tools you have: {offered}."


def timed_out(seconds: float) -> str:
    return (
        f"Stopped after {seconds:g} seconds, the longest one call may take; whether it took effect is not known. "
        "Try a smaller step, or one that does not wait."
    )


def internal_failure(name: str, why: str) -> str:
    return f"The tool {name} failed inside, through no fault of yours ({why}). Try another way."


def _broken(call: ToolCall, stop: StopReason) -> str:
    if stop == "length":
        return (
            "Not run: your answer was cut off at the output limit in the middle of this call. "
            "Do it again in smaller pieces, with less text per call."
        )
    shown = call.broken or ""
    if len(shown) > _MAX_QUOTED_CHARACTERS:
        shown = shown[:_MAX_QUOTED_CHARACTERS] + "…"
    return f"Not run: the arguments are not a JSON object: {shown!r}. Call {call.name} again with valid JSON."


_STOP_COMMAND_NAMES = frozenset({"killbash", "killshell", "taskstop"})
"""Names of the tool with which other systems end a background command. Here `bash_output` does it."""
_SUBSTITUTES = {"list_subagents": "get_subagent_result", "get_search_content": "fetch_content"}
"""Tools that only agents whose file names them have, and the tool that does the same."""
_TRUE_WORDS = frozenset({"true", "yes", "1", "on"})
_FALSE_WORDS = frozenset({"false", "no", "0", "off"})
_NAME_PREFIXES = ("functions.", "default_api.", "tools.", "tool.")
_RESTRICTING_PARAMETERS = frozenset(
    {"dryrun", "simulate", "preview", "checkonly", "readonly", "append", "insertline", "undo"}
)
"""Parameters that make a call do less, or something else. Ignoring one would do harm, so a call with one that the tool
does not have is refused."""


class TranslatedCall(Struct, frozen=True):
    """A call in the form that runs, and notes for the model about parameters that were ignored."""

    call: ToolCall
    notes: tuple[str, ...] = ()


def translate_call(call: ToolCall, specs: Mapping[str, ToolSpec]) -> TranslatedCall:
    """Return `call` under the name of a tool in `specs`, with arguments in that tool's form.

    Names and arguments that have no translation stay unchanged; the check that follows reports them.
    """
    spec = specs.get(call.name)
    if spec is None:
        translated = _translate_text_editor(call, specs) or replace(
            call, name=offered_name(call.name, specs) or call.name
        )
        spec = specs.get(translated.name)
        if spec is None:
            return TranslatedCall(call)
        if call.name.casefold() in _STOP_COMMAND_NAMES:
            translated = replace(translated, arguments={**translated.arguments, "stop": True})
        call = translated
    # A submitted result is checked against its schema without changes.
    if call.broken is not None or spec.ends_run:
        return TranslatedCall(call)
    notes: list[str] = []
    arguments = normalise(call.arguments, spec, notes)
    if arguments != call.arguments:
        call = replace(call, arguments=arguments)
    return TranslatedCall(call, tuple(notes))


def offered_name(name: str, specs: Mapping[str, ToolSpec]) -> str | None:
    """Return the one tool in `specs` that `name` stands for; None if there are none or several."""
    # Some models append markers of their chat template.
    plain = name.strip().partition("<|")[0]
    for prefix in _NAME_PREFIXES:
        plain = plain.removeprefix(prefix)
    if plain in specs:
        return plain
    for candidates in (
        canonical(plain),
        [spec_name for spec_name in specs if spec_name.casefold() == plain.casefold()],
    ):
        offered = list(filter(specs.__contains__, candidates))
        if len(offered) == 1:
            return offered[0]
    for candidate in (plain.casefold(), *canonical(plain)):
        if _SUBSTITUTES.get(candidate) in specs:
            return _SUBSTITUTES[candidate]
    return None


_TEXT_EDITOR_NAMES = frozenset({"str_replace_based_edit_tool", "str_replace_editor", "text_editor"})
_TEXT_EDITOR_COMMANDS = {"view": "read", "create": "write", "str_replace": "edit"}


def _translate_text_editor(call: ToolCall, specs: Mapping[str, ToolSpec]) -> ToolCall | None:
    """Translate a call of Anthropic's text editor (one tool with a `command`) into a call of the matching tool."""
    if call.name not in _TEXT_EDITOR_NAMES:
        return None
    name = _TEXT_EDITOR_COMMANDS.get(str(call.arguments.get("command")))
    if name is None or name not in specs:
        return None
    arguments = dict(call.arguments)
    del arguments["command"]
    return replace(call, name=name, arguments=arguments)


def normalise(arguments: Mapping[str, Any], spec: ToolSpec, notes: list[str]) -> Mapping[str, Any]:
    """Return `arguments` in the form of `spec`.

    For a tool with spellings, unknown names are dropped with a note. For other tools only the types of values are
    corrected.
    """
    aliases = spec.aliases
    schema: Any = spec.parameters
    if aliases is not None:
        schema = aliases.schema
        if aliases.rewrite is not None:
            arguments = aliases.rewrite(dict(arguments))
    return _ArgumentReader(spec, aliases, notes).object(arguments, schema, "", 0)


class _ArgumentReader:
    """Converts the arguments of one call to the form of its tool."""

    def __init__(self, spec: ToolSpec, aliases: ArgumentAliases | None, notes: list[str]) -> None:
        self._spec = spec
        self._aliases = aliases
        self._notes = notes

    def object(self, value: Mapping[str, Any], schema: Any, position: str, depth: int) -> dict[str, Any]:
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        if not isinstance(properties, Mapping) or depth > MAX_DEPTH or not LEFT_TO_THE_TOOL.isdisjoint(schema):
            return dict(value)
        required = schema.get("required") or ()
        read: dict[str, Any] = {}
        for key, item in value.items():
            name = self._name(key, properties, position)
            if name not in properties:
                if self._keeps(key, item, schema):
                    read[key] = item
                elif key not in self._ignored:
                    self._notes.append(f'"{key}" was ignored: {self._spec.name} has no such parameter.')
            elif name != key and value.get(name) is not None:
                self._notes.append(f'"{key}" was ignored, because "{name}" was given too.')
            elif (item is None or item == "") and name not in required and not fits(item, properties[name]):
                continue
            elif name not in read:
                read[name] = self._value(item, properties[name], join(position, name), depth + 1)
        return read

    @property
    def _ignored(self) -> frozenset[str]:
        return self._aliases.ignored if self._aliases is not None else frozenset()

    def _name(self, key: str, properties: Mapping[str, Any], position: str) -> str:
        """Return the parameter that `key` stands for, or `key`."""
        if key in properties or self._aliases is None:
            return key
        names = self._aliases.names
        parameter = names.get(join(position, key)) or names.get(join(position, fold_name(key)))
        if parameter is not None:
            return parameter.rpartition(".")[2]
        return next((name for name in properties if fold_name(name) == fold_name(key)), key)

    def _keeps(self, key: str, item: Any, schema: Mapping[str, Any]) -> bool:
        """Return whether an unknown name stays: for the tool to use, or for the check to refuse."""
        if self._aliases is None or schema.get("additionalProperties") is not False:
            return True
        # It stays, so that the check can report why it is unavailable.
        if key in self._spec.unavailable and item:
            return True
        # Without the parameter a reading call does no harm, and an empty value requests nothing.
        harmless = self._spec.effects <= READ_ONLY or not item
        return not harmless and fold_name(key) in _RESTRICTING_PARAMETERS

    def _value(self, value: Any, schema: Any, position: str, depth: int) -> Any:
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH or not LEFT_TO_THE_TOOL.isdisjoint(schema):
            return value
        if not fits(value, schema):
            value = _coerced(value, schema)
            if self._aliases is not None and isinstance(value, (int, float)) and not isinstance(value, bool):
                value = str(value) if fits("", schema) else value
        value = self._word(value, schema, position)
        if isinstance(value, Mapping):
            return self.object(value, schema, position, depth)
        if isinstance(value, list):
            items = schema.get("items")
            return [self._value(item, items, position, depth + 1) for item in value]
        return value

    def _word(self, value: Any, schema: Mapping[str, Any], position: str) -> Any:
        """Return the enum value that `value` means: a synonym, or the same word in another case."""
        options = schema.get("enum")
        if not isinstance(value, str) or not isinstance(options, (list, tuple)) or value in options:
            return value
        words = self._aliases.words.get(position, {}) if self._aliases is not None else {}
        plain = value.strip().casefold().replace(" ", "_")
        if plain in words:
            return words[plain]
        return next((option for option in options if isinstance(option, str) and option.casefold() == plain), value)


def _coerced(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return `value` converted to a type that `schema` allows, if the conversion is unambiguous."""
    types = schema.get("type")
    if isinstance(types, str):
        types = [types]
    for kind in types or ():
        coerced = _as(value, kind, schema)
        if coerced is not None:
            return coerced
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
            decoded = _json(value)
            return decoded if isinstance(decoded, Mapping) else None
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
        if word in _TRUE_WORDS or word in _FALSE_WORDS:
            return word in _TRUE_WORDS
    return None


def _list(value: Any, items: Any) -> list[Any] | None:
    """Return the list in a JSON string; a single item becomes a list of one."""
    decoded = _json(value)
    if isinstance(decoded, list):
        return decoded
    if isinstance(decoded, Mapping):
        return [decoded]
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
