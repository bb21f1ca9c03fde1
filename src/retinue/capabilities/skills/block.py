"""What a run is told of skills: the whole text of those it begins with, a line for each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from retinue.capabilities.skills.library import Library, is_name
from retinue.core.skill import Skill
from retinue.runs.prompt import shipped

LONGEST = 1536
"""Characters of one line of the list."""
_CUTS = (LONGEST, 768, 384, 192, 96, 40)
_CHARACTERS_PER_TOKEN = 4


def preloaded(names: Iterable[str], library: Library, notes: list[str]) -> str:
    """One section for each name, in order. One that is missing leaves a placeholder and a note:
    the others load all the same."""
    return "\n\n".join(f"# Preloaded Skill: {_one_line(name)[:128]}\n{_body(name, library, notes)}" for name in names)


def _body(name: str, library: Library, notes: list[str]) -> str:
    shown = _one_line(name)[:128]
    if not is_name(name):
        notes.append(f"skill '{shown}' is skipped: the name is not safe")
        return f'(Skill "{shown}" skipped: the name may hold letters, digits, "-", "_" and "." only)'
    skill = library.find(name)
    if skill is None:
        notes.append(f"skill '{shown}' was not found (see: retinue skills list)")
        return f'(Skill "{shown}" not found in {_roots(library)})'
    if not skill.model_invocable and skill.folder is not None:
        notes.append(f"skill '{shown}' is skipped: its file keeps it from models (disable-model-invocation)")
        return f'(Skill "{shown}" skipped: its file has disable-model-invocation)'
    try:
        text = library.text(skill)
    except OSError as error:
        notes.append(f"skill '{shown}' cannot be read: {error.strerror or error}")
        return f'(Skill "{shown}" cannot be read)'
    return f"{text}\n\n(The files of this skill are in {skill.folder}.)" if library.files(skill) else text


def _roots(library: Library) -> str:
    existing = [str(root.path) for root in library.roots if root.path.is_dir()]
    return ", ".join(existing) or "any folder of skills: there is none"


def listing(skills: Sequence[Skill], tokens: int) -> str:
    """The list for a model, in at most about `tokens` tokens: descriptions are cut shorter, then
    left out, and what still does not fit is counted. Empty without skills."""
    if not skills:
        return ""
    head = shipped("skills")
    room = tokens * _CHARACTERS_PER_TOKEN - len(head)
    described = [(skill.name, _about(skill)) for skill in skills]
    for cut in _CUTS:
        lines = [_line(name, about, cut) for name, about in described]
        if sum(map(len, lines)) + len(lines) <= room:
            return "\n".join([head, *lines])
    names: list[str] = []
    for name, _ in described:
        room -= len(name) + 3
        if room < 0 and names:
            break
        names.append(f"- {name}")
    left = len(described) - len(names)
    more = [f"- ... and {left} more: call skill with a word of what you need"] if left else []
    return "\n".join([head, *names, *more])


def _about(skill: Skill) -> str:
    return _one_line(f"{skill.description} {skill.when_to_use}")


def _line(name: str, about: str, cut: int) -> str:
    if not about:
        return f"- {name}"
    return f"- {name}: {about}" if len(about) <= cut else f"- {name}: {about[: cut - 1].rstrip()}…"


def _one_line(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
