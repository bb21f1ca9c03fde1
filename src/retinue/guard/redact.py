"""Removal of secrets from the log, notifications and results.

The log passes every event body through a `Redactor` before it is written or shown. Most have no
secret, which a search of their JSON finds out in microseconds.

In text that arrives in pieces a secret may be cut anywhere. A possible beginning of one is
held back until the next character that no secret contains: in ordinary text, the last word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.events import Body, TurnEnded, TurnStarted
from retinue.core.messages import Document, Image, Text, Thinking, ToolCall
from retinue.guard.secrets import (
    FAMILIES,
    KEY_BEGIN,
    REDACTED,
    SHORTEST_TOKEN,
    Family,
    SecretRule,
    Span,
    compile_once,
    cut_out,
    private_keys,
    tokens,
)
from retinue.models.keys import environment as process_environment
from retinue.settings.places import DATABASE_VARIABLE

WORD_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+/=.~%@!^:?&\\\"'"
_GAP = " \t\r\n\"'\\"
_OPENERS = (
    *(":", "=", "bearer", "basic", "digest", "negotiate", "apikey", "authorization", "export"),
    *("key", "token", "secret", "password", "passwd", "passphrase", "key_id"),
)
"""How text ends when the next word could be the value of a secret."""
_MAX_OPENER_CHARACTERS = max(len(opener) for opener in _OPENERS)
_MAX_HELD_CHARACTERS = 4_096
_MAX_HELD_KEY_CHARACTERS = 20_000
"""The most characters that are held back. No known secret is longer."""
_MIN_LETTERS_OF_SECRET = 16
"""Secrets made of letters only are at least this long."""
_BLOCK = re.compile(r"-----BEGIN(?: [A-Z0-9 ]{0,60}(?:-{0,5}\Z|PRIVATE KEY(?: BLOCK)?-----)|\Z)")
_BLOCK_END = re.compile(r"-----END [A-Z0-9 ]{0,60}-----")


class RedactedStream:
    """Redacts text that arrives in pieces: call `feed` for each piece in order, then `finish` once. The joined results
    are the redacted text, and no secret is split between two results."""

    def __init__(self, redact: Callable[[str], str], characters: str = WORD_CHARACTERS) -> None:
        self._redact = redact
        self._characters = characters
        self._held = ""
        self._swallow = False

    def feed(self, text: str) -> str:
        held = self._held + text
        if self._swallow:
            held = held.lstrip(self._characters)
            self._swallow = not held
        cut, longest = self._safe_length(held), _MAX_HELD_CHARACTERS
        if cut and "-----BEGIN" in held:
            cut, longest = self._before_block(held, cut)
        if len(held) - cut > longest:
            return self._force(held)
        self._held, safe = held[cut:], held[:cut]
        word = safe.strip()
        # One short word of letters is most of what a model streams, and no secret.
        if len(word) < _MIN_LETTERS_OF_SECRET and (not word or word.isalpha()):
            return safe
        return self._redact(safe)

    def finish(self) -> str:
        held, self._held, self._swallow = self._held, "", False
        return self._redact(held) if held else ""

    def _force(self, held: str) -> str:
        shown = self._redact(held)
        # If the end was part of a secret, the rest of that secret has yet to come.
        self._swallow = not shown.endswith(held[-16:])
        self._held = ""
        return shown

    def _safe_length(self, held: str) -> int:
        """Return the length of the text that certainly neither is nor introduces a part of a secret."""
        cut = len(held.rstrip(self._characters))
        while cut:
            spoken = held[:cut].rstrip(_GAP)
            if not spoken[-_MAX_OPENER_CHARACTERS:].lower().endswith(_OPENERS):
                return cut
            cut = len(spoken.rstrip(self._characters))
        return 0

    def _before_block(self, held: str, cut: int) -> tuple[int, int]:
        """Return the same length for a key block, which has spaces. A block is returned only when it is complete."""
        block = _BLOCK.search(held)
        while block is not None and block.start() < cut:
            end = _BLOCK_END.search(held, block.end())
            if end is None or end.end() > cut:
                return self._safe_length(held[: block.start()]), _MAX_HELD_KEY_CHARACTERS
            block = _BLOCK.search(held, end.end())
        return cut, _MAX_HELD_CHARACTERS


_SHORT_TEXT_BYTES = 1_000
"""Shorter texts are searched for each word separately, which is faster for them."""

_OPAQUE: dict[type, frozenset[str]] = {
    Image: frozenset({"data"}),
    Document: frozenset({"data"}),
    Text: frozenset({"signature"}),
    Thinking: frozenset({"signature", "redacted"}),
    ToolCall: frozenset({"signature"}),
}
"""Fields that must go back to a provider byte by byte, and cannot hold what a person typed."""


class Redactor:
    """Removes values with the shape of a secret, and values of secret variables in `environment`. It is deterministic,
    and applying it twice changes nothing."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        values = secret_values(environment or {})
        self._characters = "".join({*WORD_CHARACTERS, *"".join(values)})
        self._families = tuple(_literally(value) for value in _spellings(values)) + FAMILIES

    def __call__(self, text: str) -> str:
        """Return `text` without secrets, or the same object if it has none."""
        data = text.encode("utf-8", "surrogatepass")
        clean = self._clean(data)
        return text if clean is data else clean.decode("utf-8", "surrogatepass")

    def body(self, body: Body, encoded: bytes) -> Body:
        """Return `body` without secrets, or the same object if it has none. `encoded` is its JSON."""
        # They hold numbers only, and there are many of them.
        if isinstance(body, (TurnStarted, TurnEnded)):
            return body
        if not self.suspects(encoded):
            return body
        clean: Body = self.data(body)
        return clean

    def suspects(self, encoded: bytes) -> bool:
        """Return whether the JSON of a value contains a secret, which is much cheaper than checking each part of it."""
        return next(self._find_spans(encoded), None) is not None

    def data(self, value: Any) -> Any:
        """Return plain data or a domain value without secrets, or the value itself if it has none."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, (tuple, list)):
            items = [self.data(item) for item in value]
            same = all(new is old for new, old in zip(items, value, strict=True))
            if same:
                return value
            if isinstance(value, tuple):
                return tuple(items)
            return items
        if isinstance(value, Struct):
            return self._fields(value)
        return value

    def stream(self) -> RedactedStream:
        """Return a redactor for text that arrives in pieces."""
        return RedactedStream(self, self._characters)

    def _clean(self, data: bytes) -> bytes:
        if KEY_BEGIN in data:
            data = cut_out(data, private_keys(data))
        low = data.lower()
        for family in self._worth_a_look(low):
            spans = family.spans(data, low)
            if spans:
                data = cut_out(data, spans)
                low = data.lower()
        if len(data) >= SHORTEST_TOKEN:
            return cut_out(data, tokens(data))
        return data

    def _worth_a_look(self, low: bytes) -> Sequence[Family]:
        if len(low) > _SHORT_TEXT_BYTES:
            return self._families
        return [family for family in self._families if family.word in low]

    def _find_spans(self, data: bytes) -> Iterator[Span]:
        low = data.lower()
        for family in self._worth_a_look(low):
            yield from family.spans(data, low)
        yield from tokens(data)
        if KEY_BEGIN in data:
            yield from private_keys(data)

    def _fields(self, value: Struct) -> Struct:
        opaque = _OPAQUE.get(type(value), frozenset())
        changed = {}
        for name in value.__struct_fields__:
            if name not in opaque:
                old = getattr(value, name)
                new = self.data(old)
                if new is not old:
                    changed[name] = new
        if changed:
            return replace(value, **changed)
        return value

    def _mapping(self, value: Mapping[Any, Any]) -> Mapping[Any, Any]:
        result: dict[Any, Any] = {}
        same = True
        for key, old in value.items():
            new_key = self(key) if isinstance(key, str) else key
            new = REDACTED.decode() if self._hides(key, old) else self.data(old)
            same = same and new is old and new_key is key
            result[new_key] = new
        if same:
            return value
        return result

    def _hides(self, key: Any, value: Any) -> bool:
        """Return whether a value is secret because of the name it has: `{"api_key": "…"}`."""
        if not isinstance(key, str) or not isinstance(value, str):
            return False
        node = f'"{key}": "'
        return self(f'{node}{value}"').startswith(f"{node}{REDACTED.decode()}") and value != REDACTED.decode()


def secret_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables with secret names, longest first. Values that could be an ordinary word, a number
    or a path are excluded, because hiding them would hide ordinary text."""
    values = {value for name, value in environment.items() if is_secret_name(name) and _is_telling(value)}
    password = _password(environment.get(DATABASE_VARIABLE, ""))
    if _is_telling(password):
        values.add(password)
    return tuple(sorted(values, key=len, reverse=True))


