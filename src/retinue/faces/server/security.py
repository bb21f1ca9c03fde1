"""Who may ask this server for anything. A web page that the user happens to visit may not.

Every request passes, in this order: the host it is meant for, the page it comes from, its size and type, its token.
Static files need no token, because they hold nothing; everything else does. Programs send the token as
`Authorization: Bearer`. The page exchanges it for a cookie that scripts cannot read and other sites cannot send; with
the cookie, whatever changes something needs a header that no form can set.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections import deque
from http.cookies import CookieError, SimpleCookie

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retinue.faces.server.problem import TYPE, RequestError, problem_of
from retinue.log.encode import dump

MOST_BODY = 2**20
BODY_SECONDS = 15.0
MOST_FAILURES = 20
FAILURE_SECONDS = 60.0
_SINGLE = frozenset({b"host", b"origin", b"authorization", b"content-type", b"content-length", b"transfer-encoding"})
"""Headers of which there must not be two: programs on the way might believe the other one."""
_FRIENDLY_SITES = frozenset({b"", b"same-origin", b"none"})

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
RESPONSE_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Access:
    """What the server accepts: its token, and the names under which it may be called."""

    def __init__(self, token: str, hosts: frozenset[str], port: int, *, tls: bool = False) -> None:
        self.token = token
        self.hosts = hosts
        scheme = "https" if tls else "http"
        self.origins = frozenset(f"{scheme}://{host}" for host in hosts)
        # Cookies do not tell ports apart: two servers on one machine must not overwrite each other's.
        self.cookie_name = f"retinue_{port}"
        self.cookie_value = hmac.new(token.encode(), b"cookie", hashlib.sha256).hexdigest()
        self._secure = "; Secure" if tls else ""
        self._failures: deque[float] = deque(maxlen=MOST_FAILURES)

    @property
    def set_cookie(self) -> str:
        return f"{self.cookie_name}={self.cookie_value}; HttpOnly; SameSite=Strict; Path=/{self._secure}"

    def check(self, headers: dict[bytes, bytes], *, writes: bool) -> None:
        """Raise RequestError unless the request has the token, or the cookie that was given for it."""
        given = headers.get(b"authorization", b"")
        scheme, _, token = given.partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self.token.encode()):
            return
        cookie = self._cookie(headers.get(b"cookie", b""))
        if cookie and hmac.compare_digest(cookie, self.cookie_value.encode()):
            if writes and headers.get(b"x-retinue") != b"1":
                raise RequestError(403, "HEADER", "With a cookie, changes need a header.", "Send X-Retinue: 1.")
            return
        self._refuse(bool(given or cookie))

    def _cookie(self, header: bytes) -> bytes:
        try:
            found = SimpleCookie(header.decode("latin-1")).get(self.cookie_name)
        except CookieError:
            return b""
        return found.value.encode() if found is not None else b""

    def _refuse(self, tried: bool) -> None:
        now = time.monotonic()
        if tried:
            full = len(self._failures) == MOST_FAILURES and now - self._failures[0] < FAILURE_SECONDS
            self._failures.append(now)
            if full:
                raise RequestError(
                    429,
                    "ATTEMPTS",
                    "Too many wrong tokens.",
                    "Wait a minute.",
                    {"retry-after": str(int(FAILURE_SECONDS))},
                )
        raise RequestError(
            401,
            "TOKEN",
            "The request has no token of this server, or a wrong one.",
            "Send Authorization: Bearer TOKEN. The token is in the address that `retinue serve` prints.",
            {"www-authenticate": 'Bearer realm="retinue"'},
        )


class Guard:
    """The outermost ASGI layer: refuses what it must, and puts the same headers on every response."""

    def __init__(self, app: ASGIApp, access: Access, public: frozenset[str], public_prefix: str) -> None:
        self._app = app
        self._access = access
        self._public = public
        self._prefix = public_prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # There are no web sockets here.
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *RESPONSE_HEADERS]
            await send(message)

        try:
            headers = _headers(scope)
            self._check(scope, headers)
            await self._app(scope, _bounded(receive), send_guarded)
        except RequestError as error:
            await refuse(send_guarded, error)

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        access, method, path = self._access, scope["method"], scope["path"]
        if headers.get(b"host", b"").decode("latin-1").lower() not in access.hosts:
            raise RequestError(403, "HOST", "The request is meant for another host.", "Use the address as printed.")
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1") not in access.origins:
            raise RequestError(403, "ORIGIN", "The request comes from another site.")
        if headers.get(b"sec-fetch-site", b"") not in _FRIENDLY_SITES:
            raise RequestError(403, "ORIGIN", "The request comes from another site.")
        if b"token=" in scope["query_string"].lower():
            raise RequestError(
                400, "TOKEN_IN_ADDRESS", "A token in an address ends up in logs.", "Send it as a header."
            )
        if b"transfer-encoding" in headers and b"content-length" in headers:
            raise RequestError(400, "HEADERS", "The request has two lengths.")
        writes = method not in ("GET", "HEAD")
        if not (path in self._public or path.startswith(self._prefix)) or writes:
            access.check(headers, writes=writes)
        if writes:
            kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
            if method == "POST" and kind != b"application/json":
                raise RequestError(415, "NOT_JSON", "The body must be JSON.", "Send Content-Type: application/json.")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 15:
            raise RequestError(400, "HEADERS", "Content-Length is no number.")
        if int(length) > MOST_BODY:
            raise RequestError(413, "TOO_LARGE", f"The body has more than {MOST_BODY} bytes.")


def _headers(scope: Scope) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in found and name in _SINGLE:
            raise RequestError(400, "HEADERS", f"The header {name.decode('latin-1')} is there twice.")
        found[name] = value
    return found


def _bounded(receive: Receive) -> Receive:
    """Return `receive` with a limit to the size of the body and to the time that it may take."""
    size = 0
    complete = False
    deadline: float | None = None

    async def receive_bounded() -> Message:
        nonlocal size, complete, deadline
        if complete:
            # The body is here: what comes is the end of the connection, and that may take as long as it likes.
            return await receive()
        loop = asyncio.get_running_loop()
        deadline = deadline or loop.time() + BODY_SECONDS
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise RequestError(408, "TOO_SLOW", f"The body took more than {BODY_SECONDS:g} seconds.") from None
        size += len(message.get("body", b""))
        if size > MOST_BODY:
            raise RequestError(413, "TOO_LARGE", f"The body has more than {MOST_BODY} bytes.")
        complete = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    return receive_bounded


async def refuse(send: Send, error: RequestError) -> None:
    """Send a problem and close the connection: what is left of the request is not read."""
    body = dump(problem_of(error))
    headers = [(b"content-type", TYPE.encode()), (b"content-length", str(len(body)).encode())]
    if error.status in (400, 408, 413, 415):
        headers.append((b"connection", b"close"))
    headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
