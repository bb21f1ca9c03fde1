"""URLs: host, port, credentials and proxy, addresses of model servers as people write them, and the answer to a fetched
URL, unpacked within bounds.
"""

from __future__ import annotations

import os
import re
import zlib
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct

DEFAULT_PORTS = {"http": 80, "https": 443}


class Address(Struct, frozen=True):
    """The target of a connection. Connections are shared by equal addresses."""

    scheme: str
    host: str
    port: int
    proxy: str | None = None

    @property
    def secure(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == DEFAULT_PORTS[self.scheme] else f"{name}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"


@lru_cache(maxsize=256)
def parse_url(url: str) -> tuple[Address, str, str | None]:
    """Return the address without proxy, the request target, and the `authorization` that user:password in the URL
    means. Raise ValueError with a text that is safe to show."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
        host = _ascii(parts.hostname or "")
    except (ValueError, UnicodeError):
        raise ValueError(f"'{display_url(url)}' is not a URL.") from None
    if port is None or not host:
        raise ValueError(f"'{display_url(url)}' is not an http or https URL with a host name.")
    target = parts.path or "/"
    if parts.query:
        target += "?" + parts.query
    return Address(parts.scheme, host, port), target, _basic(parts)


def _ascii(host: str) -> str:
    """Return `host` as it is looked up."""
    # Most names need no codec, and loading that one takes a millisecond.
    if host.isascii() and all(0 < len(label) < 64 for label in host.split(".")):
        return host
    return host.encode("idna").decode("ascii")


def display_url(url: str) -> str:
    """Return the URL without user, password and query, fit for messages."""
    text = url.strip().partition("?")[0]
    scheme, mark, target = text.rpartition("://")
    before, slash, path = target.partition("/")
    return scheme + mark + before.rpartition("@")[2] + slash + path


def proxy_for(address: Address) -> str | None:
    """Return the proxy of HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, unless NO_PROXY exempts the host."""
    # No proxy could reach the loopback interface of this machine.
    if _loopback(address.host):
        return None
    env = os.environ
    proxy = env.get(f"{address.scheme}_proxy") or env.get("all_proxy") or env.get("ALL_PROXY")
    if not env.get(f"{address.scheme}_proxy"):
        # A web server hands the client's "Proxy:" header to scripts as HTTP_PROXY: not ours then.
        upper = f"{address.scheme.upper()}_PROXY"
        if upper != "HTTP_PROXY" or "REQUEST_METHOD" not in env:
            proxy = env.get(upper) or proxy
    if not proxy:
        return None
    # Loaded only here: it takes milliseconds, and most users have no proxy.
    from urllib.request import proxy_bypass

    if proxy_bypass(f"{address.host}:{address.port}") or _in_a_network(address.host):
        return None
    return proxy if "://" in proxy else "http://" + proxy


def _in_a_network(host: str) -> bool:
    """Return whether NO_PROXY exempts a numeric address by a network such as 10.0.0.0/8, which the standard library
    does not read."""
    exempt = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if "/" not in exempt or not (":" in host or host[-1:].isdigit()):
        return False
    from ipaddress import ip_address, ip_network

    try:
        number = ip_address(host)
    except ValueError:
        return False
    for entry in exempt.split(","):
        try:
            if "/" in entry and number in ip_network(entry.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False


def _loopback(host: str) -> bool:
    numeric = host.startswith("127.") and host.replace(".", "").isdigit()
    return numeric or host in ("localhost", "::1") or host.endswith(".localhost")


def _basic(parts: SplitResult) -> str | None:
    if parts.username is None:
        return None
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return "Basic " + b64encode(pair.encode()).decode("ascii")


_ENDPOINT_PATHS = ("/chat/completions", "/responses", "/messages", "/models")


def normal_url(api: str, url: str) -> str:
    """Return the base to which the wire format appends its path: without a trailing slash, with or without `/v1` as
    the format wants it. An address without a scheme gets one."""
    url = url.strip()
    if not url:
        return ""
    if "://" not in url:
        url = ("http://" if is_loopback(f"http://{url}") else "https://") + url
    if host_of(url) is None:
        return url
    url = url.rstrip("/")
    for tail in _ENDPOINT_PATHS:
        url = url.removesuffix(tail)
    url = url.rstrip("/")
    if api == "anthropic":
        return url.removesuffix("/v1")
    if api == "gemini":
        return url.removesuffix("/v1beta").removesuffix("/v1")
    return url if urlsplit(url).path.strip("/") else url + "/v1"


def ollama_url(host: str) -> str:
    """Return OLLAMA_HOST as Ollama reads it: the port may be missing, and the host may be one to listen on."""
    url = host.strip().rstrip("/")
    url = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(url)
        port = parts.port
        name = parts.hostname or "localhost"
    except ValueError:
        return url
    if not port:
        # Ollama's own port counts only where no scheme says another.
        port = 11434
        if "://" in host:
            port = 443 if parts.scheme == "https" else 80
    if name == "0.0.0.0":  # noqa: S104 - an address to listen on cannot be called
        name = "127.0.0.1"
    elif ":" in name:
        name = f"[{name}]"
    return f"{parts.scheme}://{name}:{port}{parts.path}"


def host_of(url: str) -> str | None:
    """Return host and port in lower case; None for anything but an http or https URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    return f"{parts.hostname}:{port}" if port else parts.hostname


def origin_of(url: str) -> tuple[str, str] | None:
    """Return scheme and host: both must be the same for a secret to go to the same server."""
    host = host_of(url)
    return None if host is None else (urlsplit(url).scheme, host)


def is_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return host == "0.0.0.0" or _loopback(host)  # noqa: S104 - compared, not bound


Problem = Literal[
    "INVALID_URL",
    "UNSUPPORTED_PROTOCOL",
    "PRIVATE_NETWORK_BLOCKED",
    "DNS_RESOLUTION_FAILED",
    "NOT_PERMITTED",
    "TOO_MANY_REDIRECTS",
    "TIMEOUT",
    "RATE_LIMITED",
    "HTTP_STATUS",
    "ENCODING",
    "EXTRA_MISSING",
    "NETWORK_ERROR",
]
"""Why a URL could not be fetched, finer than the codes that models see."""


class FetchError(Exception):
    """A URL that could not be fetched. `hosts` are those that were contacted on the way."""

    def __init__(self, problem: Problem, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.problem: Problem = problem
        self.message = message
        self.status = status
        self.hosts: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """The code that models see."""
        match self.problem:
            case "INVALID_URL" | "UNSUPPORTED_PROTOCOL":
                return "CONTENT_FETCH_INVALID_URL"
            case "TIMEOUT":
                return "CONTENT_FETCH_TIMEOUT"
            case _:
                return "CONTENT_FETCH_FAILED"


class Fetched(Struct, frozen=True):
    """An answer with a status of success. `url` is where it came from after all redirects; `hosts` are all that were
    contacted for it."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    truncated: bool
    hosts: tuple[str, ...] = ()

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")


ACCEPTED = "gzip, deflate"
_MAX_ENCODINGS = 2
_UNPACKED_STEP_BYTES = 64 * 1024


class Unpacker:
    """Unpacks a body piece by piece. `data` never grows beyond `most` bytes, however tightly it was packed; `full`
    says that there was more."""

    def __init__(self, encodings: str, most: int) -> None:
        names = [name.strip().lower() for name in encodings.split(",")]
        names = [name for name in names if name not in ("", "identity")]
        wrong = next((name for name in names if name not in ("gzip", "x-gzip", "deflate")), None)
        if wrong is not None or len(names) > _MAX_ENCODINGS:
            how = ""
            # The name comes from the server, so it is repeated only if it looks like one.
            if wrong is not None and re.fullmatch(r"[a-z0-9-]{1,20}", wrong):
                how = f" as {wrong}"
            raise FetchError("ENCODING", f"The server packed its answer{how}, in a way that was not asked for.")
        self.data = bytearray()
        self.full = False
        self._most = most
        # The header lists encodings in the order in which they were applied.
        self._layers = list(map(_Layer, reversed(names)))

    def feed(self, piece: bytes) -> bool:
        """Unpack a piece. Return False when nothing more is wanted."""
        self._push(piece, 0)
        return not self.full

    def _push(self, piece: bytes, depth: int) -> None:
        if depth == len(self._layers):
            room = self._most - len(self.data)
            self.data += piece[:room]
            self.full = self.full or len(piece) > room
            return
        layer = self._layers[depth]
        while piece and not self.full:
            out, piece = layer.unpack(piece)
            self._push(out, depth + 1)


class _Layer:
    def __init__(self, name: str) -> None:
        self._deflate = name == "deflate"
        self._engine = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._fresh = True

    def unpack(self, piece: bytes) -> tuple[bytes, bytes]:
        """Return at most two steps of unpacked bytes, and the unused rest of the piece."""
        if self._engine.eof:
            return b"", b""
        try:
            out = self._engine.decompress(piece, _UNPACKED_STEP_BYTES)
        except zlib.error:
            if not (self._deflate and self._fresh):
                raise FetchError("ENCODING", "The server sent a packed answer that cannot be unpacked.") from None
            # Some servers send bare deflate data, without the zlib header that "deflate" demands.
            self._engine = zlib.decompressobj(-zlib.MAX_WBITS)
            self._fresh = False
            return self.unpack(piece)
        self._fresh = False
        if self._engine.eof:
            return out, self._next_member()
        unread = self._engine.unconsumed_tail
        if not unread and len(out) == _UNPACKED_STEP_BYTES:
            # All input is taken, but more may wait inside: ask for it with nothing new.
            return out + self._engine.decompress(b"", _UNPACKED_STEP_BYTES), b""
        return out, unread

    def _next_member(self) -> bytes:
        """Prepare for a further gzip member and return its bytes. Anything else after the end is ignored."""
        member = self._engine.unused_data
        if not member.startswith(b"\x1f\x8b"):
            return b""
        self._engine = zlib.decompressobj(zlib.MAX_WBITS | 32)
        return member
