"""The description of the Agent tool, and the list of agents in it.

The description is full, compact, or from a template of the user's own. All three are templates filled
in the same way, so that a copy of `prompts/Agent.md` as a custom template yields exactly the full
text. Values are inserted literally and once: a description that contains a placeholder stays as it is.

The line of an agent names the tools that it gets and the model in its file. An agent that cannot be started has no
line.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

from msgspec import Struct

from retinue.core.files import read_head
from retinue.core.spec import AgentSpec
from retinue.core.tool_names import BUILT_IN_SEVEN, base_name, canonical
from retinue.settings.places import pi_home, repository_root, retinue_home
from retinue.tools.delegation.frame import one_line

MAX_AGENT_DESCRIPTION_CHARACTERS = 1_000
"""Characters of one agent's description in the full list."""
MAX_SENTENCE_CHARACTERS = 240
_MAX_NAMED_TOOLS = 12
_ALL_TOOLS = frozenset({"*", "all"})
_SENTENCE = re.compile(r"[.!?](?=\s|$)")
_DATE = re.compile(r"-\d{8}$")


class TypeLine(Struct, frozen=True):
    """`tools` is the text after "Tools:", or empty. `model` is empty if the agent uses its parent's model."""

    name: str
    description: str
    tools: str = "*"
    model: str = ""

    def full(self) -> str:
        return self._line(self.description)

    def compact(self) -> str:
        return self._line(one_line(first_sentence(self.description), MAX_SENTENCE_CHARACTERS))

    def _line(self, text: str) -> str:
        line = f"- {self.name}: {text}"
        if self.tools:
            line += f" (Tools: {self.tools})"
        if self.model:
            line += f" ({self.model})"
        return line


def type_lines(specs: Iterable[AgentSpec], available: Collection[str] | None = None) -> tuple[TypeLine, ...]:
    """Return one line for each agent that may be started, the user's own first, then by name.

    `available` are the tools of this session. With it, only those are named, and an agent is left out if none of its
    listed tools exists, because its start would be refused. Lines are cached by their specs, because every run that
    may delegate asks for them.
    """
    agents = tuple(specs)
    session = None if available is None else frozenset(available)
    # Specs are large and frozen: comparing identities is quicker than comparing contents.
    key = (tuple(map(id, agents)), session)
    if key not in _lines_by_specs:
        if len(_lines_by_specs) >= _MAX_REMEMBERED_LISTS:
            _lines_by_specs.clear()
        _lines_by_specs[key] = (agents, _lines(agents, session))
    return _lines_by_specs[key][1]


_MAX_REMEMBERED_LISTS = 64
_lines_by_specs: dict[
    tuple[tuple[int, ...], frozenset[str] | None], tuple[tuple[AgentSpec, ...], tuple[TypeLine, ...]]
] = {}
"""Lines by the identities of their specs, which are kept here so that no identity is reused."""


def _lines(specs: tuple[AgentSpec, ...], available: frozenset[str] | None) -> tuple[TypeLine, ...]:
    ordered = sorted(specs, key=lambda spec: (spec.source == "builtin", spec.name.casefold(), spec.name))
    lines: list[TypeLine] = []
    for spec in ordered:
        tools = tools_label(spec, available)
        if not tools:
            continue
        if _states_its_tools(spec):
            tools = ""
        description = one_line(spec.description or spec.name, MAX_AGENT_DESCRIPTION_CHARACTERS)
        lines.append(TypeLine(one_line(spec.name, 128), description, tools, model_label(spec.model.name)))
    return tuple(lines)


_TOOL_SUMMARIES = ("read-only", "every tool", "repairs nothing")


def _states_its_tools(spec: AgentSpec) -> bool:
    """Return whether the description of a shipped agent already states which tools it has."""
    description = spec.description.casefold()
    return spec.source == "builtin" and any(words in description for words in _TOOL_SUMMARIES)


