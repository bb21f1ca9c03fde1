"""An agent file written from a spec, in the spelling of any dialect: the tables of the dialects, read backwards.

Everything that the dialect can express comes back the same from `parse`, and keys that Retinue does not use
(`spec.extra`) are kept. PyYAML (YAML 1.1), npm `yaml` (1.2) and the line-wise readers of some dialects disagree about
plain text: `no`, `1.10`, `2025-01-01`, `a: b`, `x #y`. A string is written plain only if all of them read the same
string; otherwise it is double-quoted, on one line. An `AgentDraft` is an agent as a person describes it in a few
answers.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from retinue.agents.dialects.table import UNSET, BadValueError, Dialect, FieldRow
from retinue.agents.dialects.tables import DIALECTS
from retinue.agents.dialects.tools import ToolChoice, split_names
from retinue.agents.dialects.translate import GRANTING_MODES
from retinue.agents.dialects.values import DISABLED, ENABLED, MINUTES
from retinue.core.spec import AgentSpec, DialectName, HookSpec
from retinue.errors import UsageError

_RESERVED_WORDS = frozenset(
    ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity", "~", "undefined"]
)
_PLAIN_START = re.compile(r"[^\W\d]|[/(\u0100-\U0010ffff]")
_QUOTED_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_SIMPLE_KEY_LIMIT = 1000
"""YAML readers give up looking for the colon after 1,024 characters; longer keys need `? key`."""


def is_plain(text: str) -> bool:
    """Return whether `text` needs no quotes as the value of a key, for any reader."""
    if not text or text != text.strip() or not text.isprintable():
        return False
    if not _PLAIN_START.match(text) or text.lower() in _RESERVED_WORDS:
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
    needs_no_quotes = is_plain_in_list if in_list else is_plain
    return text if needs_no_quotes(text) else quote(text)


def flow(value: Any) -> str:
    """Any value on one line: `[a, "b c: d"]`, `{key: [1, 2]}`."""
    return _flow(value, partial(scalar, in_list=True))


def json_flow(value: Any) -> str:
    """Any value on one line with every string quoted: read alike by YAML and by JSON."""
    return _flow(value, lambda leaf: quote(leaf) if isinstance(leaf, str) else scalar(leaf))


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
        first, *others = _after(pad + ":", value, indent)
        return [f"{pad}? {name}", first, *others]
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
    first, *others = _elements(value, indent + 2)
    return [f"{pad}- {first[indent + 2 :]}", *others]


def _escape(char: str) -> str:
    if char in _QUOTED_ESCAPES:
        return _QUOTED_ESCAPES[char]
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


ABSENT_KEY: Final = object()
"""The field means the same as leaving its key out."""

_MILLISECONDS_FROM = 1000


_DEFAULT_SPEC = AgentSpec(name="")


def encode(spec: AgentSpec, row: FieldRow, dialect: DialectName) -> Any:
    """Return the value under the key of `row` from which `spec` is read again, or ABSENT_KEY."""
    field = row.to or ""
    encoder = _ENCODERS.get(field)
    if encoder is not None:
        return encoder(spec, row, dialect)
    value = value_of(spec, field)
    # pi's default is written as well: without a key that only pi has, a file may be devkit-pi's.
    if value == value_of(_DEFAULT_SPEC, field) and (dialect, field) != ("pi", "prompt_mode"):
        return ABSENT_KEY
    match field:
        case "enabled":
            return row.kind is DISABLED
        case "offered":
            return "primary" if row.key == "mode" else True
        case "timeout_seconds":
            return _number(value / 60 if row.kind is MINUTES else value)
        case "budget":
            return value.as_dict() or ABSENT_KEY
    if isinstance(value, tuple):
        return names(value, row, dialect)
    if field == "subagents":
        return "all" if value else "none"
    return value


def value_of(spec: AgentSpec, field: str) -> Any:
    """Return a field of a spec, dotted for parts of tools, model and session."""
    return attrgetter(field)(spec)


SAFEST: Mapping[str, Any] = {"tools.allow": [], "tools.deny": ["*"], "subagents": "none"}
"""Values for limits that no key of a dialect can express: such a limit is never left out."""


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
        return ABSENT_KEY
    if not tools.allow and not tools.selectors:
        if DIALECTS[dialect].lists_names or dialect == "claude":
            return []
        return "none"
    return names((*tools.allow, *tools.selectors), row, dialect)


def _tool_map(spec: AgentSpec) -> Any:
    """Return opencode's `{read: true, bash: false}`; `"*"` means all tools that are not named."""
    tools = spec.tools
    denied = dict.fromkeys(tools.deny, False) if _deny_in_map(spec) else {}
    chosen = dict.fromkeys((*(tools.allow or ()), *tools.selectors), True)
    if chosen or tools.allow is not None:
        return {"*": tools.allow is None, **chosen, **denied}
    return denied or ABSENT_KEY


def _deny_in_map(spec: AgentSpec) -> bool:
    return {"*", *(spec.tools.allow or ()), *spec.tools.selectors}.isdisjoint(spec.tools.deny)


