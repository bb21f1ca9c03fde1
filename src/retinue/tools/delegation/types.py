"""The agents that can be started, as lines of a tool description.

A line is true or it is not there: it names the tools an agent really gets and the model its
file asks for, nothing a caller would be disappointed by.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from retinue.core.lean import dataclass
from retinue.core.spec import AgentSpec
from retinue.core.toolnames import BUILT_IN_SEVEN, base_name, canonical
from retinue.tools.delegation.frame import one_line

LONGEST = 1_000
"""Characters of one agent's description in the full list."""
LONGEST_SENTENCE = 240
_NAMED = 12
_EVERY = frozenset({"*", "all"})
_SENTENCE = re.compile(r"[.!?](?=\s|$)")
_DATE = re.compile(r"-\d{8}$")


@dataclass(frozen=True, slots=True)
class TypeLine:
    """`tools` is what stands behind "Tools:", if anything does; `model` is empty when the parent's
    is used."""

    name: str
    description: str
    tools: str = "*"
    model: str = ""

    def full(self) -> str:
        return self._line(self.description)

    def compact(self) -> str:
        return self._line(one_line(first_sentence(self.description), LONGEST_SENTENCE))

    def _line(self, text: str) -> str:
        tools = f" (Tools: {self.tools})" if self.tools else ""
        model = f" ({self.model})" if self.model else ""
        return f"- {self.name}: {text}{tools}{model}"


def type_lines(specs: Iterable[AgentSpec], available: Collection[str] | None = None) -> tuple[TypeLine, ...]:
    """One line for each agent that may be started, the user's own first, then by name.

    With `available`, the tools of this session, only those are named, and an agent of whose
    listed tools none is there is left out: starting it would be refused. The same specs give
    the same lines without work, since every run that may delegate asks for them.
    """
    given = tuple(specs)
    session = None if available is None else frozenset(available)
    key = (tuple(map(id, given)), session)
    if key not in _made:
        if len(_made) >= _REMEMBERED:
            _made.clear()
        _made[key] = (given, _lines(given, session))
    return _made[key][1]


_REMEMBERED = 64
_made: dict[tuple[tuple[int, ...], frozenset[str] | None], tuple[tuple[AgentSpec, ...], tuple[TypeLine, ...]]] = {}
"""Lines by the identities of their specs, which are kept here so that no identity is reused."""


def _lines(specs: tuple[AgentSpec, ...], available: frozenset[str] | None) -> tuple[TypeLine, ...]:
    ordered = sorted(specs, key=lambda spec: (spec.source == "builtin", spec.name.casefold(), spec.name))
    labels = [(spec, tools_label(spec, available)) for spec in ordered]
    return tuple(
        TypeLine(
            one_line(spec.name, 128),
            one_line(spec.description or spec.name, LONGEST),
            "" if _is_told(spec) else label,
            model_label(spec.model.name),
        )
        for spec, label in labels
        if label
    )


_TELLING = ("read-only", "every tool", "repairs nothing")


def _is_told(spec: AgentSpec) -> bool:
    """Whether the description of a shipped agent tells all that its list of tools would."""
    said = spec.description.casefold()
    return spec.source == "builtin" and any(words in said for words in _TELLING)


def first_sentence(text: str) -> str:
    """Up to the first full stop, exclamation or question mark before a space or the end."""
    text = " ".join(text.split())
    end = _SENTENCE.search(text)
    return text[: end.end()] if end else text


def tools_label(spec: AgentSpec, available: Collection[str] | None = None) -> str:
    """`*`, the names, or why there are none; empty if the agent asks for tools and gets none.
    Names are Retinue's own where it knows them."""
    asked, denied = spec.tools.allow, _names(spec.tools.deny)
    everything = asked is None or any(entry.strip().lower() in _EVERY for entry in asked)
    names = [] if everything or asked is None else _names(asked)
    if everything or set(BUILT_IN_SEVEN) <= set(names):
        return f"* except {_listed(denied)}" if denied else "*"
    present = [name for name in names if available is None or name in available or not canonical(name)]
    if names and not present and not spec.tools.selectors:
        return ""
    left = [name for name in present if name not in denied]
    if left:
        return _listed(left)
    return "no built-ins, extension tools only" if _extensible(spec) else "none"


def model_label(name: str | None) -> str:
    """`anthropic/claude-haiku-4-5-20251001` as `claude-haiku-4-5`."""
    label = (name or "").strip().rpartition("/")[2]
    return "" if label.lower() == "inherit" else one_line(_DATE.sub("", label), 64)


def _names(entries: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for entry in entries:
        name = base_name(entry)
        if name and name.lower() != "none":
            found.update(dict.fromkeys(canonical(name) or (one_line(name, 64),)))
    return list(found)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return f"{shown}, {len(names) - _NAMED} more" if len(names) > _NAMED else shown


def _extensible(spec: AgentSpec) -> bool:
    """Whether tools of extensions come on top of the built-in ones. In pi's files they do unless
    the file says no; elsewhere a list of tools is the whole list."""
    if spec.isolated or spec.tools.extensions is False:
        return False
    return bool(spec.tools.selectors or spec.tools.extensions) or spec.dialect == "pi"