def first_sentence(text: str) -> str:
    """Return `text` up to the first full stop, exclamation or question mark before a space or the end."""
    text = " ".join(text.split())
    end = _SENTENCE.search(text)
    return text[: end.end()] if end else text


def tools_label(spec: AgentSpec, available: Collection[str] | None = None) -> str:
    """Return `*`, the names of the tools, or the reason why there are none; empty if none of the agent's tools is
    available. Known tools have Retinue's own names."""
    asked, denied = spec.tools.allow, _names(spec.tools.deny)
    everything = asked is None or any(entry.strip().lower() in _ALL_TOOLS for entry in asked)
    names: list[str] = []
    if asked is not None and not everything:
        names = _names(asked)
    if everything or set(BUILT_IN_SEVEN) <= set(names):
        return f"* except {_listed(denied)}" if denied else "*"
    present = [name for name in names if available is None or name in available or not canonical(name)]
    if names and not present and not spec.tools.selectors:
        return ""
    allowed = [name for name in present if name not in denied]
    if allowed:
        return _listed(allowed)
    if _extensible(spec):
        return "no built-ins, extension tools only"
    return "none"


def model_label(name: str | None) -> str:
    """Return `anthropic/claude-haiku-4-5-20251001` as `claude-haiku-4-5`."""
    label = (name or "").strip().rpartition("/")[2]
    return "" if label.lower() == "inherit" else one_line(_DATE.sub("", label), 64)


def _names(entries: Iterable[str]) -> list[str]:
    names: dict[str, None] = {}
    for entry in entries:
        name = base_name(entry)
        if name and name.lower() != "none":
            names.update(dict.fromkeys(canonical(name) or (one_line(name, 64),)))
    return list(names)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_MAX_NAMED_TOOLS])
    return f"{shown}, {len(names) - _MAX_NAMED_TOOLS} more" if len(names) > _MAX_NAMED_TOOLS else shown


def _extensible(spec: AgentSpec) -> bool:
    """Return whether the agent has tools of extensions besides the built-in ones. Files of pi add them unless they
    exclude them. In other dialects a list of tools is complete."""
    if spec.isolated or spec.tools.extensions is False:
        return False
    return bool(spec.tools.selectors or spec.tools.extensions) or spec.dialect == "pi"


TEMPLATE_FILE = "agent-tool-description.md"
Mode = Literal["full", "compact", "custom"]

_PLACEHOLDER = re.compile(r"\{\{([A-Za-z]\w*)\}\}")
_TEMPLATES = Path(__file__).parent / "prompts"
_MAX_TEMPLATE_BYTES = 100_000
_OWN_LINE_RULES = frozenset({"scheduleGuideline", "isolationGuideline"})
"""Rules that start on a new line even if a template puts them on the line of another rule."""


class Wording(Struct, frozen=True, kw_only=True):
    """The values that the descriptions of the delegation tools depend on. `depth` is the depth of the run that has the
    tool (0 for the main run). `background` tells whether agents work in the background unless the call says otherwise.
    `default` is the agent of a call that names none. `template` is the text of mode `custom`."""

    types: tuple[TypeLine, ...] = ()
    mode: Mode = "full"
    template: str | None = None
    agent_dir: str = "~/.retinue/agents"
    depth: int = 0
    max_depth: int = 3
    background: bool = True
    default: str | None = "general-purpose"
    schedules: bool = False
    worktrees: bool = True


class Template(Struct, frozen=True):
    """The user's description of the Agent tool, if there is a usable one, and warnings about it."""

    text: str | None = None
    path: Path | None = None
    warnings: tuple[str, ...] = ()


@lru_cache(maxsize=128)
def describe(wording: Wording) -> str:
    """Return the description for `wording`. Mode `custom` without a template gives the full description."""
    if wording.mode == "custom" and (wording.template or "").strip():
        return fill((wording.template or "").strip(), wording)
    if wording.mode == "compact":
        return fill(_shipped("agent-compact"), wording)
    return fill(_shipped("Agent"), wording)