def _deny(spec: AgentSpec, row: FieldRow, dialect: DialectName) -> Any:
    if not spec.tools.deny or (dialect == "opencode" and _deny_in_map(spec)):
        return ABSENT_KEY
    return names(spec.tools.deny, row, dialect)


def _rules(spec: AgentSpec, row: FieldRow, dialect: DialectName) -> Any:
    """Return a map of tools to patterns."""
    # The last pattern that matches decides, so a tool that comes again moves to the end with all its patterns.
    tools: dict[str, dict[str, str]] = {}
    for rule in spec.tools.rules:
        patterns = tools.pop(rule.tool, {})
        patterns.pop(rule.pattern, None)
        tools[rule.tool] = {**patterns, rule.pattern: rule.verdict}
    return tools or ABSENT_KEY


def _model(spec: AgentSpec, row: FieldRow, dialect: DialectName) -> Any:
    model = spec.model
    if model.fallbacks and not any(row.to == "model.fallbacks" for row in DIALECTS[dialect].fields):
        return [model.name or "inherit", *model.fallbacks]
    if model.name is None:
        return ABSENT_KEY
    if split_names(model.name) == (model.name,):
        return model.name
    return [model.name]


def _servers(spec: AgentSpec, row: FieldRow, dialect: DialectName) -> Any:
    if spec.servers is None:
        return ABSENT_KEY
    configs = {server.name: server.config for server in spec.servers}
    if DIALECTS[dialect].maps_servers and len(configs) == len(spec.servers):
        return configs
    return [server.name if server.config is None else {server.name: server.config} for server in spec.servers]


def _hooks(spec: AgentSpec, row: FieldRow, dialect: DialectName) -> Any:
    """Return Claude Code's nested form, or a list."""
    # A list is needed where the order has one event twice, or where the dialect's own loader knows only lists.
    if not spec.hooks:
        return ABSENT_KEY
    listed = []
    for (event, matcher), group in groupby(spec.hooks, key=lambda hook: (hook.event, hook.matcher)):
        head = {} if matcher is None else {"matcher": matcher}
        listed.append({"event": event, **head, "hooks": [_handler(hook) for hook in group]})
    by_event: dict[str, Any] = {}
    last = None
    for entry in listed:
        event = entry["event"]
        if dialect == "codingcode" or (event != last and event in by_event):
            return listed
        last = event
        by_event.setdefault(event, []).append({key: entry[key] for key in entry if key != "event"})
    return by_event


def _handler(hook: HookSpec) -> dict[str, Any]:
    seconds = hook.timeout_seconds
    if seconds is None:
        return dict(hook.handler)
    return {**hook.handler, "timeout": _number(seconds * 1000 if seconds >= _MILLISECONDS_FROM else seconds)}


def _number(value: float) -> float:
    if value == int(value):
        return int(value)
    return value


_ENCODERS: Mapping[str, Callable[[AgentSpec, FieldRow, DialectName], Any]] = {
    "description": lambda spec, row, dialect: spec.description or spec.name,
    "tools.allow": _tools,
    "tools.deny": _deny,
    "tools.rules": _rules,
    "model.name": _model,
    "servers": _servers,
    "hooks": _hooks,
}
"""Of fields that are not written as they are."""


MAX_AGENT_NAME_CHARACTERS = 128
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?\Z")
_UNSAFE = re.compile(r'[^\w.+ @-]|[<>"|?*]')


def check_name(name: str) -> str:
    """Return the name without outer spaces. Raise UsageError for one that does not work in every dialect
    and as a file on every system."""
    clean = name.strip()
    if not clean:
        raise UsageError("An agent needs a name.", remedy="Give one such as code-reviewer.")
    if len(clean) > MAX_AGENT_NAME_CHARACTERS or len(clean.encode()) > 200:
        raise UsageError(
            f"The name is longer than {MAX_AGENT_NAME_CHARACTERS} characters.", remedy="Choose a shorter one."
        )
    if any(mark in clean for mark in "/\\:") or clean.startswith((".", "-")):
        raise UsageError(
            f"'{clean}' cannot be an agent's name.",
            remedy="A name has no '/', '\\' or ':' and does not begin with '.' or '-'. Example: code-reviewer",
        )
    if any(unicodedata.category(char).startswith("C") for char in clean) or _RESERVED.match(clean):
        raise UsageError(
            f"{clean!r} cannot be an agent's name.",
            remedy="A name has no control characters and is no device name of any system. Example: code-reviewer",
        )
    return clean


def file_name(name: str, dialect: DialectName) -> str:
    """Return what the file of an agent of that name is called in that dialect."""
    if dialect == "codingcode":
        stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    else:
        stem = _UNSAFE.sub("-", name).strip(". -")
    return (stem or "agent") + DIALECTS[dialect].suffixes[0]


_SIMPLE_KEY = re.compile(r"[\w-]+")


