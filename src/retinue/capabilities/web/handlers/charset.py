"""Bytes to text: by the encoding that is declared while it holds, then UTF-8, then charset-normalizer's guess."""

from __future__ import annotations

import codecs
import re

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_PARAMETER = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_DECLARED = re.compile(
    rb"<(?:meta|\?xml)[^>]{0,200}?(?:charset|encoding)\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE
)
_SAME = {"ascii": "cp1252", "iso8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949"}
"""What pages that say the first are really written in."""
_KNOWN = re.compile(
    r"utf-(?:8|16|16-le|16-be|32|32-le|32-be)|cp\d{3,4}|iso8859-\d{1,2}|koi8-[ru]|mac-\w+|gb18030|big5(?:hkscs)?"
    r"|euc_j\w+|euc-jp|iso2022_jp\w*|shift_jis\w*|tis-620"
)
"""Encodings of text. Python knows others that are none, or that take quadratic time."""
_FEW = 0.002
_LITTLE = 64
"""Fewer bytes tell nothing about their encoding."""
_NEVER_UNMARKED = ("utf_7", "utf_16", "utf_16_be", "utf_16_le", "utf_32", "utf_32_be", "utf_32_le")
"""Encodings that no site uses without declaring them, and that fit almost any bytes."""
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def decode(body: bytes, header: str = "", *, truncated: bool = False) -> tuple[str, str | None]:
    """The text, and a warning where something had to be guessed. `truncated` bodies may end
    inside a character."""
    for bom, name in _BOMS:
        if body.startswith(bom):
            return body.decode(name, "replace").removeprefix("\ufeff"), None
    said = [found[1] for found in _PARAMETER.finditer(header)][:1]
    said += [found[1].decode("ascii") for found in _DECLARED.finditer(body[:4096])][:1]
    for name in filter(None, map(_codec, said)):
        text = _strict(body, name, truncated)
        if text is not None:
            return text, None
    text = _strict(body, "utf-8", truncated)
    if text is not None:
        return text, None
    text = body.decode("utf-8", "replace")
    if text.count("\ufffd") <= len(text) * _FEW:
        return text, "Some characters of it are broken."
    guess = _guess(body)
    warning = f"It is not in the encoding it claims ({said[0]}); read as {guess}." if said else f"Read as {guess}."
    return body.decode(guess, "replace"), warning


def is_binary(text: str) -> bool:
    """Whether it is no text at all, whatever the server called it."""
    sample = text[:8192]
    if not sample:
        return False
    if "\0" in sample:
        return True
    return len(_CONTROLS.findall(sample)) + sample.count("\ufffd") > len(sample) * 0.1


def _codec(label: str) -> str | None:
    try:
        name = codecs.lookup(label.strip()).name
    except (LookupError, ValueError):
        return None
    name = _SAME.get(name, name)
    return name if _KNOWN.fullmatch(name) else None


def _strict(body: bytes, name: str, truncated: bool) -> str | None:
    decoder = codecs.getincrementaldecoder(name)("strict")
    try:
        return decoder.decode(body, final=not truncated)
    except UnicodeError:
        return None


def _guess(body: bytes) -> str:
    """Return the encoding that is most probable; that of western Windows where nothing tells."""
    if len(body) < _LITTLE:
        return "cp1252"
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return "cp1252"
    best = from_bytes(body[:20_000], cp_exclusion=list(_NEVER_UNMARKED)).best()
    return (_codec(best.encoding) if best is not None else None) or "cp1252"
