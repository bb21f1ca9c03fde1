"""Control characters and invisible format characters, written out as text.

A terminal obeys some characters and hides or reorders text because of others. Text from outside (a project's files, a
model, a tool, another machine) may hold any of them. `escape_controls` keeps such text readable and harmless.

Imported at every start, so without `re` and `typing`.
"""

from __future__ import annotations

# Joiners that emoji and several scripts need, and marks of these scripts that are visible although they are formats.
_VISIBLE_FORMATS = frozenset(
    {0x200C, 0x200D, *range(0x0600, 0x0606), 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD}
)
_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_SHORT_ESCAPE_TABLE = {0x0D: "\\r"}


class _EscapeTable(dict[int, "int | str"]):
    """For `str.translate`. It decides on a character when it first meets it."""

    def __init__(self, safe: range = range(0)) -> None:
        super().__init__((code, code) for code in safe)

    def __missing__(self, code: int) -> int | str:
        shown = self[code] = code if _is_safe(code) else _escape(code)
        return shown


def _is_safe(code: int) -> bool:
    character = chr(code)
    if character in "\n\t" or character.isprintable() or code in _VISIBLE_FORMATS:
        return True
    from unicodedata import category

    return category(character) not in _ESCAPED_CATEGORIES


def _escape(code: int) -> str:
    """Return `\\x1b` for a C0 character, which JSON never holds unescaped, and JSON's own escape for the others."""
    if code < 0x20:
        return _SHORT_ESCAPE_TABLE.get(code, f"\\x{code:02x}")
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


_ESCAPE_TABLE = _EscapeTable()
_ESCAPES_KEEPING_BYTES = _EscapeTable(range(0xDC80, 0xDD00))


def escape_controls(text: str, *, keep_bytes: bool = False) -> str:
    """Return `text` with every control character but line feeds and tabs, and every invisible format character but the
    joiners of emoji and scripts, as a visible escape. Such escapes in the strings of a JSON document mean the same
    characters to its reader. `keep_bytes`: leave the bytes of a file name that are no characters (surrogateescape)."""
    if text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return text.replace("\r\n", "\n").translate(_ESCAPES_KEEPING_BYTES if keep_bytes else _ESCAPE_TABLE)


def visible(text: str) -> str:
    """Return `text` with everything that does not show itself written as an escape, joiners and odd blanks included:
    for texts that a person judges before allowing something."""
    if text.isprintable() and _BLANKS.isdisjoint(text):
        return text
    return "".join(map(_show, text))


def in_line(text: str) -> str:
    """Return the same for what must stay on its line: the name of a file can hold a line break."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
"""Letters and marks of which nothing is seen."""


def _show(character: str) -> str:
    if character in "\n\t" or (character.isprintable() and character not in _BLANKS):
        return character
    return ascii(character)[1:-1]
