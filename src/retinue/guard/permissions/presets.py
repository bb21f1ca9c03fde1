"""What CodingCode forbids and asks about from the start, for runs of its agents and theirs.

There, a rule that asks was taken for no answer, and reading `.env` went through. Here it asks.
"""

from __future__ import annotations

from functools import cache

from retinue.guard.permissions.rule import Kind, Rule, parse_rule
from retinue.guard.permissions.shell.commands import operands
from retinue.guard.permissions.shell.step import Script
from retinue.guard.permissions.shell.wrappers import SHELLS

SOURCE = "CodingCode's presets"
_RULES: tuple[tuple[Kind, str], ...] = (
    ("deny", "Bash(rm -rf /)"),
    ("deny", "Bash(sudo:*)"),
    ("deny", "Bash(chmod u+s *)"),
    ("deny", "Bash(shutdown:*)"),
    ("deny", "Read(//etc/shadow)"),
    ("deny", "Read(//etc/passwd)"),
    ("ask", "Read(//**/.ssh/**)"),
    ("ask", "Read(//**/.env)"),
)
_FETCHERS = frozenset({"curl", "wget", "fetch", "http", "aria2c"})


@cache
def preset_rules() -> tuple[Rule, ...]:
    parsed = (parse_rule(text, kind, source=SOURCE) for kind, text in _RULES)
    return tuple(rule for rule in parsed if isinstance(rule, Rule))


def preset_denial(script: Script) -> str | None:
    """What no pattern of words can say: a download handed to a shell, a set-uid bit in numbers,
    the root deleted with options in any order."""
    steps = script.all_steps()
    if script.doubts:
        return None
    names = {step.name for step in steps}
    if names & _FETCHERS and any(step.name in SHELLS and not step.inner for step in steps):
        return "a download is handed to a shell"
    for step in steps:
        if step.name == "chmod" and any(_set_uid(word) for word in step.words[1:]):
            return "chmod makes a program run with the rights of its owner"
        if step.name == "rm" and {"/", "/\1"} & set(operands(step)):
            return "rm deletes the root of the file system"
    return None


def _set_uid(mode: str) -> bool:
    if mode.isdigit():
        return len(mode) >= 4 and mode[-4] in "4567"
    clauses = mode.split(",")
    return any(
        "s" in clause.partition("+")[2] + clause.partition("=")[2] for clause in clauses if clause[:1] in "uoag+="
    )
