"""The secrets of one server, each derived from its token.

    token           sent by programs; lives as long as the server, and survives a crash
    one-time code   part of an address; signs one page in, once, within minutes
    page key        stored and sent by a page; valid for one host and port, until the server starts again
    renewal secret  in the memory of an open page; derives its key for a server that was restarted after a crash

Browsers store data by host and port, and after a crash another user may listen on that port. So a page stores only its
key, which the next start of the server does not accept.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time

from msgspec import Struct

LINK_SECONDS = 600
"""How long a printed address is valid."""


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def _sign(key: str, *parts: str) -> str:
    return hmac.new(key.encode(), "\n".join(parts).encode(), hashlib.sha256).hexdigest()


class Credentials(Struct, frozen=True):
    """`start_id` is random and not secret; it differs for every start of a server."""

    token: str
    start_id: str

    @property
    def renewal_secret(self) -> str:
        return _sign(self.token, "renewal")

    def page_key(self, host: str) -> str:
        """Return the key of pages of the server `host`, a name with its port. `app/api.js` derives it as well."""
        return _sign(self.renewal_secret, "page", host, self.start_id)

    def new_code(self, seconds: float) -> str:
        """Return a one-time code. Any process that knows the token can create a valid one."""
        nonce, expiry = secrets.token_hex(8), f"{int(time.time() + seconds):x}"
        return f"{nonce}.{expiry}.{self._code_signature(nonce, expiry)}"

    def _code_signature(self, nonce: str, expiry: str) -> str:
        return _sign(self.token, "code", self.start_id, nonce, expiry)[:32]


class OneTimeCodes:
    """Accepts the codes of one server, each of them once."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._used: dict[str, int] = {}

    def redeem(self, code: str) -> bool:
        """Return whether the code is genuine, current and unused, and mark it as used."""
        nonce, _, remainder = code.partition(".")
        expiry, _, signature = remainder.partition(".")
        expected = self._credentials._code_signature(nonce, expiry)
        if not hmac.compare_digest(signature.encode(), expected.encode()):
            return False
        now = time.time()
        self._used = {used: until for used, until in self._used.items() if until >= now}
        if int(expiry, 16) < now or nonce in self._used:
            return False
        self._used[nonce] = int(expiry, 16)
        return True
