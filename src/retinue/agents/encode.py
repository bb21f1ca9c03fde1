"""The fields of a spec as YAML values that every reader of agent files understands alike.

PyYAML (YAML 1.1), npm `yaml` (1.2) and the line-wise readers of some dialects disagree about plain
text: `no`, `1.10`, `2025-01-01`, `a: b`, `x #y`. A string is written plain only if all of them read
the same string; otherwise it is double-quoted, on one line. Values are encoded by the tables of the
dialects, read backwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, Final

from retinue.agents.dialects.table import BadValueError, FieldRow
from retinue.agents.dialects.tables import DIALECTS
from retinue.agents.dialects.tools import split_names
from retinue.agents.dialects.values import DISABLED, MINUTES
from retinue.core.spec import AgentSpec, DialectName, HookSpec, ServerRef

_WORDS = frozenset(
    ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity", "~", "undefined"]
)
_PLAIN_START = re.compile(r"[^\W\d]|[/(\u0100-\U0010ffff]")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_SIMPLE_KEY_LIMIT = 1000
"""YAML readers give up looking for the colon after 1,024 characters; longer keys need `? key`."""


def is_plain(text: str) -> bool:
    """Return whether `text` needs no quotes as the value of a key, for any reader."""
    if not text or text != text.strip() or not text.isprintable():
        return False
    if not _PLAIN_START.match(text) or text.lower() in _WORDS:
        return False
    return ": " not in text and " #" not in text and not text.endswith(":")


def is_plain_in_list(text: str) -> bool:
    """Return whether `text` needs no quotes inside `[a, b]`."""
    return is_plain(text) and not any(mark in text for mark in ",[]{}:?")


def quote(text: str) -> str:
    """Return `text` in double quotes, on one line; half a surrogate pair becomes U+FFFD, for no file
    can hold it."""
    return '"' + "".join(_escape(char) for char in text) + '"'


def scalar(value: Any, *, in_list: bool = False) -> str:
    """One value that is no collection. What YAML has no word for is written as its text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    text = str(value)
    plain = is_plain_in_list(text) if in_list else is_plain(text)
    if plain:
        return text
    return quote(text)


def flow(value: Any) -> str:
    """Any value on one line: `[a, "b c: d"]`, `{key: [1, 2]}`."""
    return _flow(value, lambda each: scalar(each, in_list=True))


def json_flow(value: Any) -> str:
    """Any value on one line with every string quoted: read alike by YAML and by JSON."""
    return _flow(value, lambda each: quote(each) if isinstance(each, str) else scalar(each))


def _flow(value: Any, leaf: Callable[[Any], str]) -> str:
    parts = []
    if isinstance(value, Mapping):
        for key, item in value.items():
            name = leaf(key)
            if len(name) > _SIMPLE_KEY_LIMIT:
                name = f"? {name} "
            parts.append(f"{name}: {_flow(item, leaf)}")
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, (list, tuple)):
        for item in value:
            parts.append(_flow(item, leaf))
        return f"[{', '.join(parts)}]"
    return leaf(value)


def entry(key: Any, value: Any, indent: int = 0) -> list[str]:
    """Return `key: value` as lines without endings, collections in block form."""
    pad = " " * indent
    name = scalar(key, in_list=True)
    if len(name) > _SIMPLE_KEY_LIMIT:
        first, *rest = _after(pad + ":", value, indent)
        return [f"{pad}? {name}", first, *rest]
    return _after(f"{pad}{name}:", value, indent)


def _after(head: str, value: Any, indent: int) -> list[str]:
    if isinstance(value, (Mapping, list, tuple)):
        if value:
            return [head, *_elements(value, indent + 2)]
        return [f"{head} {flow(value)}"]
    return [f"{head} {scalar(value)}"]


def _elements(value: Any, indent: int) -> list[str]:
    """Return the lines of what is in a collection."""
    lines: list[str] = []
    if isinstance(value, Mapping):
        for key, item in value.items():
            lines += entry(key, item, indent)
    else:
        for item in value:
            lines += _item(item, indent)
    return lines


def _item(value: Any, indent: int) -> list[str]:
    """Return the lines of one element of a block list."""
    pad = " " * indent
    if not isinstance(value, (Mapping, list, tuple)) or not value:
        return [f"{pad}- {flow(value)}"]
    # A collection begins on the dash's own line.
    first, *rest = _elements(value, indent + 2)
    return [f"{pad}- {first[indent + 2 :]}", *rest]


