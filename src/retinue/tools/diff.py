"""A short unified diff of two texts, fast on large ones: only what differs is compared."""

from __future__ import annotations

from retinue.tools.capture import head_and_tail

_CONTEXT = 2
_COMPARED = 1000
"""Lines of difference beyond which both sides are summarised instead of aligned."""
_CHARACTERS = 3000


_FOR_PEOPLE = 20_000


def short_diff(old: str, new: str, most: int = _CHARACTERS) -> str:
    if old.endswith("\n") and new.endswith("\n"):
        old, new = old[:-1], new[:-1]  # what follows the last line end is no line
    before, after = old.split("\n"), new.split("\n")
    start = _common(before, after)
    rest_before, rest_after = before[start:], after[start:]
    end = _common(rest_before[::-1], rest_after[::-1])
    middle_before = rest_before[: len(rest_before) - end]
    middle_after = rest_after[: len(rest_after) - end]
    if len(middle_before) + len(middle_after) > _COMPARED:
        return f"@@ line {start + 1} @@ {len(middle_before)} lines became {len(middle_after)}"
    lead = before[max(0, start - _CONTEXT) : start]
    trail = rest_before[len(rest_before) - end :][:_CONTEXT]
    hunks = _hunks(lead + middle_before + trail, lead + middle_after + trail, max(0, start - _CONTEXT))
    return head_and_tail("\n".join(hunks), most, "")


def unified(name: str, old: str, new: str, *, fresh: bool = False) -> str:
    """For people who decide: more of it, under a head that names the file. One that is `fresh`
    was not there before, and is shown from its first line on."""
    if not fresh:
        return f"--- {name}\n+++ {name}\n{short_diff(old, new, _FOR_PEOPLE)}"
    lines = new.removesuffix("\n").split("\n")
    added = "\n".join(f"+{line}" for line in lines)
    return f"--- /dev/null\n+++ {name}\n@@ -0,0 +1,{len(lines)} @@\n{head_and_tail(added, _FOR_PEOPLE, '')}"


def _common(first: list[str], second: list[str]) -> int:
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return index
    return min(len(first), len(second))


def _hunks(before: list[str], after: list[str], skipped: int) -> list[str]:
    from difflib import SequenceMatcher

    lines: list[str] = []
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(_CONTEXT):
        _, first, last, begin, finish = group[0][0], group[0][1], group[-1][2], group[0][3], group[-1][4]
        lines.append(f"@@ -{skipped + first + 1},{last - first} +{skipped + begin + 1},{finish - begin} @@")
        for tag, a, b, c, d in group:
            if tag == "equal":
                lines += [f" {line}" for line in before[a:b]]
            else:
                lines += [f"-{line}" for line in before[a:b]]
                lines += [f"+{line}" for line in after[c:d]]
    return lines