_VARIABLE = re.compile(
    r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY|PAT)(?:_ID|_BASE64|_\d+)?$",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Return whether the variable of this name holds a secret, going by the name alone."""
    return name == DATABASE_VARIABLE or _VARIABLE.search(name) is not None


def _password(url: str) -> str:
    from urllib.parse import unquote, urlsplit

    try:
        return unquote(urlsplit(url).password or "") if url else ""
    except ValueError:
        return ""


def _is_telling(value: str) -> bool:
    # Hiding an ordinary word would hide it everywhere in the log.
    if len(value) < 8 or value[0] in "/.~" or any(character.isspace() for character in value):
        return False
    mixed = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return mixed or len(value) >= 16


def _spellings(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return each value unchanged and as JSON writes it inside a string."""
    escaped = [value.replace("\\", "\\\\").replace('"', '\\"') for value in values]
    return tuple(dict.fromkeys([*values, *escaped]))


def _literally(value: str) -> Family:
    data = value.encode("utf-8", "surrogatepass")
    return Family(data.lower(), (SecretRule(b"(?P<hide>" + re.escape(data) + b")", folded=False),))


_LOOSE = (
    rb"(?:api|auth|access|secret|client|refresh|private|session)[_-]?(?:key|token|secret)"
    rb"[\"'\\]{0,4}[ \t]{0,8}[:=][ \t]{0,8}[\"'\\]{0,4}[a-z0-9_+/=-]"
)


def contains_secret(text: str) -> bool:
    """Return whether text has a secret or a key with any value."""
    low = text.encode("utf-8", "surrogatepass").lower()
    return compile_once(_LOOSE).search(low) is not None or Redactor()(text) is not text


FRAMES_KEPT = 5
_FRAME_LENGTH = 100
_MORE = "[Additional stack frames truncated]"
_FRAME = re.compile(r"^(?:\s+at |(?:Error|TypeError|ReferenceError):)")
_PYTHON_FRAME = re.compile(
    r'\n(?P<indent>[ \t]+)File "[^"\n]+", line \d+[^\n]*'
    r"(?:\n(?:(?P=indent)[ \t]+[^\s][^\n]*|[ \t]*\[Previous line repeated[^\n]*))*"
)
"""A frame with its lines of code, which stand further in, or with the line that says how often it was repeated."""
_TRACEBACK = re.compile(
    rf"^(?P<head>[ \t]*Traceback \(most recent call last\):[ \t]*)(?P<frames>(?:{_PYTHON_FRAME.pattern})+)",
    re.MULTILINE,
)
_FRAME_PATH = re.compile(r"^(\s{1,64})at [^\n()]{0,400}\([^\n()]{1,1000}\)", re.MULTILINE)
_HOMES = re.compile(r"(?<![\w.~-])(?:/home|/Users)/[\w.-]+|(?<!\w)[A-Za-z]:\\Users\\[\w.-]+|(?<!\w)G:\\[\w.-]+")


def sanitise(
    text: str, environment: Mapping[str, str] | None = None, redact: Callable[[str], str] | None = None
) -> str:
    """Return the text without secrets, then without the files of stack frames, home folders, and all but five frames.
    In this order, because a path can be part of a secret and never the other way round."""
    environment = process_environment() if environment is None else environment
    text = (redact or Redactor(environment))(text)
    text = _FRAME_PATH.sub(r"\1at [REDACTED_PATH]", text)
    return _TRACEBACK.sub(_shorten_traceback, _shorten_frames(_without_homes(text, environment)))


def _without_homes(text: str, environment: Mapping[str, str]) -> str:
    for name in ("HOME", "USERPROFILE"):
        home = environment.get(name, "").rstrip("/\\")
        if len(home) > 1:
            text = re.sub(re.escape(home) + r"(?![\w.-])", "~", text)
    return _HOMES.sub("~", text)


def _shorten_frames(text: str) -> str:
    """Return the first frames, a part of the next, and a note that there were more."""
    if _MORE in text:
        return text
    lines = text.split("\n")
    shortened: list[str] = []
    frames = 0
    for line in lines:
        if _FRAME.match(line):
            frames += 1
            if frames == FRAMES_KEPT + 1:
                shortened += (f"{line[:_FRAME_LENGTH]}...", _MORE)
            if frames > FRAMES_KEPT:
                continue
        shortened.append(line)
    return "\n".join(shortened) if frames > FRAMES_KEPT else text


def _shorten_traceback(traceback: re.Match[str]) -> str:
    """Return the last frames of a Python traceback, in which the newest call comes last."""
    frames = [frame[0] for frame in _PYTHON_FRAME.finditer(traceback["frames"])]
    if len(frames) <= FRAMES_KEPT:
        return traceback[0]
    return "".join((traceback["head"], f"\n  {_MORE}", *frames[-FRAMES_KEPT:]))