def fill(template: str, wording: Wording) -> str:
    """Return `template` with its placeholders replaced. A line of nothing but placeholders disappears
    when they are empty; an unknown placeholder stays."""
    values = _values(wording)

    def value(match: re.Match[str]) -> str:
        text = values.get(match[1], match[0])
        follows = match[1] in _OWN_LINE_RULES and bool(match.string[: match.start()].strip())
        if text and follows:
            return f"\n{text}"
        return text

    lines = []
    for line in template.replace("\r\n", "\n").strip().split("\n"):
        filled = _PLACEHOLDER.sub(value, line)
        if filled.strip() or not _PLACEHOLDER.search(line):
            lines.append(filled)
    return "\n".join(lines)


def find_template(cwd: Path, environment: Mapping[str, str] | None = None) -> Template:
    """Return the user's template: the project's nearest one, else the user's own. An unreadable or
    empty file is skipped with a warning."""
    warnings: list[str] = []
    for path in _places(cwd, environment):
        text = _read(path, warnings)
        if text is not None:
            return Template(text, path, (*warnings, *_unknown(text, path)))
    warnings.append(f"toolDescriptionMode is custom, but there is no {TEMPLATE_FILE}; the full description is used.")
    return Template(None, None, tuple(warnings))


def _values(wording: Wording) -> dict[str, str]:
    following = wording.depth + 1
    guidelines = _guidelines()
    foreground = "background" if wording.background else "foreground"
    values = {
        "typeList": "\n".join(map(TypeLine.full, wording.types)),
        "compactTypeList": "\n".join(map(TypeLine.compact, wording.types)),
        "agentDir": wording.agent_dir,
        "backgroundGuideline": guidelines[foreground],
        "scheduleGuideline": "",
        "isolationGuideline": "",
        "currentDepth": str(following),
        "maxDepth": str(wording.max_depth),
        "recursiveGuideline": f"{guidelines['recursive']} {following}/{wording.max_depth}.",
    }
    if wording.schedules:
        values["scheduleGuideline"] = guidelines["schedule"]
    if wording.worktrees:
        values["isolationGuideline"] = guidelines["isolation"]
    return values


@cache
def _shipped(name: str) -> str:
    return (_TEMPLATES / f"{name}.md").read_text("utf-8")


@cache
def _guidelines() -> dict[str, str]:
    """Return the rules of `agent-guidelines.md`, which has one line for each, as `name: text`."""
    guidelines: dict[str, str] = {}
    for line in _shipped("agent-guidelines").strip().splitlines():
        name, _, text = line.partition(": ")
        guidelines[name] = text
    return guidelines


def _places(cwd: Path, environment: Mapping[str, str] | None) -> Iterator[Path]:
    root = repository_root(cwd) or cwd
    for folder in (cwd, *cwd.parents):
        yield folder / ".retinue" / TEMPLATE_FILE
        yield folder / ".pi" / TEMPLATE_FILE
        if folder == root:
            break
    yield retinue_home(environment) / TEMPLATE_FILE
    yield pi_home(environment) / TEMPLATE_FILE


def _read(path: Path, warnings: list[str]) -> str | None:
    try:
        text = read_head(path, _MAX_TEMPLATE_BYTES).decode("utf-8-sig", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        warnings.append(f"{path} cannot be read ({error.strerror}).")
        return None
    if text.strip():
        return text
    warnings.append(f"{path} is empty.")
    return None


def _unknown(text: str, path: Path) -> tuple[str, ...]:
    placeholders = _values(Wording())
    warnings: list[str] = []
    for name in dict.fromkeys(_PLACEHOLDER.findall(text)):
        if name not in placeholders:
            warnings.append(f"{path}: unknown placeholder {{{{{name}}}}} is left as it is.")
    return tuple(warnings)