def _escape(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char == " " or char.isprintable():
        return char
    code = ord(char)
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    if code < 0x10000:
        return f"\\u{code:04X}"
    return f"\\U{code:08X}"


def _float(value: float) -> str:
    # PyYAML reads `1e3` as text; `1.0e3` is a number to every reader.
    if value != value:
        return ".nan"
    if value in (float("inf"), float("-inf")):
        return ".inf" if value > 0 else "-.inf"
    text = repr(value)
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e")
    return text


ABSENT: Final = object()
"""The field says what leaving the key out says."""

_MILLISECONDS_FROM = 1000


def encode(spec: AgentSpec, row: FieldRow, dialect: DialectName) -> Any:
    """Return what `row` has to say for `spec` to come back, or ABSENT."""
    encoder = _ENCODERS.get(row.to or "")
    if encoder is None:
        return ABSENT
    return encoder(spec, row, dialect)


SAFEST: Mapping[str, Any] = {"tools.allow": [], "tools.deny": ["*"], "subagents": "none"}
"""What is written for a limit that no key of a dialect can say: never nothing."""


def names(values: tuple[str, ...], row: FieldRow, dialect: DialectName) -> Any:
    """Return `a, b` where that is read as the same names, else a list."""
    listed = list(values)
    if DIALECTS[dialect].lists_names or not values:
        return listed
    text = ", ".join(values)
    try:
        if row.kind.read(text) == row.kind.read(listed):
            return text
        return listed
    except BadValueError:
        return listed


def _tools(spec: AgentSpec, row: FieldRow, dialect: DialectName) -> Any:
    tools = spec.tools
    if dialect == "opencode":
        return _tool_map(spec)
    if tools.allow is None:
        if tools.selectors:
            return names(("*", *tools.selectors), row, dialect)
        return ABSENT
    if not tools.allow and not tools.selectors:
        if DIALECTS[dialect].lists_names or dialect == "claude":
            return []
        return "none"
    return names((*tools.allow, *tools.selectors), row, dialect)


def _tool_map(spec: AgentSpec) -> Any:
    """Return opencode's `{read: true, bash: false}`; `"*"` stands for what is not named."""
    tools = spec.tools
    denied = dict.fromkeys(tools.deny, False) if _deny_in_map(spec) else {}
    chosen = dict.fromkeys((*(tools.allow or ()), *tools.selectors), True)
    if chosen or tools.allow is not None:
        return {"*": tools.allow is None, **chosen, **denied}
    return denied or ABSENT


def _deny_in_map(spec: AgentSpec) -> bool:
    named = {"*", *(spec.tools.allow or ()), *spec.tools.selectors}
    return named.isdisjoint(spec.tools.deny)


def _deny(spec: AgentSpec, row: FieldRow, dialect: DialectName) -> Any:
    if not spec.tools.deny or (dialect == "opencode" and _deny_in_map(spec)):
        return ABSENT
    return names(spec.tools.deny, row, dialect)


def _rules(spec: AgentSpec, row: FieldRow, dialect: DialectName) -> Any:
    """Return a map of tools to patterns."""
    # The last pattern that matches counts, so a tool that comes again moves to the end with all its patterns.
    found: dict[str, dict[str, str]] = {}
    for rule in spec.tools.rules:
        patterns = found.pop(rule.tool, {})
        patterns.pop(rule.pattern, None)
        found[rule.tool] = {**patterns, rule.pattern: rule.verdict}
    return found or ABSENT


def _model(spec: AgentSpec, row: FieldRow, dialect: DialectName) -> Any:
    model = spec.model
    if model.fallbacks and not any(each.to == "model.fallbacks" for each in DIALECTS[dialect].fields):
        return [model.name or "inherit", *model.fallbacks]
    if model.name is None:
        return ABSENT
    if split_names(model.name) == (model.name,):
        return model.name
    return [model.name]


def _enabled(spec: AgentSpec, row: FieldRow, dialect: DialectName) -> Any:
    if spec.enabled:
        return ABSENT
    return row.kind is DISABLED


def _offered(spec: AgentSpec, row: FieldRow, dialect: DialectName) -> Any:
    if spec.offered:
        return ABSENT
    return "primary" if row.key == "mode" else True


def _timeout(spec: AgentSpec, row: FieldRow, dialect: DialectName) -> Any:
    if spec.timeout_seconds is None:
        return ABSENT
    return _number(spec.timeout_seconds / 60 if row.kind is MINUTES else spec.timeout_seconds)


def _servers(spec: AgentSpec, row: FieldRow, dialect: DialectName) -> Any:
    if spec.servers is None:
        return ABSENT
    unique = {server.name for server in spec.servers}
    if DIALECTS[dialect].maps_servers and len(unique) == len(spec.servers):
        return {server.name: server.config for server in spec.servers}
    return [_server(server) for server in spec.servers]


def _server(server: ServerRef) -> Any:
    if server.config is None:
        return server.name
    return {server.name: server.config}


def _hooks(spec: AgentSpec, row: FieldRow, dialect: DialectName) -> Any:
    """Return Claude Code's nested form, or a list."""
    # A list is needed where the order has one event twice, or where the dialect's own loader knows only lists.
    if not spec.hooks:
        return ABSENT
    by_event: dict[str, Any] = {}
    listed: list[dict[str, Any]] = []
    repeats = False
    for event, hooks in groupby(spec.hooks, key=lambda hook: hook.event):
        entries = _matchers(hooks)
        repeats = repeats or event in by_event
        by_event[event] = entries
        for entry in entries:
            listed.append({"event": event, **entry})
    if dialect == "codingcode" or repeats:
        return listed
    return by_event


def _matchers(hooks: Iterable[HookSpec]) -> list[dict[str, Any]]:
    entries = []
    for matcher, group in groupby(hooks, key=lambda hook: hook.matcher):
        head = {} if matcher is None else {"matcher": matcher}
        entries.append({**head, "hooks": [_handler(hook) for hook in group]})
    return entries


def _handler(hook: HookSpec) -> dict[str, Any]:
    if hook.timeout_seconds is None:
        return dict(hook.handler)
    seconds = hook.timeout_seconds
    return {**hook.handler, "timeout": _number(seconds * 1000 if seconds >= _MILLISECONDS_FROM else seconds)}


def _subagents(spec: AgentSpec, row: FieldRow, dialect: DialectName) -> Any:
    if isinstance(spec.subagents, tuple):
        return names(spec.subagents, row, dialect)
    if spec.subagents is None:
        return ABSENT
    return "all" if spec.subagents else "none"


def _prompt_mode(spec: AgentSpec, row: FieldRow, dialect: DialectName) -> Any:
    """Return the mode; pi's default is written, too: without a key that only pi has, a file may be devkit-pi's."""
    if spec.prompt_mode == "replace" and dialect != "pi":
        return ABSENT
    return spec.prompt_mode


def _number(value: float) -> float:
    if value == int(value):
        return int(value)
    return value


def _said(read: Callable[[AgentSpec], Any], default: Any = None) -> Callable[[AgentSpec, FieldRow, DialectName], Any]:
    """Return the encoder of a field that is written as it is, unless an absent key says the same."""

    def encoder(spec: AgentSpec, row: FieldRow, dialect: DialectName) -> Any:
        value = read(spec)
        if value == default:
            return ABSENT
        if isinstance(value, tuple):
            return names(value, row, dialect)
        return value

    return encoder


_ENCODERS: Mapping[str, Callable[[AgentSpec, FieldRow, DialectName], Any]] = {
    "name": _said(lambda spec: spec.name),
    "description": _said(lambda spec: spec.description or spec.name),
    "display_name": _said(lambda spec: spec.display_name),
    "color": _said(lambda spec: spec.color),
    "tools.allow": _tools,
    "tools.deny": _deny,
    "tools.rules": _rules,
    "tools.extensions": _said(lambda spec: spec.tools.extensions),
    "tools.exclude_extensions": _said(lambda spec: spec.tools.exclude_extensions, ()),
    "model.name": _model,
    "model.fallbacks": _said(lambda spec: spec.model.fallbacks, ()),
    "model.thinking": _said(lambda spec: spec.model.thinking),
    "model.temperature": _said(lambda spec: spec.model.temperature),
    "max_turns": _said(lambda spec: spec.max_turns),
    "timeout_seconds": _timeout,
    "budget": _said(lambda spec: spec.budget.as_dict() or None if spec.budget else None),
    "prompt_mode": _prompt_mode,
    "initial_prompt": _said(lambda spec: spec.initial_prompt),
    "inherit_context": _said(lambda spec: spec.inherit_context),
    "omit_instructions": _said(lambda spec: spec.omit_instructions),
    "compact_at_tokens": _said(lambda spec: spec.compact_at_tokens),
    "observer": _said(lambda spec: spec.observer, ()),
    "observer_message": _said(lambda spec: spec.observer_message),
    "background": _said(lambda spec: spec.background),
    "isolated": _said(lambda spec: spec.isolated),
    "isolation": _said(lambda spec: spec.isolation),
    "placement": _said(lambda spec: spec.placement),
    "memory": _said(lambda spec: spec.memory),
    "skills": _said(lambda spec: spec.skills),
    "servers": _servers,
    "required_servers": _said(lambda spec: spec.required_servers, ()),
    "hooks": _hooks,
    "permission_mode": _said(lambda spec: spec.permission_mode),
    "readonly": _said(lambda spec: spec.readonly),
    "rollback": _said(lambda spec: spec.rollback),
    "subagents": _subagents,
    "output_schema": _said(lambda spec: spec.output_schema),
    "session.persist": _said(lambda spec: spec.session.persist),
    "session.directory": _said(lambda spec: spec.session.directory),
    "session.transcript": _said(lambda spec: spec.session.transcript),
    "enabled": _enabled,
    "offered": _offered,
}
