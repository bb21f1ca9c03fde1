"""The shapes of secrets: rules for named values, and key formats that are recognised by their beginning.

Rules work on UTF-8 bytes, of plain text and of JSON alike. They are gathered in families by the
word with which their matches begin, so that one search finds all places where they may match;
from there patterns go on with possessive repeats and bounded gaps, so that no input makes them
slow. A replacement never matches again: applying rules twice changes nothing. Quotes and
escapes around a value stay in balance: JSON stays JSON.

Nearly all keys with a format are one word of at least twenty characters. Long words are found by two
byte searches in a mask of the text, a few hundred megabytes per second, and only they are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
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
_PLAIN_VALUE = rb"[A-Za-z0-9_+=-][A-Za-z0-9_+/=-]{19,}+(?![(\[])"
_LOUD = rb"[A-Za-z0-9_+=~%@!^-][A-Za-z0-9_+/=.~%@!^:-]{7,}+(?![(\[{])"


_NAMES_ONE = (
    rb"(?![A-Za-z_./:-]{0,64}(?:KEY|TOKEN|SECRET|PASSWORD|PRIVATEKEY|Key|key|token|secret|password)"
    rb"[A-Za-z_]{0,16}(?![A-Za-z0-9_+/=-]))"
)
"""Values that only name a secret: `ENV = "API_KEY"`, `private_key: PrivateKeyTypes`."""


@cache
def compile_once(pattern: bytes) -> re.Pattern[bytes]:
    """Return a pattern, compiled on first use, because most processes need only a few."""
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
        """Return the span to hide if the rule matches at `begin`, with where the match ends."""
        searched = low if self.folded else text
        match = compile_once(self.pattern).match(searched, begin)
        if match is None:
            return None
        if self.head and not compile_once(self.head + rb"\Z").search(searched, max(begin - 24, 0), begin):
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
        """Return the matches of the rules, in order."""
        begin = self._next(low, 0)
        if begin < 0:
            return ()
        spans: list[Span] = []
        while begin >= 0:
            position = begin + len(self.word)
            for rule in self.rules:
                match = rule.at(text, low, begin)
                if match is not None:
                    spans.append(match[:3])
                    position = max(position, match[3])
                    break
            begin = self._next(low, position)
        return spans

    def _next(self, low: bytes, position: int) -> int:
        """Return where the word may begin a match. In short text patterns would take longer to compile."""
        if not self.sign or len(low) < _SHORT:
            return low.find(self.word, position)
        match = compile_once(self.sign).search(low, position + self.back)
        if match is None:
            return -1
        return match.start() - self.back


def _name_rule(marker: bytes, suffix: bytes, head: bytes, plain: bytes, length: int, folded: bool) -> SecretRule:
    """`NAME = value` becomes `NAME=[REDACTED]`; a member `"NAME": "value"` stays a member."""
    inside = _NAMES_ONE + _INSIDE + rb"{%d,}+" % length
    plain = _NAMES_ONE + plain
    value = rb"(?P<value>%b[:=]%b(?:(?P<quote>%b)%b(?P=quote)?|%b))" % (_GAP, _GAP, _QUOTE, inside, plain)
    member = rb"%b%b[:=]%b%b(?P<hide>%b)" % (_QUOTE, _GAP, _GAP, _QUOTE, inside)
    pattern = rb"%b%b(?:%b|%b)" % (marker, suffix, value, member)
    return SecretRule(pattern, head, folded)


def _after(marker: bytes, pattern: bytes, head: bytes = b"") -> SecretRule:
    return SecretRule(re.escape(marker) + pattern, head)


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


_TOLD = (
    rb"%b:[ \t]{1,8}+(?:%b)?(?P<hide>(?=[^\s\"'\\]{0,64}(?:[0-9]|[^\s\"'\\a-z0-9_.,:;/()<>{}\[\]-]))"
    rb"[^\s\"'\\,;{}()<>\[\]$]{6,128}+)(?![(\[{])" % (_GAP, _QUOTE)
)
"""A value behind `password: `, in a file of YAML or on a line: a digit or a sign tells it from a word of a sentence."""


def _name_rules(word: bytes, head: bytes, suffix: bytes = b"") -> tuple[SecretRule, ...]:
    """`api_key=…` in any case, from 20 characters on; `OPENAI_API_KEY=…` from 8 on."""
    return (
        _name_rule(word, suffix, _NAME_HEAD, _PLAIN_VALUE, 20, True),
        _name_rule(word.upper(), suffix.upper(), head, _LOUD, 8, False),
    )


_ASSIGNED = rb"(?:%b)?%b[:=]" % (_QUOTE, _GAP)
"""The signs between a name and its value."""

FAMILIES = (
    Family(
        b"key",
        (
            *_name_rules(b"key", _LOUD_HEAD, rb"(?:_id)?"),
            _after(b"key=", rb"(?P<hide>[a-z0-9+/]{30,}+={0,2})", rb"(?:account|sharedaccess)"),  # Azure
        ),
        rb"key(?:_id)?" + _ASSIGNED,
    ),
    Family(
        b"token",
        (*_name_rules(b"token", b""), _after(b"token", _MEMBER, _QUOTE)),
        rb"ken(?<=token)" + _ASSIGNED,
        back=2,
    ),
    Family(
        b"secret",
        (*_name_rules(b"secret", b""), _after(b"secret", _MEMBER, _QUOTE)),
        rb"cret(?<=secret)" + _ASSIGNED,
        back=2,
    ),
    Family(
        b"pass",
        (
            _name_rule(b"PASS", rb"(?:WORD|WD|PHRASE)", b"", _LOUD, 8, False),
            _after(b"pass", rb"(?:word|wd|phrase)" + _MEMBER, _QUOTE),
            _after(b"password=", _IN_A_STRING, _FIRST),
            _after(b"pass", rb"(?:word|wd|phrase)" + _TOLD, rb"(?:\A|[^a-z0-9]|\\[nrt])"),
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
    while begin := compile_once(_KEY_BEGIN).search(text, position):
        if next_end < begin.end():
            end_line = compile_once(_KEY_END).search(text, begin.end())
            next_end = end_line.end() if end_line else len(text) + _KEY_LENGTH
        position = next_end
        if next_end - begin.end() > _KEY_LENGTH:
            body = compile_once(_KEY_BODY).match(text, begin.end())
            position = body.end() if body else begin.end()
        yield begin.start(), position, b"[PRIVATE_KEY_REDACTED]"


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


SHORTEST_TOKEN = 20

_FORMATS = (
    # GitHub comes first: it is shown with its name.
    rb"(?P<github>gh[pousr]_[A-Za-z0-9]{20,}+|github_pat_[A-Za-z0-9_]{20,}+)",
    rb"gl(?:pat|dt|rt|rtr|cbt|ptt|ft|agent|oas|imt|soat|ffct)-[A-Za-z0-9_-]{20,}+",  # GitLab
    rb"sk-ant-[A-Za-z0-9_-]{16,}+",  # Anthropic
    rb"sk-(?=[A-Za-z_-]{0,40}+[0-9])[A-Za-z0-9_-]{20,}+",  # OpenAI, OpenRouter, DeepSeek and others
    rb"sess-[A-Za-z0-9]{40,}+",
    rb"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}+",  # Stripe
    rb"whsec_[A-Za-z0-9+/=]{24,}+",
    rb"AIza[A-Za-z0-9_-]{30,}+",  # Google
    rb"GOCSPX-[A-Za-z0-9_-]{20,}+",
    rb"xox[abeoprs]-[A-Za-z0-9-]{15,}+",  # Slack
    rb"xapp-[0-9]-[A-Z0-9]{8,}+-[A-Za-z0-9-]{20,}+",
    rb"(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}(?![A-Za-z0-9])",  # AWS
    rb"hf_[A-Za-z0-9]{30,}+",  # Hugging Face
    rb"npm_[A-Za-z0-9]{36,}+",
    rb"pypi-[A-Za-z0-9_-]{50,}+",
    rb"rubygems_[a-f0-9]{48}",
    rb"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}+",  # Docker Hub
    rb"gsk_[A-Za-z0-9]{40,}+",  # Groq
    rb"xai-[A-Za-z0-9]{40,}+",
    rb"pplx-[A-Za-z0-9]{40,}+",  # Perplexity
    rb"tvly-[A-Za-z0-9_-]{20,}+",  # Tavily
    rb"r8_[A-Za-z0-9]{37,}+",  # Replicate
    rb"lsv2_(?:pt|sk)_[A-Za-z0-9_]{32,}+",  # LangSmith
    rb"dapi[a-f0-9]{32}",  # Databricks
    rb"do[opr]_v1_[a-f0-9]{64}",  # DigitalOcean
    rb"lin_(?:api|oauth)_[A-Za-z0-9]{32,}+",  # Linear
    rb"ntn_[A-Za-z0-9]{40,}+",  # Notion
    rb"secret_(?=[A-Za-z]{0,40}+[0-9])[A-Za-z0-9]{43}(?![A-Za-z0-9_])",
    rb"figd_[A-Za-z0-9_-]{30,}+",  # Figma
    rb"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}",  # Shopify
    rb"sq0(?:atp|csp|idp)-[A-Za-z0-9_-]{22,}+",  # Square
    rb"key-[a-f0-9]{32}(?![A-Za-z0-9])",  # Mailgun
    rb"SK[a-f0-9]{32}(?![A-Za-z0-9])",  # Twilio
    rb"gl(?:sa|c)_[A-Za-z0-9+/=_]{32,}+",  # Grafana
    rb"NRAK-[A-Z0-9]{27}",  # New Relic
    rb"sntry[su]_[A-Za-z0-9+/=_-]{40,}+",  # Sentry
    rb"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_-]{32,}+",  # PlanetScale
    rb"sbp_[a-f0-9]{40}",  # Supabase
    rb"PMAK-[a-f0-9]{24}-[a-f0-9]{34}",  # Postman
    rb"AGE-SECRET-KEY-1[A-Z0-9]{58}",
    rb"ATATT3[A-Za-z0-9_=-]{50,}+",  # Atlassian
    rb"ATBB[A-Za-z0-9]{28,}+(?![A-Za-z0-9_])",
    rb"nfp_[A-Za-z0-9]{36,}+",  # Netlify
    rb"tskey-[a-z]{3,12}-[A-Za-z0-9]{8,}+-[A-Za-z0-9]{20,}+",  # Tailscale
    rb"pul-[a-f0-9]{40}",  # Pulumi
    rb"HRKU-[A-Za-z0-9_-]{36,}+",  # Heroku
    rb"CFPAT-[A-Za-z0-9_-]{40,}+",  # Contentful
    rb"EAACEdEose0cBA[A-Za-z0-9]{20,}+",  # Facebook
    rb"LTAI[A-Za-z0-9]{16,22}(?![A-Za-z0-9])",  # Alibaba
    # With dots in them: one of the parts is a long word.
    rb"eyJ[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{4,}+\.[A-Za-z0-9_-]{4,}+",  # JSON web tokens
    rb"ya29\.[A-Za-z0-9_-]{20,}+",  # Google
    rb"SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+",  # SendGrid
    rb"hv[sb]\.[A-Za-z0-9_-]{24,}+",  # Vault
    rb"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9._-]{40,}+",  # Doppler
    rb"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}+",  # Terraform Cloud
    rb"[MNO][A-Za-z0-9_-]{22,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,45}(?![A-Za-z0-9_-])",  # Discord
    rb"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])",  # Telegram
)
_BEFORE_DOT = 28
"""How far a token can begin before its long part."""
_BEGINNINGS = tuple(
    b"ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ gl sk- sk_ rk_ pk_ AIza xox hf_ npm_ pypi- gsk_ xai- AKIA ASIA"
    b" whsec_ GOCSPX- pplx- dckr_".split()
)
_WORD_BYTES = bytes(
    120 if chr(code).isascii() and (chr(code).isalnum() or chr(code) in "_-") else 32 for code in range(256)
)
_LONG = b"x" * SHORTEST_TOKEN
_BACKSLASH = 0x5C


@cache
def _formats() -> re.Pattern[bytes]:
    """With what is before a token: not a letter or digit, unless that is the end of `\\n` in JSON."""
    return re.compile(rb"[^A-Za-z0-9](?:(?<=\\)[nrt])??(?P<token>%b)" % b"|".join(_FORMATS))


def tokens(text: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield where tokens stand, in order, each with what is shown instead."""
    mask = text.translate(_WORD_BYTES)
    find, length, done = mask.find, len(mask), 0
    harmless: set[bytes] = set()
    begin = find(_LONG)
    while begin >= 0:
        end = find(b" ", begin)
        if end < 0:
            end = length
        # Names, ids and parts of paths come again and again: between the same neighbours they mean the same.
        around = text[begin - 1 : end + 1] if begin else text[: end + 1]
        if around not in harmless:
            if _is_name(text, begin, end):
                harmless.add(around)
            else:
                start, stop = _whole(text, mask, begin, end)
                matches = list(_matches(text, max(start, done), stop))
                for span, shown in matches:
                    done = span[1]
                    yield *span, shown
                if not matches and (start, stop) == (begin, end):
                    harmless.add(around)
        begin = find(_LONG, end)


