"""A dialect: a table of fields and a few facts about its files.

A row names the key, the reader of its value, and the field of `AgentSpec` it becomes. Reading, reporting and the
reference page all work from the rows.

A restricting field whose value cannot be read is treated alike in every dialect: the file keeps its
name, the problem is reported with line, reason and remedy, and the agent does not start until the
file is corrected. An unreadable value never means more rights, and is never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any, Literal

from msgspec import UNSET as UNSET
from msgspec import Struct, field

from retinue.core.spec import DialectName, Fate
from retinue.core.tool_names import off_by_one

RESTRICTING: Mapping[str, str] = {
    "tools.allow": "which tools it has",
    "tools.deny": "which tools it does not have",
    "tools.rules": "which calls it may make",
    "tools.extensions": "which extensions it has",
    "tools.exclude_extensions": "which extensions it does not have",
    "subagents": "which agents it may start",
    "isolated": "whether it has anything beyond the built-in tools",
    "isolation": "where it works",
    "readonly": "whether it may change anything",
    "permission_mode": "what it is asked about",
    "max_turns": "how many turns it has",
    "timeout_seconds": "how long it runs",
    "budget": "what it may spend",
    "output_schema": "what it has to return",
    "rollback": "what is undone when it fails",
    "hooks": "what is checked while it runs",
    "enabled": "whether it may be started",
}
"""Fields of the spec, and what each of them restricts."""

Role = Literal["grants", "neutral"]
"""Whether a field can add to the rights of an agent: a misspelt key that grants is ignored. A misspelt key that
restricts (`RESTRICTING`) is honoured."""

How = Literal["own", "foreign", "near", "typo"]
"""How a key was recognised: as the dialect spells it, as another dialect does, but for case and
separators (or as a known slip), or with a letter wrong."""


class BadValueError(Exception):
    """A value that is not what its field wants. `instead` is what is used in its place."""

    def __init__(self, why: str, remedy: str = "", *, instead: Any = UNSET, code: str = "bad-value") -> None:
        super().__init__(why)
        self.why = why
        self.remedy = remedy
        self.instead = instead
        self.code = code


UNSET_RULE = "dropped and reported; as if the key were absent"


class FieldKind(Struct, frozen=True):
    """How values of a field are read. `type` and `bad` are what the reference page prints."""

    type: str
    reader: Callable[[Any], Any]
    bad: str = UNSET_RULE
    blank: Any = UNSET
    """The meaning of a key without a value."""
    role: Role = "neutral"
    textual: bool = False
    """Scalars arrive as their source text, so that `version: 1.10` stays `1.10`."""
    combine: Callable[[Any, Any], Any] | None = None
    """Joins the values of two keys for the same field; without it the later value is taken."""

    def read(self, value: Any) -> Any:
        """Return the value of the field, or UNSET. Raise BadValueError."""
        return self.blank if value is None else self.reader(value)


class FieldRow(Struct, frozen=True):
    """One row. `to` is a field of AgentSpec, dotted for its parts; with None the value is kept in `extra`, and `note`
    is the reason why nothing uses it."""

    key: str
    kind: FieldKind
    to: str | None
    also: tuple[str, ...] = ()
    note: str = ""
    misses: bool = False
    """Nothing uses it, and the agent is not what its author expects: lint warns."""

    @property
    def restricts(self) -> bool:
        return self.to in RESTRICTING

    @property
    def spellings(self) -> tuple[str, ...]:
        return (self.key, *self.also)

    @property
    def type(self) -> str:
        return self.kind.type

    @property
    def bad(self) -> str:
        if self.restricts:
            return "the agent is not started"
        return self.kind.bad


class Match(Struct, frozen=True):
    """A key that was recognised, and the fate it has when its value is good."""

    field: FieldRow
    how: How
    fate: Fate
    rank: int = 1000
    """Of two rows for one field of the spec, the lower rank wins: rows as they are listed,
    and every slip after them."""


NameRule = Literal["required", "file", "path"]
"""A file without `name`: is skipped; takes the file's name; takes its path below the folder."""


