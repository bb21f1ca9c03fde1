"""Frontmatter that loaded only by recovery, written as the YAML it was taken for."""

from __future__ import annotations

from retinue.agents.edit import Text, bare
from retinue.agents.frontmatter import read, split
from retinue.agents.lint.finding import Repair
from retinue.agents.lint.subject import Subject
from retinue.agents.quoting import entry, quote
from retinue.agents.yaml_values import Item, YamlError, load_value


def quoting_repair(subject: Subject) -> Repair | None:
    """Quotes the values that are not YAML by themselves and leaves every other line alone."""
    parts = split(subject.data or b"")
    if parts.block is None:
        return None
    matter = read(parts.block, subject.table.knows, simple=subject.table.simple)
    broken = [item for item in matter.items if not _is_yaml(subject.text, item)]
    if not broken:
        return None
    keys = ", ".join(dict.fromkeys(f"'{item.key}'" for item in broken))

    def apply(text: Text) -> Text:
        for item in reversed(broken):
            first, last = item.line + 1, item.end_line + 1
            while last > first and not text.lines[last].strip():
                last -= 1
            text = text.replace_lines(first, last, _rewritten(text, item, first))
        return text

    return Repair(f"put the value of {keys} in quotes", apply)


def _is_yaml(text: Text, item: Item) -> bool:
    lines = "".join(bare(line) + "\n" for line in text.lines[item.line + 1 : item.end_line + 2])
    try:
        return bool(load_value(lines) == item.value)
    except YamlError:
        return False


def _rewritten(text: Text, item: Item, first: int) -> tuple[str, ...]:
    if not isinstance(item.value, str):
        return tuple(entry(item.key, item.value))
    head, colon, rest = bare(text.lines[first]).partition(":")
    space = rest[: len(rest) - len(rest.lstrip())] or " "
    return (f"{head}{colon}{space}{quote(item.value)}",)
