"""Keys that are recognised by how they begin, wherever they stand: one table of formats.

Nearly all are one word of at least twenty characters. Long words are found by two byte searches
in a mask of the text, a few hundred megabytes per second, and only they are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

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
    rb"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])",  # Telegram
)
_BEFORE_DOT = 28
"""How far a token can begin before its long part."""
_BEGINNINGS = tuple(
    b"ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ gl sk- sk_ rk_ pk_ AIza xox hf_ npm_ pypi- gsk_ xai- AKIA ASIA"
    b" whsec_ GOCSPX- pplx- dckr_".split()
)
_WORDS = bytes(120 if chr(code).isascii() and (chr(code).isalnum() or chr(code) in "_-") else 32 for code in range(256))
_LONG = b"x" * SHORTEST_TOKEN
_BACKSLASH = 0x5C


@cache
def _formats() -> re.Pattern[bytes]:
    """With what is before a token: not a letter or digit, unless that is the end of `\\n` in JSON."""
    return re.compile(rb"[^A-Za-z0-9](?:(?<=\\)[nrt])??(?P<token>%b)" % b"|".join(_FORMATS))


def tokens(text: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield where tokens stand, in order, each with what is shown instead."""
    mask = text.translate(_WORDS)
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
                for found, shown in matches:
                    done = found[1]
                    yield *found, shown
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
    """The word with the parts that dots join to it."""
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