class Dialect(Struct, frozen=True, eq=False, dict=True):
    """One dialect. `folders` are the places of its files, for the reference page; `folders.py` is what
    finds them. `foreign` are rows of other dialects that are honoured because they limit."""

    name: DialectName
    title: str
    folders: tuple[str, ...]
    fields: tuple[FieldRow, ...]
    name_rule: NameRule = "required"
    description_required: bool = False
    frontmatter_required: bool = False
    forbidden_in_name: str = ""
    suffixes: tuple[str, ...] = (".md",)
    simple: bool = False
    """Its own loader reads `key: value` lines and nothing else."""
    nested_under: str | None = None
    """The key below which the fields may be (Kimi's `agent:`)."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Limits that its documents promise if file, caller and settings set none, by the names of `Limits`."""
    inherited_limits: tuple[str, ...] = ()
    """Limits that a file without them inherits from the run that starts it."""
    foreign: tuple[FieldRow, ...] = ()
    notes: tuple[str, ...] = ()
    tool_names: Mapping[str, str] = field(default_factory=dict)
    """Its names of Retinue's tools. If there are none, names are neither translated nor judged."""
    lists_names: bool = False
    """Its own loader takes a list of names and no comma text."""
    maps_servers: bool = False
    """Its servers are a map of names to settings, not a list."""
    one_model: bool = False
    """Its `model` names one model and never a list."""
    refuses_unknown_keys: bool = False

    # Made on first use: a start meets two or three of the dialects.
    @cached_property
    def exact(self) -> Mapping[str, Match]:
        """Every key that is written exactly as a row has it."""
        matches: dict[str, Match] = {}
        for rank, (row, how) in enumerate(self._rows):
            for spelling in row.spellings:
                matches.setdefault(spelling, Match(row, how, _fate(row, spelling, how), rank))
        return matches

    @cached_property
    def _squeezed(self) -> Mapping[str, tuple[FieldRow, How]]:
        rows: dict[str, tuple[FieldRow, How]] = {}
        for row, how in self._rows:
            for spelling in row.spellings:
                rows.setdefault(squeeze(spelling), (row, how))
        return rows

    @property
    def _rows(self) -> list[tuple[FieldRow, How]]:
        return [*((row, "own") for row in self.fields), *((row, "foreign") for row in self.foreign)]

    def knows(self, key: str) -> bool:
        """Exactly as written; this is what ends a description in the line-by-line reading."""
        return key in self.exact

    def match(self, key: str) -> Match | None:
        """Return what `key` is here, or None for a key that is unknown."""
        return self.exact.get(key) or _near(self, key)

    def nearest(self, key: str) -> tuple[FieldRow, How] | None:
        tight = squeeze(key)
        if tight in self._squeezed:
            return self._squeezed[tight][0], "near"
        for spelling, (row, _) in self._squeezed.items():
            if row.restricts and len(spelling) >= 5 and off_by_one(tight, spelling):
                return row, "near"
        # `permitted_tools`, `bannedTools`: words that can only mean one of the two lists.
        about = None
        if "tool" in tight and _REFUSING.search(tight):
            about = self._squeezed.get("disallowedtools")
        elif "tool" in tight and _ALLOWING.search(tight):
            about = self._squeezed["tools"]
        if about is not None:
            return about[0], "near"
        for spelling, (row, how) in self._squeezed.items():
            if how == "own" and len(spelling) >= 6 and off_by_one(tight, spelling):
                return row, "typo"
        return None


_REFUSING = re.compile("disallow|deny|denied|forbid|block|exclude|banned|without|except|disable")
_ALLOWING = re.compile("allow|permit|only|whitelist|enabled|available")


@lru_cache(maxsize=4096)
def _near(dialect: Dialect, key: str) -> Match | None:
    # A longer key is text, and comparing it with every known one would be slow.
    guess = dialect.nearest(key) if len(key) <= 64 else None
    if guess is None:
        return None
    row, how = guess
    fate = Fate("translated", row.to, f"read as '{row.key}'") if row.to else Fate("ignored", None, row.note)
    return Match(row, how, fate)


def squeeze(key: str) -> str:
    return key.lower().replace("_", "").replace("-", "").replace(" ", "")


def _fate(row: FieldRow, spelling: str, how: How) -> Fate:
    if row.to is None:
        return Fate("ignored", None, row.note or "not used by Retinue")
    if how == "foreign":
        return Fate("translated", row.to, row.note or "a key of other dialects, honoured because it limits")
    if squeeze(spelling) in squeeze(row.to).split("."):
        return Fate("honoured", row.to)
    return Fate("translated", row.to)