def write_agent(spec: AgentSpec, dialect: DialectName) -> str:
    """Return the whole file: frontmatter, then the prompt, LF endings. Raise UsageError for Kimi, whose files
    keep their prompts elsewhere."""
    table = DIALECTS[dialect]
    if table.nested_under is not None:
        raise UsageError(
            f"{table.title} keeps an agent's prompt in a file of its own, so one file cannot hold this agent.",
            remedy="Choose another dialect, such as retinue or claude.",
        )
    fields = statements(spec, dialect)
    everything = {**fields, **spec.extra, **fields}
    if table.simple:
        lines = _simple_lines(fields, everything)
    else:
        lines = []
        for key, value in everything.items():
            lines += _entry(key, value, dialect)
    # A file with NUL in it is binary to every reader.
    prompt = spec.prompt.replace("\0", "\ufffd")
    body = f"\n{prompt}\n" if prompt else ""
    return "\n".join(["---", *lines, "---", body])


def statements(spec: AgentSpec, dialect: DialectName) -> dict[str, Any]:
    """Return the keys that Retinue honours in a file of that dialect, with their values, in order. A value
    that no row of the dialect can express is left out; a limit becomes the strictest one instead."""
    values: dict[str, Any] = {}
    settled: set[str | None] = set()
    table = DIALECTS[dialect]
    for row in rows(table):
        if row.to in settled:
            continue
        value = encode(spec, row, dialect)
        key = spelling(table, row)
        if row in table.foreign and row.to == "permission_mode" and value in GRANTING_MODES:
            # Such a mode is not honoured in a file of this dialect.
            value = ABSENT_KEY
        if value is ABSENT_KEY:
            settled.add(row.to)
        elif key is not None and _accepts(row, value, spec):
            settled.add(row.to)
            values[key] = value
    for row in rows(table):
        if row.to is not None and row.to in SAFEST and row.to not in settled:
            settled.add(row.to)
            values[row.key] = SAFEST[row.to]
    return values


def rows(table: Dialect) -> Iterator[FieldRow]:
    """Yield every row for a field of the spec: the dialect's own first, then
    those that Retinue honours everywhere because they limit."""
    for row in (*table.fields, *table.foreign):
        if table.simple and row.kind is ENABLED:
            # `enabled` wants a real false, and this loader's values are all text.
            continue
        if row.to is not None and row.to != "prompt":
            yield row


def spelling(table: Dialect, row: FieldRow) -> str | None:
    """Return the first way to write the key of `row` that no row before it claims."""
    for word in row.spellings:
        match = table.match(word)
        if match is not None and match.field is row:
            return word
    return None


def _accepts(row: FieldRow, value: Any, spec: AgentSpec) -> bool:
    """Return whether the row reads `value` back, and no list of names as more than the spec allows."""
    # An agent called `true` or a tool called `all` must not open everything.
    try:
        meaning = row.kind.read(value)
    except BadValueError:
        return False
    if isinstance(meaning, ToolChoice) and spec.tools.allow is not None:
        return meaning.allow is not None and set(meaning.allow) <= set(spec.tools.allow)
    if row.to == "subagents" and spec.subagents is not True:
        return meaning is not True
    return meaning is not UNSET


def off_switch(dialect: DialectName) -> tuple[str, bool]:
    """Return the key and value that switch an agent of that dialect off, as Retinue reads them."""
    for row in rows(DIALECTS[dialect]):
        if row.to == "enabled":
            return row.key, row.kind is DISABLED
    raise AssertionError(f"{dialect} has no key that switches an agent off")


def _entry(key: str, value: Any, dialect: DialectName) -> list[str]:
    if isinstance(value, (list, tuple, dict)):
        name = scalar(key, in_list=True)
        words = isinstance(value, (list, tuple)) and not any(isinstance(item, (list, dict)) for item in value)
        if dialect == "codingcode" and not (words and all(is_plain_in_list(str(item)) for item in value)):
            # Its own reader knows no nesting, but JSON.
            return [f"{name}: {json_flow(value)}"]
        if words:
            return [f"{name}: {flow(value)}"]
    return entry(key, value)


def _simple_lines(fields: dict[str, Any], everything: dict[str, Any]) -> list[str]:
    """Return the lines for a loader that knows one `key: value` a line, all of it text."""
    # It strips one pair of quotes and undoes no escapes. What does not fit is written as YAML with its key in
    # quotes, which tells our reader to take the whole block for YAML.
    simple: list[str] = []
    lines: list[str] = []
    for key, value in everything.items():
        first, *others = entry(key, value)
        if key in fields and isinstance(value, (int, float)):
            value = scalar(value)
        if _is_simple(value):
            simple.append(f"{key}: {_simple(value)}".rstrip())
        elif first.startswith(f"{key}:"):
            first = quote(key) + first[len(key) :]
        lines += [first, *others]
    if len(simple) == len(everything) and all(_SIMPLE_KEY.fullmatch(key) for key in everything):
        return simple
    return lines


def _is_simple(value: Any) -> bool:
    if isinstance(value, str):
        return value.isprintable() and value.strip() == value != ""
    return value is None


def _simple(value: str | None) -> str:
    if value is None or is_plain(value):
        return value or ""
    mark = "'" if '"' in value or "\\" in value else '"'
    return f"{mark}{value}{mark}"