def _is_name(text: bytes, begin: int, end: int) -> bool:
    """A name in source is made of letters. A token is not, or begins where the word does."""
    # A digit makes a long word suspicious.
    if not text[begin:end].translate(None, b"_-").isalpha():
        return False
    escaped = begin > 0 and text[begin - 1] == _BACKSLASH
    return not text.startswith(_BEGINNINGS, begin + 1 if escaped else begin)


def _whole(text: bytes, mask: bytes, begin: int, end: int) -> tuple[int, int]:
    """Return the word with the parts that dots join to it."""
    if begin and text[begin - 1] in b".:":
        begin = max(begin - _BEFORE_DOT, 0)
    for _ in range(2):
        if text[end : end + 1] != b".":
            break
        after = mask.find(b" ", end + 1)
        end = len(text) if after < 0 else after
    return begin, end


def _matches(text: bytes, begin: int, end: int) -> Iterator[tuple[tuple[int, int], bytes]]:
    """Tokens from `begin` on; what is before one may be before that."""
    # There is nothing before it.
    if begin == 0:
        for (start, stop), shown in _matches(b" " + text[:end], 1, end + 1):
            yield (start - 1, stop - 1), shown
        return
    search = _formats().search
    match = search(text, max(begin - 2, 0), end)
    while match is not None:
        start, stop = match.span("token")
        if start < begin:
            match = search(text, match.start() + 1, end)
        else:
            yield (start, stop), b"[GITHUB_TOKEN_REDACTED]" if match.group("github") else b"[REDACTED]"
            begin = stop
            match = search(text, stop - 2, end)
