"""A file under lint and its findings, each with one of the codes of `CODES`.

The table has the severity, the meaning and the remedy of each code. The reference page is generated from it, and codes
never change their meaning.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property

from msgspec import Struct

from retinue.agents.convert import reread
from retinue.agents.dialects.table import Dialect
from retinue.agents.dialects.tables import DIALECTS, SKILL
from retinue.agents.edit import FileLines, bare
from retinue.agents.frontmatter import Parsed
from retinue.agents.parse import is_skill, parse_skill
from retinue.core.spec import Severity


class Code(Struct, frozen=True):
    """`severity` is the usual one; a finding may be milder or worse. With `fixable`, --fix can
    repair it if that keeps the agent's rights."""

    severity: Severity
    meaning: str
    remedy: str
    fixable: bool = False


CODES: Mapping[str, Code] = {
    # The file
    "unreadable": Code("error", "The file or folder cannot be read.", "Check its permissions."),
    "not-writable": Code("error", "The repaired file could not be written.", "Check its permissions."),
    "not-a-file": Code("error", "The path is a pipe, socket, device or folder.", "Remove it from the agents folder."),
    "broken-link": Code("error", "A symbolic link leads nowhere.", "Repair or remove it."),
    "too-large": Code("error", "The file is larger than 10 MB.", "An agent is a prompt: keep it short."),
    "binary": Code("error", "The file has NUL bytes, so it is not text.", "Remove it from the agents folder."),
    "not-utf8": Code("warning", "The file is not UTF-8 and was read by a guess.", "Save it as UTF-8."),
    "byte-order-mark": Code(
        "info", "The file begins with a byte order mark, which hides the agent from some programs.", "Remove it.", True
    ),
    "mixed-line-endings": Code("info", "The lines of the file end in different ways.", "Use one line ending.", True),
    "left-out": Code(
        "warning", "The file lies in a folder that is not read, because another one counts.", "Move the file."
    ),
    # The frontmatter
    "no-frontmatter": Code(
        "info", "The file has no frontmatter and is taken for documentation.", "Add name and description between '---'."
    ),
    "frontmatter-not-first": Code(
        "error", "Something stands before the frontmatter, so it does not count.", "Remove what is before it."
    ),
    "frontmatter-unfenced": Code("error", "Keys without the '---' lines around them.", "Add the two '---' lines."),
    "frontmatter-unclosed": Code("error", "No line closes the frontmatter.", "Add '---' after the last key."),
    "frontmatter-too-large": Code("error", "The frontmatter is far too long.", "Move the text below it."),
    "frontmatter-unreadable": Code(
        "error", "The frontmatter is not YAML and no key could be found in it.", "Write one 'key: value' a line."
    ),
    "frontmatter-recovered": Code(
        "warning", "The frontmatter is not valid YAML; it loaded by recovery.", "Put the value in double quotes.", True
    ),
    "duplicate-key": Code("warning", "A key stands twice.", "Keep one of the two.", True),
    "near-miss-key": Code(
        "warning", "A key is misspelt, or spelt as another dialect does.", "Write it as the dialect does.", True
    ),
    "foreign-key": Code(
        "warning", "Another dialect has this key; here it has no effect.", "Write it as this dialect does.", True
    ),
    "honoured-elsewhere": Code(
        "info", "Retinue honours this limit; the dialect's own program does not know it.", "Fine if Retinue runs it."
    ),
    "unknown-key": Code("info", "No program is known to use this key. It is kept.", "Remove it, or leave it."),
    "unused-key": Code("info", "The dialect has this key, and Retinue does nothing with it. It is kept.", "Leave it."),
    "not-in-plugin": Code("info", "Plugins may not bring this; the key is ignored.", "Remove the key."),
    # Values
    "missing-name": Code("error", "There is no name, and the dialect takes none from the file.", "Add one."),
    "missing-description": Code(
        "warning", "Without a description nobody knows when to use the agent.", "Say when to use it."
    ),
    "bad-name": Code("error", "The dialect refuses this name.", "Choose letters, digits and hyphens."),
    "unsafe-name": Code(
        "warning", "The name cannot be a file or folder name, so memory is refused.", "Choose letters, digits, hyphens."
    ),
    "name-form": Code("info", "The name is not in the usual form.", "Use lower-case letters, digits and hyphens."),
    "long-description": Code(
        "info", "A description over 1,024 characters costs tokens in every prompt that lists it.", "Shorten it."
    ),
    "bad-value": Code("warning", "A value is not what its key wants.", "Write one of the values it takes."),
    "unknown-event": Code("error", "A hook is for an event that does not exist.", "Correct the name of the event."),
    "unsupported-value": Code("warning", "The value is known but not supported.", "Remove it or choose another."),
    "invalid-color": Code("info", "The colour is neither a known name nor #RRGGBB.", "Choose another."),
    "unknown-model": Code("info", "No model of this name is known.", "Write provider/model, or an alias."),
    "several-models": Code("warning", "One text names several models.", "Write a list."),
    "unknown-thinking-level": Code(
        "warning", "The thinking level is none that a model has.", "Use off, minimal, low, medium, high, xhigh or max."
    ),
    "bypass-mode": Code("info", "The agent asks for leave to do anything unasked.", "Choose a narrower mode."),
    # Tools
    "unknown-tool": Code("warning", "No tool of this name is known.", "Correct the name."),
    "foreign-tool-name": Code(
        "info", "Another program calls a tool so; the file's own program does not know it.", "Write its own name."
    ),
    "tool-elsewhere": Code("info", "A tool of another program that Retinue has no counterpart for.", "Leave it out."),
    "tools-resolve-to-nothing": Code(
        "error", "No name in the tool list is known, so the agent is refused at launch.", "Name tools that exist."
    ),
    "empty-tools": Code(
        "warning", "The tool list has no value, so the agent has no tools.", "Write 'none', or name tools."
    ),
    "all-tools-denied": Code("warning", "The deny list takes away every allowed tool.", "Change one of the lists."),
    "allowed-and-denied": Code("info", "A tool is allowed and denied; denied wins.", "Remove it from one list."),
    "readonly-write-tool": Code(
        "warning", "A read-only agent lists a tool that writes; it will not get it.", "Drop the tool or 'readonly'."
    ),
    "readonly-shell": Code(
        "info", "A read-only agent has a shell; it runs in a sandbox that cannot write.", "Drop it if it is not needed."
    ),
    "says-read-only": Code(
        "info", "The description says read-only, but the agent may write.", "Add 'readonly: true' or drop the tools."
    ),
    "comma-tools": Code(
        "warning", "CodingCode itself takes a comma text for no list at all: every tool.", "Write [a, b].", True
    ),
    # MCP servers
    "server-not-configured": Code(
        "warning", "The file names an MCP server that nobody has configured here.", "Add it to .mcp.json."
    ),
    "server-unusable": Code(
        "warning",
        "The configuration of an MCP server that the file names is wrong, or its program is not there.",
        "Correct its entry, or install the program. See: retinue servers check",
    ),
    # The body
    "empty-body": Code("warning", "There are no instructions below the frontmatter.", "Say what the agent shall do."),
    "no-instructions": Code("warning", "The body has headings or placeholders only.", "Say what the agent shall do."),
    # Several files
    "duplicate-name": Code("warning", "Two files of one folder have the same name.", "Rename or remove one."),
    "unknown-subagent": Code("warning", "The file may start an agent that does not exist.", "Correct the name."),
    "case-clash": Code("warning", "Two names differ only in capital letters.", "Rename one of them."),
    "shadowed": Code("info", "A stronger file of the same name replaces this one.", "Rename or remove one of them."),
    "replaces-builtin": Code("info", "This file replaces a built-in agent completely.", "Rename it if unwanted."),
    "weaker-file-loads": Code(
        "error", "The file is broken, so its name loads from a weaker place.", "Repair the file or remove it."
    ),
}


