"""Checks on the bytes: encoding, line ends, a byte order mark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from retinue.agents.edit import Text, ending
from retinue.agents.lint.finding import Found, Repair
from retinue.agents.lint.subject import Subject


def check_bytes(subject: Subject) -> Iterator[Found]:
    data = subject.data
    if not data or data[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in data:
        return
    if subject.text.bom:
        repair = Repair("removed the byte order mark", Text.without_bom)
        reason = "The file begins with a byte order mark."
        yield subject.found("byte-order-mark", reason, line=1, column=1, repair=repair)
    yield from _line_ends(subject)


def _line_ends(subject: Subject) -> Iterator[Found]:
    counts = Counter(end for line in subject.text.lines if (end := ending(line)))
    if len(counts) < 2 and "\r" not in counts:
        return
    usual = max(("\n", "\r\n"), key=lambda end: counts[end])
    odd = next(number for number, line in enumerate(subject.text.lines, 1) if ending(line) not in ("", usual))
    names = {"\n": "LF", "\r\n": "CRLF", "\r": "CR"}
    listed = ", ".join(f"{count} {names[end]}" for end, count in counts.most_common())
    repair = Repair(f"made every line end in {names[usual]}", lambda text: text.with_eol(usual))
    yield subject.found("mixed-line-endings", f"Line endings are mixed: {listed}.", line=odd, column=1, repair=repair)
