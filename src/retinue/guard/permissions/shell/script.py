"""From a command line to what it starts, where that can be read for certain."""

from __future__ import annotations

from functools import lru_cache

from retinue.guard.permissions.rule import GLOB
from retinue.guard.permissions.shell.commands import git_starts_program, is_harmless_variable
from retinue.guard.permissions.shell.grammar import Sentence, SimpleCommand, UnreadableError, read_sentence
from retinue.guard.permissions.shell.step import (
    SHELLS,
    WRAPPERS,
    Opened,
    Script,
    Step,
    carries_code,
    shell_code,
    unwrap,
)

_DEEPEST = 4
_MOST_STEPS = 200
_MOST_WORDS = 4_000
_MEANING_CHANGERS = frozenset(
    "alias unalias shopt set enable hash fc bind complete compgen compopt history trap source . let declare typeset"
    " local readonly export unset read mapfile readarray getopts builtin caller logout suspend disown fg bg ulimit"
    " umask shift return break continue pushd popd dirs times wait jobs".split()
)
"""Builtins that change what later commands mean, set variables, or carry out text out of sight."""


@lru_cache(maxsize=256)
def analyse(command: str) -> Script:
    """Return what `command` starts. Never raise: `doubts` say why a text cannot be judged."""
    reader = _Reader()
    try:
        steps = reader.steps(command, 0)
    # Deep nesting may exhaust the stack before our own limit is reached.
    except (UnreadableError, RecursionError) as error:
        return Script(doubts=(str(error) or "it is nested too deeply",))
    return Script(tuple(steps), tuple(reader.opened), tuple(reader.moves))


class _Reader:
    """Collects what belongs to the command line as a whole, over all texts inside it."""

    def __init__(self) -> None:
        self.opened: list[Opened] = []
        self.moves: list[str] = []
        self._count = 0

    def steps(self, source: str, depth: int) -> list[Step]:
        if depth > _DEEPEST:
            raise UnreadableError("it is nested too deeply")
        sentence: Sentence = read_sentence(source)
        self.opened += sentence.opened
        return [self._of_command(command, depth) for command in sentence.commands]

    def _of_command(self, command: SimpleCommand, depth: int) -> Step:
        if not command.words:
            for name, _ in command.assigned:
                if not is_harmless_variable(name):
                    raise UnreadableError(f"it sets {name} for all that follows")
            return Step((":",), command.assigned)
        return self._step(command.words, command.assigned, depth)

    def _step(self, words: tuple[str, ...], assigned: tuple[tuple[str, str], ...], depth: int) -> Step:
        self._count += 1
        if self._count > _MOST_STEPS or len(words) > _MOST_WORDS:
            raise UnreadableError("it starts too many commands, or hands one too many words")
        name = words[0].rpartition("/")[2]
        _refuse_strange(name, words)
        if name == "cd":
            self.moves.append(_target(words))
        inner = self._inner(name, words, depth)
        for variable, _ in assigned:
            if not is_harmless_variable(variable):
                return Step(words, assigned, tuple(inner or ()), opaque=f"{variable} may change what {name} does")
        if inner is not None:
            return Step(words, assigned, tuple(inner), transparent=True)
        return Step(words, assigned, opaque=_opaque(name, words))

    def _inner(self, name: str, words: tuple[str, ...], depth: int) -> list[Step] | None:
        """Return the commands that this one starts; None where it does more, or that is unknown."""
        if name == "eval":
            return self.steps(_as_text(words[1:]), depth + 1)
        if name in SHELLS:
            code = shell_code(words)
            return None if code is None else self.steps(code, depth + 1)
        if name not in WRAPPERS or words[1:2] in (("-v",), ("-V",)):
            return None
        wrapped = unwrap(words)
        if wrapped is None:
            return None
        rest, assigned = wrapped
        return [self._step(rest, assigned, depth + 1)]


def _refuse_strange(name: str, words: tuple[str, ...]) -> None:
    if name in _MEANING_CHANGERS:
        raise UnreadableError(f"{name} changes what later commands mean, or carries out text")
    if name in SHELLS and shell_code(words) is None and not _runs_file(words):
        raise UnreadableError("a shell gets its commands from elsewhere")
    subscripts = any("[" in word[:-1] or "$" in word or "`" in word for word in words[1:])
    if name in ("test", "[") and (subscripts or {"-v", "-R"} & set(words)):
        raise UnreadableError(f"{name} may carry out the subscript of a variable")
    if name == "printf" and words[1:2] and words[1].startswith("-v"):
        raise UnreadableError("printf sets a variable")
    if name == "cd" and (len(words) > 2 or words[1:2] == ("-",)):
        raise UnreadableError("where cd leads is known only when it runs")


def _runs_file(words: tuple[str, ...]) -> bool:
    """`bash script.sh`: the first word is a file, and not an option that makes it something else."""
    return len(words) > 1 and not words[1].startswith(("-", "+", GLOB))


def _as_text(words: tuple[str, ...]) -> str:
    text = " ".join(words)
    if GLOB in text:
        raise UnreadableError("the text of a command is known only when it runs")
    return text


def _target(words: tuple[str, ...]) -> str:
    return words[1] if len(words) > 1 else "~"


def _opaque(name: str, words: tuple[str, ...]) -> str:
    if name in SHELLS:
        return f"{name} carries out a file"
    if name in WRAPPERS and words[1:2] not in (("-v",), ("-V",)):
        return f"{name} starts a command that is not certain"
    if name == "git":
        return git_starts_program(words[1:])
    if carries_code(words):
        return f"{name} carries out text that is not a shell's"
    return ""