RANK: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}


class Repair(Struct, frozen=True):
    """A change to one file. `what` is what the user reads when it is made; `fields` are the
    fields of the spec that may come out different, and no other may."""

    what: str
    apply: Callable[[FileLines], FileLines]
    fields: frozenset[str] = frozenset()


class Finding(Struct, frozen=True, kw_only=True):
    """`line` and `column` are 1-based; None when the whole file or its folder is meant.
    `fixable` is a promise: the repair was tried and keeps the agent's rights."""

    file: str
    code: str
    severity: Severity
    reason: str
    remedy: str = ""
    key: str | None = None
    line: int | None = None
    column: int | None = None
    fixable: bool = False

    @property
    def order(self) -> tuple[str, int, int, int, str]:
        return (self.file, self.line or 0, self.column or 0, RANK[self.severity], self.code)


class CheckResult(Struct, frozen=True):
    """A finding of a check, and a repair if one is known."""

    finding: Finding
    repair: Repair | None = None
    field: str | None = None
    """The field of the spec that it is about, where a check looked at one."""


class AppliedRepair(Struct, frozen=True, kw_only=True, rename={"what": "change"}):
    """One repair that was made."""

    file: str
    code: str
    what: str
    line: int | None = None


@dataclasses.dataclass(frozen=True)
class LintSubject:
    """`data` is None for a path that could not be read."""

    parsed: Parsed
    data: bytes | None

    @cached_property
    def text(self) -> FileLines:
        return FileLines.read(self.data or b"")

    @cached_property
    def table(self) -> Dialect:
        if is_skill(self.parsed.file):
            return SKILL
        return DIALECTS[self.parsed.dialect]

    def read(self, data: bytes) -> LintSubject:
        """Return the same file with other content."""
        if is_skill(self.parsed.file):
            return LintSubject(parse_skill(data, path=self.parsed.file), data)
        return LintSubject(reread(self.parsed, data), data)

    def key_for(self, field: str) -> str | None:
        """Return the first key of this file, as written, that speaks about a field of the spec."""
        for key in self.parsed.fates:
            match = self.table.match(key)
            if match is not None and match.field.to == field:
                return key
        return None

    def own_key(self, field: str | None) -> str | None:
        """Return how this dialect itself spells the key of a field; None if it has none."""
        return next((row.key for row in self.table.fields if row.to == field and field), None)

    def report(
        self,
        code: str,
        reason: str,
        remedy: str | None = None,
        *,
        key: str | None = None,
        field: str | None = None,
        word: str = "",
        line: int | None = None,
        column: int | None = None,
        severity: Severity | None = None,
        repair: Repair | None = None,
    ) -> CheckResult:
        """Return a finding at `key`, or at the key for `field` (at `word` within its value, if that is there to
        see)."""
        if field is not None:
            key = self.key_for(field)
        if key is not None and line is None:
            line, column = self.place(key, word)
        usual = CODES[code]
        finding = Finding(
            file=self.parsed.file,
            code=code,
            severity=severity or usual.severity,
            reason=reason,
            remedy=usual.remedy if remedy is None else remedy,
            key=key,
            line=line,
            column=column,
        )
        return CheckResult(finding, repair, field)

    def place(self, key: str, word: str = "") -> tuple[int | None, int | None]:
        """1-based line and column of a key, or of a word within its value."""
        position = self.parsed.places.get(key)
        if position is None:
            return None, None
        if word:
            for number in range(position.line, min(position.end_line, len(self.text.lines)) + 1):
                after = 0
                if number == position.line:
                    after = position.column + len(key)
                column = bare(self.text.lines[number - 1]).find(word, after)
                if column >= 0:
                    return number, column + 1
        return position.line, position.column
