"""Arguments in a command line of a command file, quoted so that the shell takes them as words and never as commands.

The quoting depends on where the argument is: between words, in double quotes or in single quotes. A line in which that
cannot be told with certainty takes no arguments.
"""

from __future__ import annotations

import re
import shlex

ARGUMENT = re.compile(r"\$(?:(ARGUMENTS\b|@)|([1-9]\d?)\b)")
"""The first group is there for all arguments, the second is the number of one."""

_UNCLEAR = (
    ("a backslash", re.compile(r"\\")),
    ("a substitution", re.compile(r"\$[({]|[<>]\(")),
    ("a here-document", re.compile(r"<<")),
    ("a string with escapes", re.compile(r"\$['\"]")),
    ("a comment", re.compile(r"(?:^|\s)#")),
)
_DOUBLE_QUOTED = re.compile(r'([\\"$`])')


class UnclearQuotingError(ValueError):
    """Completes "the line has …"."""


def split_arguments(arguments: str) -> list[str]:
    """Return the words as a shell would split them; at blanks where quotes do not close."""
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()


def quote_arguments(line: str, arguments: str) -> str:
    """Return a command line with its arguments in place. Raise UnclearQuotingError for a line that takes arguments and
    is more than plain and quoted words."""
    if ARGUMENT.search(line) is None:
        return line
    for name, pattern in _UNCLEAR:
        if pattern.search(line):
            raise UnclearQuotingError(name)
    words = split_arguments(arguments)
    parts: list[str] = []
    quote, at = "", 0
    for match in ARGUMENT.finditer(line):
        before = line[at : match.start()]
        quote, at = _quote_after(before, quote), match.end()
        parts += [before, _value(match, words, arguments, quote)]
    return "".join([*parts, line[at:]])


def _quote_after(text: str, quote: str) -> str:
    """Return the quote that is open after `text`, which began inside `quote`; "" for none."""
    for character in text:
        if character == quote:
            quote = ""
        elif not quote and character in "'\"":
            quote = character
    return quote


def _value(match: re.Match[str], words: list[str], arguments: str, quote: str) -> str:
    chosen = words
    if match[2]:
        chosen = words[int(match[2]) - 1 : int(match[2])]
    if not quote:
        return shlex.join(chosen)
    text = arguments if match[1] else "".join(chosen)
    if quote == "'":
        return text.replace("'", "'\\''")
    return _DOUBLE_QUOTED.sub(r"\\\1", text)
