"""What is given to a skill, put into its text.

    $ARGUMENTS          everything that was given
    $ARGUMENTS[N], $N   the word number N, from 0, with the quoting of a shell
    $name               the word that the skill's `arguments` calls so

A number without a word stays as it is, a name without one becomes empty, and a backslash before
any of these keeps it as it is written. Where a text takes nothing of what was given, it is added
at the end.
"""

from __future__ import annotations

import re

from retinue.capabilities.skills.parse import words
from retinue.core.skill import Skill

_PLACE = re.compile(r"(\\?)\$(?:ARGUMENTS\[(\d{1,4})\]|(ARGUMENTS)\b|(\d{1,4})\b|([A-Za-z_]\w*))")
_FOLDERS = ("${CLAUDE_SKILL_DIR}", "${RETINUE_SKILL_DIR}")


def substitute(text: str, skill: Skill, arguments: str) -> str:
    given = words(arguments)
    taken = False

    def put(found: re.Match[str]) -> str:
        nonlocal taken
        escape, index, everything, number, name = found.groups()
        if name is not None and name not in skill.arguments:
            return found[0]
        if escape:
            return found[0][1:]
        if everything:
            taken = True
            return arguments
        if name is not None:
            at = skill.arguments.index(name)
            taken = True
            return given[at] if at < len(given) else ""
        at = int(index if index is not None else number)
        if at >= len(given):
            return found[0]
        taken = True
        return given[at]

    made = _PLACE.sub(put, text)
    for name in _FOLDERS if skill.folder is not None else ():
        made = made.replace(name, str(skill.folder))
    return made if taken or not arguments.strip() else f"{made}\n\nARGUMENTS: {arguments}"
