"""Commands that do more than their names say, so that nobody may judge them by these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from retinue.guard.permissions.marks import HOLE, is_known
from retinue.guard.permissions.shell.commands import WRITERS, operands
from retinue.guard.permissions.shell.step import Opened, Step
from retinue.guard.permissions.shell.variables import is_dangerous
from retinue.guard.permissions.shell.wrappers import SHELLS

_NAMING = frozenset(
    {"let", "declare", "typeset", "local", "export", "readonly", "read", "unset", "test", "[", "printf", "wait"}
    | {"mapfile", "readarray", "getopts"}
)
"""Builtins that take names of variables: the subscript in `a[$(command)]` is carried out."""
_DECLARING = frozenset({"declare", "typeset", "local", "readonly", "export"})
_FILES_OF_FIND = frozenset({"-fprint", "-fprint0", "-fprintf", "-fls"})
_SHELL_WITHOUT_COMMAND = frozenset(
    {"su", "sudo", "doas", "runuser", "chroot", "unshare", "nsenter", "newgrp", "sg", "login", "script", "setarch"}
)
CODE_VARIABLES = frozenset(
    {"BASH_ENV", "ENV", "PROMPT_COMMAND", "PS0", "PS1", "PS4", "SHELLOPTS", "BASHOPTS", "LD_PRELOAD", "LD_AUDIT"}
    | {"DYLD_INSERT_LIBRARIES", "ZDOTDIR"}
)


def of_words(name: str, words: tuple[str, ...]) -> Iterator[str]:
    """Doubts about a command by its words."""
    if name not in _NAMING or (name == "printf" and "-v" not in words):
        return
    plain = words[2:3] if name == "printf" else words[1:]
    for word in plain:
        if "$(" in word or "`" in word or ("[" in word and HOLE in word[word.index("[") :]):
            yield f"{name} may carry out the subscript of a variable"
        elif name == "let" and HOLE in word:
            yield "let calculates with what is known only when it runs"
        elif name in _DECLARING and word.startswith("-") and "i" in word:
            yield f"{name} {word} makes every later assignment a calculation"
    for variable in _named(name, words):
        if not is_known(variable):
            yield f"{name} takes the name of a variable that is known only when it runs"
        elif is_dangerous(variable):
            yield f"{name} sets {variable}, which changes what commands do"


def _named(name: str, words: tuple[str, ...]) -> Iterator[str]:
    """The variables that a builtin sets or looks at by name."""
    if name in ("test", "[", "wait", "printf"):
        asking = {"wait": ("-p",), "printf": ("-v",)}.get(name, ("-v", "-R"))
        yield from (word for before, word in pairwise(words) if before in asking)
    elif name in ("read", "mapfile", "readarray", "unset"):
        valued = {"read": "-d -i -n -N -p -t -u", "unset": ""}.get(name, "-d -n -O -s -u -C -c").split()
        skipped = [before in valued for before in words]
        yield from (word for at, word in enumerate(words[1:]) if not word.startswith("-") and not skipped[at])
    elif name == "getopts":
        yield from words[2:3]


def of_variables(assigned: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Doubts about variables that are set for one command."""
    for name, _ in assigned:
        if name in CODE_VARIABLES or name.startswith("BASH_FUNC_"):
            yield f"it sets {name}, which makes programs carry out other code"


def starts_shell(name: str, words: tuple[str, ...], fed: bool) -> bool:
    """Whether, without a command to start, it is a shell that carries out its input."""
    return name in _SHELL_WITHOUT_COMMAND and (fed or name == "su") and "-v" not in words


def written_and_run(steps: Iterable[Step], opened: Iterable[Opened]) -> bool:
    """Whether the command line carries out a file that it makes itself."""
    every = list(steps)
    written = {_base(file.path) for file in opened if file.writes}
    for step in every:
        if step.name in WRITERS:
            written.update(map(_base, operands(step)))
        elif step.name == "find":
            written.update(_base(word) for before, word in pairwise(step.words) if before in _FILES_OF_FIND)
    written.discard("")
    return bool(written) and any(run in written for step in every for run in _run(step))


def _run(step: Step) -> Iterator[str]:
    if "/" in step.words[0]:
        yield step.name
    if (step.name in SHELLS and not step.inner) or step.name in (".", "source"):
        yield from (_base(word) for word in step.words[1:] if not word.startswith("-"))


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
