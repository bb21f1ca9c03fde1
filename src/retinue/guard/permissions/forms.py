"""How rules may have written a command, and which files it has in its words."""

from __future__ import annotations

from retinue.guard.permissions.marks import HOLE
from retinue.guard.permissions.shell import gitcode
from retinue.guard.permissions.shell.commands import SPEAKING, WRITERS, is_reader, operands
from retinue.guard.permissions.shell.step import Script, Step
from retinue.guard.permissions.shell.variables import is_harmless

_NAMES_FROM = ("--files0-from", "--files-from", "-files0-from")
_SEARCHERS = frozenset({"grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack"})
_PATTERN_OPTIONS = ("-e", "-f", "--regexp", "--file")


def denied_forms(step: Step) -> tuple[str, ...]:
    """Every way in which a rule may have written this command."""
    words = step.words
    plain = (step.name, *words[1:])
    forms = [" ".join(words), tight(words), " ".join(plain), tight(plain)]
    if step.name == "git":
        forms.append(tight(("git", *gitcode.without_globals(words[1:]))))
    elif step.name.startswith("git-"):
        forms.append(tight(("git", step.name[4:], *words[1:])))
    if step.assigned:
        before = tuple(f"{name}={given}" for name, given in step.assigned)
        forms.append(tight((*before, *words)))
    return tuple(dict.fromkeys(forms))


def allowed_forms(step: Step) -> tuple[str, ...]:
    """How a rule that allows it must have written it."""
    words = (step.plain_name or step.words[0], *step.words[1:])
    text = " ".join(words)
    kept = [f"{name}={given}" for name, given in step.assigned if not is_harmless(name)]
    if not kept:
        return (text,)
    return (" ".join([*(f"{name}={given}" for name, given in step.assigned), text]),)


def tight(words: tuple[str, ...]) -> str:
    """Words joined. A word that is all hole may vanish with the blank before it."""
    return "".join(word if at == 0 else HOLE if word == HOLE else f" {word}" for at, word in enumerate(words))


def loose_forms(step: Step) -> tuple[str, ...]:
    """What it may be if the options before its first word, and their values, are left out:
    `npm --silent publish`."""
    words = step.words
    if len(words) < 3 or not words[1].startswith("-") or step.name in SPEAKING:
        return ()
    forms: list[str] = []
    for at, word in enumerate(words[1:8], 1):
        if not word.startswith("-"):
            forms.append(tight((step.name, *words[at:])))
            if not words[at - 1].startswith("-"):
                break
    return tuple(forms)


def joined_values(step: Step) -> tuple[str, ...]:
    """What may be a file behind an option: `-f.env`. One whose names come from elsewhere touches
    what nobody knows."""
    found = [word[2:] for word in step.words[1:] if word[:1] == "-" and word[1:2] not in ("-", "") and "." in word[2:]]
    return (*found, HOLE) if any(word.startswith(_NAMES_FROM) for word in step.words[1:]) else tuple(found)


def touched_paths(script: Script) -> list[tuple[str, bool]]:
    """The files of a command line, and whether it changes them."""
    found = [(file.path, file.writes) for file in script.opened]
    for step in script.all_steps():
        if step.name in SPEAKING:
            continue
        given = (*operands(step), *joined_values(step))
        if step.name in _SEARCHERS and not any(
            word.startswith(("-e", "-f", "--regexp", "--file")) for word in step.words
        ):
            given = given[1:]
        writes = step.name in WRITERS and not is_reader(step)
        writes = writes or (step.name == "git" and not is_reader(step))
        for path in given:
            found.append((path, writes))
            if step.name == "git" and ":" in path:
                found.append((path.partition(":")[2], writes))
            elif path.startswith("@"):
                found.append((path[1:], writes))
    return [(path, writes) for path, writes in found if path]
