"""Switching an agent off and on again in its own file, by lines.

Off adds one key; on takes it away, and the file is what it was, byte for byte. Whether a file is
off is asked of the real reader before and after, never of a pattern, and an edit that would
change anything else is not made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from retinue.agents.convert import differences, reread
from retinue.agents.dialects import DIALECTS
from retinue.agents.edit import FileLines, FrontmatterKey, bare
from retinue.agents.encode import scalar
from retinue.agents.frontmatter import Parsed
from retinue.agents.write import off_switch
from retinue.core.lean import dataclass

WAS = "# retinue-was: "
"""Marks the line that an inserted key stands in for, so that switching on can bring it back."""


@dataclass(frozen=True, slots=True)
class Switched:
    """`data` is the new content. `refused` says why nothing could be done; then it is the old."""

    data: bytes
    changed: bool
    refused: str = ""


def switch_off(data: bytes, parsed: Parsed) -> Switched:
    """`parsed` is what `data` means now."""
    refused = _cannot(data, parsed)
    if refused or parsed.spec is None or not parsed.spec.enabled:
        return Switched(data, False, refused)
    text = FileLines.read(data)
    for entry in reversed(_switches(text, parsed)):
        old = tuple(WAS + bare(line) for line in text.lines[entry.first : entry.last + 1])
        text = text.replace_lines(entry.first, entry.last, old)
    for key, value in _candidates(parsed):
        new = text.insert(1, f"{key}: {value}").encode()
        if _only_switched(parsed, reread(parsed, new), enabled=False):
            return Switched(new, True)
    return Switched(data, False, "its frontmatter is not one 'key: value' a line, so no key can be added safely")


def switch_on(data: bytes, parsed: Parsed) -> Switched:
    refused = _cannot(data, parsed)
    if refused or parsed.spec is None or parsed.spec.enabled:
        return Switched(data, False, refused)
    text = FileLines.read(data)
    for entry in reversed(_switches(text, parsed)):
        text = text.remove(entry.first, entry.last)
    text = _uncovered(text)
    new = text.encode()
    if _only_switched(parsed, reread(parsed, new), enabled=True):
        return Switched(new, True)
    return Switched(data, False, "the key that switches it off cannot be removed without changing something else")


def is_stub(data: bytes, parsed: Parsed) -> bool:
    """A file that says nothing but that an agent of this name is off."""
    if parsed.spec is None or parsed.spec.enabled or parsed.prompt.strip():
        return False
    text = FileLines.read(data)
    switches = _switches(text, parsed)
    return all(entry in switches or entry.key == "name" for entry in text.entries())


def stub(name: str) -> bytes:
    """The whole content of a file that switches off an agent which has no file of its own."""
    key, value = off_switch("retinue")
    return f"---\nname: {scalar(name)}\n{key}: {scalar(value)}\n---\n".encode()


def _cannot(data: bytes, parsed: Parsed) -> str:
    if parsed.spec is None:
        reason = parsed.error.message if parsed.error is not None else "it cannot be read."
        return f"the file is no agent: {reason}"
    text = FileLines.read(data)
    if text.bom:
        return "the file begins with a byte order mark, so other programs see no frontmatter in it"
    if text.close is None:
        return "the file has no frontmatter"
    return ""


def _candidates(parsed: Parsed) -> Iterator[tuple[str, str]]:
    key, value = off_switch(parsed.dialect)
    yield key, scalar(value)
    if key != "enabled":
        yield "enabled", "false"
    if key != "disabled":
        yield "disabled", "true"


def _switches(text: FileLines, parsed: Parsed) -> list[FrontmatterKey]:
    """The keys of this file that say whether the agent is on."""
    table = DIALECTS[parsed.dialect]
    found = []
    for entry in text.entries():
        match = table.match(entry.key)
        if match is not None and match.field.to == "enabled":
            found.append(entry)
    return found


def _uncovered(text: FileLines) -> FileLines:
    """Lines that switching off had set aside, back in force."""
    for index in range(1, text.close or 1):
        line = text.lines[index]
        if line.startswith(WAS):
            text = text.replace_lines(index, index, (bare(line)[len(WAS) :],))
    return text


def _only_switched(before: Parsed, after: Parsed, *, enabled: bool) -> bool:
    if before.spec is None or after.spec is None or after.spec.enabled is not enabled:
        return False
    if not set(differences(before.spec, after.spec)) <= {"enabled", "extra"}:
        return False
    return _other_extras(before) == _other_extras(after)


def _other_extras(parsed: Parsed) -> dict[str, Any]:
    """The unused keys, but for those that are failed attempts to switch the agent off."""
    table = DIALECTS[parsed.dialect]
    extra = parsed.spec.extra if parsed.spec is not None else {}
    found = {key: table.match(key) for key in extra}
    return {key: extra[key] for key, match in found.items() if match is None or match.field.to != "enabled"}
