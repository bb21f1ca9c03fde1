"""What a secret looks like: one table of rules, each quick to rule out and linear to apply.

Rules work on UTF-8 bytes, of plain text and of JSON alike. They are gathered in families by the
word with which their matches begin, so that one search finds all places where they may match;
from there patterns go on with possessive repeats and bounded gaps, so that no input makes them
slow. What a rule writes never matches again: applying rules twice changes nothing. Quotes and
escapes around a value stay in balance: JSON stays JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from msgspec import Struct

REDACTED = b"[REDACTED]"
Span = tuple[int, int, bytes]

_GAP = rb"(?:[ \t]|\\t){0,8}+"
_EDGE = rb"(?:\A|[^A-Za-z0-9_-]|\\[nrt])"
"""Before a word. In JSON a line feed is `\\n`: its letter is not part of the word after it."""
_QUOTE = rb"""\\{0,8}["']"""
_INSIDE = rb"""[^\s"'\\,;{}()<>\[\]]"""
"""A character of a value in quotes. The quote after it may be missing: output gets cut short."""
_PLAIN = rb"[A-Za-z0-9_+=-][A-Za-z0-9_+/=-]{19,}+(?![(\[])"
_LOUD = rb"[A-Za-z0-9_+=~%@!^-][A-Za-z0-9_+/=.~%@!^:-]{7,}+(?![(\[{])"


_NAMES_ONE = (
    rb"(?![A-Za-z_./:-]{0,64}(?:KEY|TOKEN|SECRET|PASSWORD|PRIVATEKEY|Key|key|token|secret|password)"
    rb"[A-Za-z_]{0,16}(?![A-Za-z0-9_+/=-]))"
)
"""Values that only name a secret: `ENV = "API_KEY"`, `private_key: PrivateKeyTypes`."""


@cache
def compiled(pattern: bytes) -> re.Pattern[bytes]:
    """Patterns are compiled when text first calls for them: most processes meet but a few."""
    return re.compile(pattern)


class SecretRule(Struct, frozen=True):
    """`pattern` begins with literal bytes, which is what makes it fast, and has a group `hide`
    (replaced by `shown`) or `value` (replaced by `=[REDACTED]`, separator and quotes included).
    With `folded` it is in lower case, for lower-cased text. `head` must end where it begins."""

    pattern: bytes
    head: bytes = b""
    folded: bool = True
    shown: bytes = REDACTED

    def at(self, text: bytes, low: bytes, begin: int) -> tuple[int, int, bytes, int] | None:
        """The span to hide if the rule matches at `begin`, with where the match ends."""
        searched = low if self.folded else text
        match = compiled(self.pattern).match(searched, begin)
        if match is None:
            return None
        if self.head and not compiled(self.head + rb"\Z").search(searched, max(begin - 24, 0), begin):
            return None
        if "value" in match.re.groupindex and match.group("value") is not None:
            return *match.span("value"), b"=" + REDACTED, match.end()
        return *match.span("hide"), self.shown, match.end()


class Family(Struct, frozen=True):
    """Rules whose matches begin with `word`, in lower case. `sign` says where to look for them in
    long text: it begins with the rarest letter of the word, `back` bytes into it, because a search
    goes from one such letter to the next, and ends with what must follow."""

    word: bytes
    rules: tuple[SecretRule, ...]
    sign: bytes = b""
    back: int = 0

    def spans(self, text: bytes, low: bytes) -> Sequence[Span]:
        """Return what the rules find, in order."""
        begin = self._next(low, 0)
        if begin < 0:
            return ()
        found: list[Span] = []
        while begin >= 0:
            position = begin + len(self.word)
            for rule in self.rules:
                match = rule.at(text, low, begin)
                if match is not None:
                    found.append(match[:3])
                    position = max(position, match[3])
                    break
            begin = self._next(low, position)
        return found

    def _next(self, low: bytes, position: int) -> int:
        """Return where the word may begin a match. In short text patterns would take longer to compile."""
        if not self.sign or len(low) < _SHORT:
            return low.find(self.word, position)
        match = compiled(self.sign).search(low, position + self.back)
        if match is None:
            return -1
        return match.start() - self.back


def _named(marker: bytes, more: bytes, head: bytes, plain: bytes, length: int, folded: bool) -> SecretRule:
    """`NAME = value` becomes `NAME=[REDACTED]`; a member `"NAME": "value"` stays a member."""
    inside = _NAMES_ONE + _INSIDE + rb"{%d,}+" % length
    plain = _NAMES_ONE + plain
    value = rb"(?P<value>%b[:=]%b(?:(?P<quote>%b)%b(?P=quote)?|%b))" % (_GAP, _GAP, _QUOTE, inside, plain)
    member = rb"%b%b[:=]%b%b(?P<hide>%b)" % (_QUOTE, _GAP, _GAP, _QUOTE, inside)
    pattern = rb"%b%b(?:%b|%b)" % (marker, more, value, member)
    return SecretRule(pattern, head, folded)


def _after(marker: bytes, rest: bytes, head: bytes = b"") -> SecretRule:
    return SecretRule(re.escape(marker) + rest, head)


_NAME_HEAD = rb"(?:api|auth|access|secret|client|refresh|private|session|bearer)[_-]?"
_LOUD_HEAD = rb"(?:API|ACCESS|SECRET|PRIVATE|AUTH|ENCRYPTION|SIGNING|MASTER|STRIPE)_?"
_MEMBER = _QUOTE + _GAP + b":" + _GAP + _QUOTE + rb"(?P<hide>(?=[^\"'\\]{0,64}[0-9])" + _INSIDE + rb"{8,}+)"
_QUERY = (
    rb"(?:api[_-]?key|access_token|token|secret|client_secret|auth|password|sig|signature|key)="
    rb"(?P<hide>[a-z0-9_+/=.~%-]{10,}+)"
)

_AUTHORIZATION = (
    rb"(?:%b)?%b[:=]%b(?:%b)?"
    % (_QUOTE, _GAP, _GAP, _QUOTE)
    + rb"(?!(?:str|string|bool|none|null|true|false|required|optional)\b|[a-z]{1,16}[ \t]{1,4}\["
    rb"|[a-z]{1,2}\\{0,8}[\"']|[a-z_][a-z0-9_.]{0,64}+[(\[])"
    rb"(?P<hide>(?:(?:basic|bearer|token|digest|negotiate|apikey)[ \t]{1,4})?[^\s\"'\\,;{}()\[\]]++)"
)
_BEARER = (
    rb"(?:[ \t]|\\t){1,4}(?!(?:tokens?|auth|authentication|authorization|scheme|headers?|credentials?|of|and|or|for|is|"
    rb"in|with)\b|[a-z]{1,12}(?![a-z0-9._~+/=-]))(?P<hide>[a-z0-9._~+/-][a-z0-9._~+/=-]*+)"
)
_EXPORT = (
    rb"(?P<hide>export[ \t]{1,8}[A-Za-z_][A-Za-z0-9_]{0,80}+="
    rb"(?:(?P<quote>%b)%b{20,}+(?P=quote)?|[A-Za-z0-9_+=][A-Za-z0-9_+/=.~-]{19,}+))" % (_QUOTE, _INSIDE)
)

_IN_A_STRING = rb"(?P<hide>[^\s;\"'\\<>{}()$%*\[\]]{4,128}+)(?=[;\"'\s\\]|\Z)"
"""A value in `Server=…;Password=…;`, as ADO and JDBC write connections."""
_FIRST = rb"(?:;[ \t]?|\A|[\"'])"
"""After another value, or where a text begins: as it is, in quotes, or as a string of JSON."""


def _spoken(word: bytes, head: bytes, more: bytes = b"") -> tuple[SecretRule, ...]:
    """`api_key=…` in any case, from 20 characters on; `OPENAI_API_KEY=…` from 8 on."""
    return (_named(word, more, _NAME_HEAD, _PLAIN, 20, True), _named(word.upper(), more.upper(), head, _LOUD, 8, False))


_ASSIGNED = rb"(?:%b)?%b[:=]" % (_QUOTE, _GAP)
"""What follows a name that has a value."""

FAMILIES = (
    Family(
        b"key",
        (
            *_spoken(b"key", _LOUD_HEAD, rb"(?:_id)?"),
            _after(b"key=", rb"(?P<hide>[a-z0-9+/]{30,}+={0,2})", rb"(?:account|sharedaccess)"),  # Azure
        ),
        rb"key(?:_id)?" + _ASSIGNED,
    ),
    Family(
        b"token", (*_spoken(b"token", b""), _after(b"token", _MEMBER, _QUOTE)), rb"ken(?<=token)" + _ASSIGNED, back=2
    ),
    Family(
        b"secret",
        (*_spoken(b"secret", b""), _after(b"secret", _MEMBER, _QUOTE)),
        rb"cret(?<=secret)" + _ASSIGNED,
        back=2,
    ),
    Family(
        b"pass",
        (
            _named(b"PASS", rb"(?:WORD|WD|PHRASE)", b"", _LOUD, 8, False),
            _after(b"pass", rb"(?:word|wd|phrase)" + _MEMBER, _QUOTE),
            _after(b"password=", _IN_A_STRING, _FIRST),
        ),
        rb"pass(?:word|wd|phrase)" + _ASSIGNED,
    ),
    Family(
        b"authorization", (_after(b"authorization", _AUTHORIZATION),), rb"zation(?<=authorization)" + _ASSIGNED, back=7
    ),
    Family(b"bearer", (_after(b"bearer", _BEARER, _EDGE),), rb"bearer[ \t\\]"),
    Family(b"?", (_after(b"?", _QUERY),)),
    Family(b"&", (_after(b"&", _QUERY),)),
    Family(
        b"://",
        (
            _after(b"://", rb"(?P<hide>[^\s/:@\"'\\<>{}]{0,256}+:[^\s/@\"'\\<>{}]{1,256}+)@"),
            _after(b"://hooks.slack.com/", rb"(?:services|workflows|triggers)/(?P<hide>[a-z0-9/_-]{20,}+)"),
            SecretRule(
                rb"://(?:[a-z]{2,8}\.)?discord(?:app)?\.com/api/webhooks/[0-9]{10,24}/(?P<hide>[a-z0-9_-]{40,}+)"
            ),
        ),
        rb"://(?:[^\s/@]*+@|hooks\.slack\.com/|[a-z.]*+(?<=\.com)/api/webhooks/)",
    ),
    Family(b"pwd=", (_after(b"pwd=", _IN_A_STRING, _FIRST),), rb"wd=(?<=pwd=)", back=1),
    Family(
        b"export",
        (SecretRule(_EXPORT, _EDGE, folded=False, shown=b"[ENV_VAR_REDACTED]"),),
        rb"xport(?<=export)[ \t]",
        back=1,
    ),
)
"""Applied one after the other, each to what the one before has left."""

_SHORT = 8_192

KEY_BEGIN = b"-----BEGIN "
_KEY_BEGIN = KEY_BEGIN + rb"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_KEY_END = rb"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_KEY_BODY = rb"(?:\s|\\[nr]|[A-Za-z0-9+/=]{30,})*+(?:[A-Za-z0-9+/]{1,29}={0,2}(?=\s|\\[nr]|\Z))?"
_KEY_LENGTH = 16_384


def private_keys(text: bytes) -> Iterator[Span]:
    """Whole key blocks; of a block without an end, the lines that can only be a key."""
    position, next_end = 0, -1
    while begin := compiled(_KEY_BEGIN).search(text, position):
        if next_end < begin.end():
            found = compiled(_KEY_END).search(text, begin.end())
            next_end = found.end() if found else len(text) + _KEY_LENGTH
        position = next_end
        if next_end - begin.end() > _KEY_LENGTH:
            body = compiled(_KEY_BODY).match(text, begin.end())
            position = body.end() if body else begin.end()
        yield begin.start(), position, b"[PRIVATE_KEY_REDACTED]"


def secret_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values of variables whose names say that they are secret, longest first. Values that
    could be an ordinary word, a number or a path are left alone: hiding them would hide text."""
    found = {value for name, value in environment.items() if is_secret_name(name) and _is_telling(value)}
    return tuple(sorted(found, key=len, reverse=True))


_VARIABLE = re.compile(
    r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY|PAT)(?:_ID|_BASE64|_\d+)?$",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Return whether the variable of this name holds a secret, going by the name alone."""
    return _VARIABLE.search(name) is not None


def _is_telling(value: str) -> bool:
    # Hiding an ordinary word would hide it everywhere in the log.
    if len(value) < 8 or value[0] in "/.~" or any(character.isspace() for character in value):
        return False
    mixed = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return mixed or len(value) >= 16


def cut_out(text: bytes, spans: Iterable[Span]) -> bytes:
    """`text` with each span replaced; the very same object if there is none."""
    pieces: list[bytes] = []
    position = 0
    for begin, end, shown in spans:
        if begin >= position:
            pieces += (text[position:begin], shown)
            position = end
    if pieces:
        return b"".join((*pieces, text[position:]))
    return text
