"""Access control of the server: a web page that the user happens to visit has no access.

Every request is checked in this order: its host, the page it comes from, its size and type, its token. Static files
need no token, because they contain no data; everything else does. Programs send the token as `Authorization: Bearer`,
and so does the page with its own key (`credentials`). There is no cookie: browsers send cookies to every port of a
host, including servers of other users.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import deque
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retinue.core.encode import dump
from retinue.frontends.server.connections import PROVE_EXTENSION
from retinue.frontends.server.credentials import Credentials, OneTimeCodes
from retinue.frontends.server.problem import PROBLEM_MEDIA_TYPE, RequestError, problem_of

MAX_BODY_BYTES = 2**20
BODY_SECONDS = 15.0
MAX_FAILURES = 20
FAILURE_SECONDS = 60.0
_SINGLE_HEADERS = frozenset(
    {b"host", b"origin", b"authorization", b"content-type", b"content-length", b"transfer-encoding"}
)
"""Headers that must not occur twice: proxies might use the other value."""
_FRIENDLY_SITES = frozenset({b"", b"same-origin", b"none"})
SESSION_PATH = "/v1/session"

_NO_CONNECTION = {"prove": lambda: None}

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
RESPONSE_HEADERS = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Access:
    """The credentials that the server accepts, and the names under which it may be called. `redeemed` is called with
    every code that signed a page in."""

    def __init__(
        self, credentials: Credentials, hosts: frozenset[str], redeemed: Callable[[str], None], *, tls: bool = False
    ) -> None:
        self.credentials = credentials
        self._redeemed = redeemed
        self.hosts = hosts
        scheme = "https" if tls else "http"
        self.origins = frozenset(f"{scheme}://{host}" for host in hosts)
        self._page_keys = {host.encode(): credentials.page_key(host).encode() for host in hosts}
        self._codes = OneTimeCodes(credentials)
        self._failures: deque[float] = deque(maxlen=MAX_FAILURES)

    def check(self, headers: dict[bytes, bytes], path: str) -> None:
        """Raise RequestError unless the request has the token, the key of a page of this host, or a one-time code."""
        authorization = headers.get(b"authorization", b"")
        scheme, _, credential = authorization.partition(b" ")
        scheme, credential = scheme.lower(), credential.strip()
        if scheme == b"bearer":
            page_key = self._page_keys[headers[b"host"].lower()]
            is_token = hmac.compare_digest(credential, self.credentials.token.encode())
            if is_token or hmac.compare_digest(credential, page_key):
                return
        code = credential.decode("latin-1")
        if scheme == b"code" and path == SESSION_PATH and self._codes.redeem(code):
            self._redeemed(code)
            return
        if authorization:
            self._count_failure()
        challenge = f'Bearer realm="retinue", start="{self.credentials.start_id}"'
        if scheme == b"code":
            text, remedy = "This link was used already, or has expired.", "Get a new one with: retinue open"
            raise RequestError(401, "CODE", text, remedy, {"www-authenticate": challenge})
        text = "The request has no token of this server, or a wrong one."
        remedy = "Send Authorization: Bearer TOKEN. `retinue open --json` prints the token."
        raise RequestError(401, "TOKEN", text, remedy, {"www-authenticate": challenge})

    def _count_failure(self) -> None:
        now = time.monotonic()
        full = len(self._failures) == MAX_FAILURES and now - self._failures[0] < FAILURE_SECONDS
        self._failures.append(now)
        if full:
            wait = {"retry-after": str(int(FAILURE_SECONDS))}
            raise RequestError(429, "ATTEMPTS", "Too many wrong tokens.", "Wait a minute.", wait)


class Guard:
    """The outermost ASGI layer: refuses requests, and adds the same headers to every response."""

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        public: frozenset[str],
        public_prefix: str,
        takes_body: Callable[[Scope], bool],
    ) -> None:
        """`takes_body` returns whether an address accepts a POST."""
        self._app = app
        self._takes_body = takes_body
        self._access = access
        self._public = public
        self._prefix = public_prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # Web sockets are not supported.
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *RESPONSE_HEADERS]
            await send(message)

        # The parser leaves white space at the end of a value, which is not part of it.
        scope = {**scope, "headers": [(name, value.strip(b" \t")) for name, value in scope["headers"]]}
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
        if headers.get(b"sec-fetch-site", b"") not in _FRIENDLY_SITES and not self._opens_page(path, headers):
            raise RequestError(403, "ORIGIN", "The request comes from another site.")
        if b"token=" in scope["query_string"].lower():
            raise RequestError(
                400, "TOKEN_IN_ADDRESS", "A token in an address ends up in logs.", "Send it as a header."
            )
        if b"transfer-encoding" in headers and b"content-length" in headers:
            raise RequestError(400, "HEADERS", "The request has two lengths.")
        writes = method not in ("GET", "HEAD")
        if not (path in self._public or path.startswith(self._prefix)) or writes:
            access.check(headers, path)
            scope.get("extensions", {}).get(PROVE_EXTENSION, _NO_CONNECTION)["prove"]()
        if writes:
            kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
            if method == "POST" and kind != b"application/json" and self._takes_body(scope):
                raise RequestError(415, "NOT_JSON", "The body must be JSON.", "Send Content-Type: application/json.")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 15:
            raise RequestError(400, "HEADERS", "Content-Length must be a number.")
        if int(length) > MAX_BODY_BYTES:
            raise RequestError(413, "TOO_LARGE", f"The body has more than {MAX_BODY_BYTES} bytes.")

    def _opens_page(self, path: str, headers: dict[bytes, bytes]) -> bool:
        """Return whether a link opens the page in its own tab. The page contains no data without a key."""
        opens_tab = (headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest")) == (b"navigate", b"document")
        return opens_tab and path in self._public and b"origin" not in headers


def _headers(scope: Scope) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in headers and name in _SINGLE_HEADERS:
            raise RequestError(400, "HEADERS", f"The header {name.decode('latin-1')} is there twice.")
        headers[name] = value
    return headers


def _bounded(receive: Receive) -> Receive:
    """Return `receive` with limits on the size and the duration of the body."""
    size = 0
    complete = False
    deadline: float | None = None

    async def receive_bounded() -> Message:
        nonlocal size, complete, deadline
        if complete:
            # The body is complete. The next message is the end of the connection, which may come at any time.
            return await receive()
        loop = asyncio.get_running_loop()
        deadline = deadline or loop.time() + BODY_SECONDS
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise RequestError(408, "TOO_SLOW", f"The body took more than {BODY_SECONDS:g} seconds.") from None
        size += len(message.get("body", b""))
        if size > MAX_BODY_BYTES:
            raise RequestError(413, "TOO_LARGE", f"The body has more than {MAX_BODY_BYTES} bytes.")
        complete = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    return receive_bounded


async def refuse(send: Send, error: RequestError) -> None:
    """Send a problem and close the connection, without reading the remaining request."""
    body = dump(problem_of(error))
    headers = [
        (b"content-type", PROBLEM_MEDIA_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
