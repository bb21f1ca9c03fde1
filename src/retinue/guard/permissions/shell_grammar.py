"""The parser of command lines, which returns the programs that a line certainly starts.

Only a small part of the shell's language is read, exactly as bash reads it: simple commands of plain words and quoted
strings, file name patterns, `&&`, `||`, `;`, `&`, `|`, line breaks, and redirections to plain paths. Every other text
raises `UnreadableError`: nothing is then claimed about what it does. `tests/guard/permissions/test_difference.py` runs
random texts under bash and compares what it starts with what was read here.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from retinue.guard.permissions.rule import GLOB
from retinue.guard.permissions.shell_commands import is_harmless_variable, why_opaque
from retinue.guard.permissions.shell_step import (
    SHELLS,
    WRAPPERS,
    Opened,
    Script,
    Step,
    shell_code,
    unwrap,
    why_unreadable,
)

MAX_COMMAND_CHARACTERS = 10_000
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u0080-\u009f]")
_PLAIN_TEXT = re.compile(r"[A-Za-z0-9_./,:=+@%^-]+")
_BLANK = re.compile(r"[ \t]+")
_OPERATOR = re.compile(r"&&|\|\||\|&|\||;|&|\n")
_REDIRECTION = re.compile(r"&>>|&>|>>|>&|>\||<&|>|<")
_DUPLICATE = re.compile(r"(?:[0-9]|-)(?=[\s;|&]|\Z)")
_BRACKET = re.compile(r"\[[!^]?\]?[A-Za-z0-9_.,:-]*\]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_RESERVED = frozenset(
    "if then else elif fi for while until do done case esac in select function coproc time { } ! [[ ]]".split()
)
_ENDS = (";", "&", "\n")
_SOCKETS = ("/dev/tcp/", "/dev/udp/")


class UnreadableError(ValueError):
    """The text is outside of the grammar; the message says which part of it."""


class _Word(Struct, frozen=True):
    """`plain` letters at its beginning were not quoted. `pattern`: it holds a file name pattern."""

    text: str
    plain: int
    pattern: bool

    @property
    def unquoted(self) -> bool:
        return self.plain == len(self.text)


class _Token(Struct, frozen=True):
    kind: Literal["word", "operator", "redirection"]
    text: str
    word: _Word | None = None


def _read_commands(source: str) -> tuple[list[Step], list[Opened]]:
    """Return all commands of a text, in order, and the files that its redirections open. A command that only sets
    variables has no words. Raise `UnreadableError` for a text outside of the grammar."""
    if len(source) > MAX_COMMAND_CHARACTERS:
        raise UnreadableError(f"it is longer than {MAX_COMMAND_CHARACTERS:,} characters")
    if _CONTROL.search(source):
        raise UnreadableError("it holds control characters")
    if "\\" in source and not source.isascii():
        # Where the locale is not UTF-8, bash may join the byte before a backslash to a letter.
        raise UnreadableError("it has a backslash beside letters that are not ASCII")
    parser = _Parser(_Lexer(source).tokens())
    return parser.commands(), parser.opened


class _Lexer:
    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0

    def tokens(self) -> list[_Token]:
        tokens: list[_Token] = []
        while True:
            self._skip(_BLANK)
            if self._at == len(self._source):
                return tokens
            tokens.append(self._token())

    def _token(self) -> _Token:
        sign = self._skip(_REDIRECTION)
        if sign:
            return self._redirection(sign)
        sign = self._skip(_OPERATOR)
        if sign:
            return _Token("operator", sign)
        word = self._word()
        if word.text.isdigit() and word.unquoted:
            # `2>file` is one redirection, `2 >file` an argument and a redirection.
            sign = self._skip(_REDIRECTION)
            if sign.startswith("&"):
                raise UnreadableError(f"{word.text}{sign} means different things to different shells")
            if sign:
                return self._redirection(sign)
        return _Token("word", word.text, word)

    def _redirection(self, sign: str) -> _Token:
        """Read the target as well. A duplicated descriptor opens no file."""
        if self._source[self._at : self._at + 1] in ("<", ">", "("):
            raise UnreadableError(f"{sign}{self._source[self._at]} is not a plain redirection")
        self._skip(_BLANK)
        if sign in (">&", "<&"):
            if not self._skip(_DUPLICATE):
                raise UnreadableError(f"{sign} is followed by more than the number of a descriptor")
            return _Token("redirection", sign)
        if self._at == len(self._source) or self._source[self._at] in "\n;|&<>":
            raise UnreadableError("a redirection has no target")
        word = self._word()
        if word.pattern or word.text.startswith(_SOCKETS) or not word.text:
            raise UnreadableError("a redirection has a target that is not a plain path")
        return _Token("redirection", sign, word)

    def _word(self) -> _Word:
        text, plain, pattern = "", 0, False
        quoted = False
        if self._source[self._at] == "#":
            raise UnreadableError("it holds a comment")
        while self._at < len(self._source) and self._source[self._at] not in " \t\n;|&<>":
            letter = self._source[self._at]
            if letter in "'\"\\":
                text += self._read_quoted(letter, starts=not text)
                quoted = True
            elif letter in "*?[":
                text += self._pattern(letter, alone=not text and not quoted)
                pattern = pattern or text[-1] == GLOB
            else:
                text += self._plain(letter, starts=not text and not quoted)
            if not quoted:
                plain = len(text)
        return _Word(text, plain, pattern)

    def _plain(self, letter: str, *, starts: bool) -> str:
        if letter == "~" and self._source[self._at - 1 : self._at] in ("=", ":") and not starts:
            raise UnreadableError("a tilde stands where bash may expand it")
        run = self._skip(_PLAIN_TEXT)
        if run:
            return run
        self._at += 1
        following = self._source[self._at : self._at + 1]
        if letter == "~":
            if starts and following not in ("", "/", " ", "\t", "\n", ";", "|", "&", "<", ">"):
                raise UnreadableError("a tilde is followed by a name")
            return letter
        if letter in "]!" or (letter == "#" and not starts):
            return letter
        if letter == "{" and starts and following == "}":
            self._at += 1
            if self._source[self._at : self._at + 1] not in ("", " ", "\t", "\n", ";", "|", "&"):
                raise UnreadableError("it holds braces")
            return "{}"
        raise UnreadableError(_WHY.get(letter, f"it holds the character {letter!r} without quotes"))

    def _pattern(self, letter: str, *, alone: bool) -> str:
        if letter != "[":
            self._at += 1
            return GLOB
        if self._skip(_BRACKET):
            return GLOB
        if alone and self._source[self._at + 1 : self._at + 2] in ("", " ", "\t"):
            self._at += 1
            # A bracket alone is the command of that name, and no pattern.
            return letter
        raise UnreadableError("it holds a bracket that is no plain pattern")

    def _read_quoted(self, sign: str, *, starts: bool) -> str:
        self._at += 1
        text = {"'": self._single, '"': self._double, "\\": self._read_escaped}[sign]()
        if starts and text.startswith("~"):
            raise UnreadableError("a quoted tilde begins a word")
        return text

    def _single(self) -> str:
        end = self._source.find("'", self._at)
        if end < 0:
            raise UnreadableError("a quote is not closed")
        text = self._source[self._at : end]
        self._at = end + 1
        return text

    def _double(self) -> str:
        text = ""
        while self._at < len(self._source):
            letter = self._source[self._at]
            following = self._source[self._at + 1 : self._at + 2]
            self._at += 1
            if letter == '"':
                return text
            if letter == "`" or (letter == "$" and following not in ('"', " ")):
                raise UnreadableError("it holds a substitution")
            if letter == "\\" and following == "\n":
                raise UnreadableError("a line goes on in the next one")
            if letter == "\\" and following and following in '$`"\\':
                letter = following
                self._at += 1
            text += letter
        raise UnreadableError("a quote is not closed")

    def _read_escaped(self) -> str:
        letter = self._source[self._at : self._at + 1]
        if letter in ("", "\n"):
            raise UnreadableError("a line goes on in the next one")
        self._at += 1
        return letter

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._source, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match.group()


_WHY = {
    **dict.fromkeys("$`", "it holds a substitution"),
    **dict.fromkeys("()", "it holds a subshell, a function or a process substitution"),
    **dict.fromkeys("{}", "it holds braces"),
}


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self.opened: list[Opened] = []

    def commands(self) -> list[Step]:
        commands: list[Step] = []
        command: list[_Token] = []
        before = "\n"
        for token in (*self._tokens, _Token("operator", "\n")):
            if token.kind != "operator":
                command.append(token)
                continue
            if command:
                commands.append(self._command(command))
                command = []
            elif token.text != "\n":
                raise UnreadableError("an operator has no command before it")
            elif before not in _ENDS:
                # After && the command may stand on the next line.
                continue
            before = token.text
        if before != "\n" or not commands:
            raise UnreadableError("a command is missing")
        return commands

    def _command(self, tokens: list[_Token]) -> Step:
        words: list[str] = []
        assigned: list[tuple[str, str]] = []
        timed = False
        for token in tokens:
            if token.kind == "redirection":
                if token.word is not None:
                    self.opened.append(Opened(token.word.text, writes=">" in token.text))
                continue
            word = token.word
            assert word is not None
            if words:
                words.append(word.text)
            elif timed and word.text.startswith("-"):
                raise UnreadableError("time has an option")
            elif word.unquoted and word.text == "time" and not assigned and token is tokens[0]:
                timed = True
            elif _assigns(word):
                name, _, value = word.text.partition("=")
                assigned.append((name.removesuffix("+"), value))
            else:
                words.append(_command_name(word))
        if not words and not assigned and (timed or not tokens):
            raise UnreadableError("a command is missing")
        return Step(tuple(words), tuple(assigned))


def _assigns(word: _Word) -> bool:
    variable = _VARIABLE.match(word.text)
    if variable is None or variable.end() > word.plain:
        return False
    if word.pattern or "~" in word.text:
        raise UnreadableError("a variable is set to a pattern or a home folder")
    return True


def _command_name(word: _Word) -> str:
    if word.pattern or not word.text or word.text.startswith("~"):
        raise UnreadableError("which program it starts is known only when it runs")
    if word.unquoted and word.text in _RESERVED:
        raise UnreadableError(f"{word.text} is a keyword of the shell")
    if word.text.split() != [word.text]:
        raise UnreadableError("the name of a program holds blanks")
    return word.text


_MAX_NESTING = 4
_MAX_STEPS = 200
_MAX_WORDS = 4_000


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
        if depth > _MAX_NESTING:
            raise UnreadableError("it is nested too deeply")
        commands, opened = _read_commands(source)
        self.opened += opened
        return [self._of_command(command, depth) for command in commands]

    def _of_command(self, command: Step, depth: int) -> Step:
        if not command.words:
            for name, _ in command.assigned:
                if not is_harmless_variable(name):
                    raise UnreadableError(f"it sets {name} for all that follows")
            return Step((":",), command.assigned)
        return self._step(command.words, command.assigned, depth)

    def _step(self, words: tuple[str, ...], assigned: tuple[tuple[str, str], ...], depth: int) -> Step:
        self._count += 1
        if self._count > _MAX_STEPS or len(words) > _MAX_WORDS:
            raise UnreadableError("it starts too many commands, or hands one too many words")
        name = words[0].rpartition("/")[2]
        strange = why_unreadable(name, words)
        if strange:
            raise UnreadableError(strange)
        if name == "cd":
            self.moves.append(words[1] if len(words) > 1 else "~")
        inner = self._inner(name, words, depth)
        for variable, _ in assigned:
            if not is_harmless_variable(variable):
                return Step(words, assigned, tuple(inner or ()), opaque=f"{variable} may change what {name} does")
        if inner is not None:
            return Step(words, assigned, tuple(inner), transparent=True)
        return Step(words, assigned, opaque=why_opaque(name, words))

    def _inner(self, name: str, words: tuple[str, ...], depth: int) -> list[Step] | None:
        """Return the commands that this one starts; None where it does more, or that is unknown."""
        if name == "eval":
            text = " ".join(words[2:] if words[1:2] == ("--",) else words[1:])
            if GLOB in text:
                raise UnreadableError("the text of a command is known only when it runs")
            return self.steps(text, depth + 1)
        if name in SHELLS:
            code = shell_code(words)
            return None if code is None else self.steps(code, depth + 1)
        if name not in WRAPPERS or words[1:2] in (("-v",), ("-V",)):
            return None
        wrapped = unwrap(words)
        if wrapped is None:
            return None
        command, assigned = wrapped
        return [self._step(command, assigned, depth + 1)]
