"""Opening a connection: happy eyeballs, TLS with verification, tunnels through a proxy.

Server-sent events from bytes, without decoding a line.

Only the data matters: every wire format repeats the event's name inside its JSON. Whatever way
the network cuts the bytes, the payloads are the same.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
from functools import cache

from retinue.http.address import Address, display_url, parse_url
from retinue.http.connection import Connection
from retinue.http.transport import TransportError, TransportProblem


@cache
def default_tls() -> ssl.SSLContext:
    """The system's certificates (SSL_CERT_FILE and SSL_CERT_DIR move them); certifi's, if it is
    installed, on a Python that was built without any."""
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if paths.cafile is None and paths.capath is None and not context.cert_store_stats()["x509_ca"]:
        try:
            import certifi
        except ImportError:
            return context
        context.load_verify_locations(certifi.where())
    return context


async def open_connection(address: Address, seconds: float | None, tls: ssl.SSLContext | None = None) -> Connection:
    """A connection ready for an exchange. Raises TransportError, never anything of OSError."""
    goal = address.origin if address.proxy is None else f"the proxy {display_url(address.proxy)}"
    try:
        async with asyncio.timeout(seconds):
            if address.proxy is None:
                return await _dial(address, address, tls)
            return await _through_proxy(address, address.proxy, tls)
    except TransportError:
        raise
    except TimeoutError:
        raise TransportError("connect_timeout", f"{goal} did not accept a connection in {seconds:g} seconds.") from None
    except ssl.SSLCertVerificationError as error:
        reason = error.verify_message or "verification failed"
        raise TransportError("certificate", f"The certificate of {address.origin} is not trusted: {reason}.") from None
    except ssl.SSLError as error:
        reason = (error.reason or "handshake failed").replace("_", " ").lower()
        raise TransportError("unreachable", f"No TLS with {goal}: {reason}.") from None
    except socket.gaierror:
        problem: TransportProblem = "unreachable" if address.proxy is None else "proxy"
        raise TransportError(problem, f"The host name of {goal} cannot be resolved.") from None
    except OSError as error:
        refused = error.errno == errno.ECONNREFUSED or f"[Errno {errno.ECONNREFUSED}]" in str(error)
        if address.proxy is not None:
            said = "connection refused" if refused else error.strerror or "no connection"
            raise TransportError("proxy", f"{goal[0].upper()}{goal[1:]} does not answer: {said}.") from None
        if refused:
            raise TransportError("refused", f"Nothing answers at {goal}: connection refused.") from None
        raise TransportError("unreachable", f"{goal} cannot be reached: {error.strerror or 'no connection'}.") from None


async def _dial(place: Address, address: Address, tls: ssl.SSLContext | None) -> Connection:
    """Connects to `place` for exchanges with `address` (the same, unless `place` is a proxy)."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        lambda: Connection(address),
        place.host,
        place.port,
        ssl=(tls or default_tls()) if place.secure else None,
        server_hostname=place.host if place.secure else None,
        happy_eyeballs_delay=None if _is_number(place.host) else 0.25,
    )
    connection.keep_alive()
    return connection


def _is_number(host: str) -> bool:
    """Whether it is an address already: then there is nothing to choose among."""
    return ":" in host or host.replace(".", "").isdigit()


async def _through_proxy(address: Address, proxy: str, tls: ssl.SSLContext | None) -> Connection:
    scheme = proxy.partition("://")[0].lower()
    if scheme not in ("http", "https"):
        said = f"The proxy {display_url(proxy)} speaks {scheme}; only http and https proxies can be used."
        raise TransportError("proxy", said, passing=False)
    try:
        place, _, authorization = parse_url(proxy)
    except ValueError:
        raise TransportError("proxy", f"The proxy {display_url(proxy)} is not a URL.", passing=False) from None
    connection = await _dial(place, address, tls)
    if not address.secure:
        return connection
    host = f"[{address.host}]" if ":" in address.host else address.host
    head = f"CONNECT {host}:{address.port} HTTP/1.1\r\nhost: {host}:{address.port}\r\n"
    if authorization:
        head += f"proxy-authorization: {authorization}\r\n"
    try:
        answered = await connection.exchange(f"{head}\r\n".encode("ascii"), b"", None)
        if not answered or connection.status != 200:
            said = f"answered {connection.status}" if answered else "hung up"
            if connection.status == 407:
                said += " (it wants a user and a password in its URL)"
            message = f"The proxy {display_url(proxy)} {said} when asked for {address.origin}."
            raise TransportError("proxy", message, passing=connection.status not in (401, 403, 407))
        return await connection.upgraded(tls or default_tls())
    except BaseException:
        connection.abort()
        raise


_PLAIN = re.compile(rb"(?:event: [^\n]*+\n)?data: ([^\n]*+)\n\n")
"""An event as nearly all are: perhaps its name, one line of data, and nothing else."""


_FIELDS = (b"data", b"event", b"id", b"retry")


def _is_field(line: bytes) -> bool:
    """Whether a line, perhaps cut off, is a comment or a field of the format."""
    name = line.partition(b":")[0]
    return not name or any(field.startswith(name) for field in _FIELDS)


class Events:
    """Feed bytes, get the payloads of the events they complete."""

    __slots__ = ("_after_return", "_data", "_first", "_rest", "foreign")

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # the unfinished last line, in pieces: a long one is joined once
        self._data: list[bytes] = []
        self._after_return = False
        self._first = True
        self.foreign = False
        """Whether there was a line that is none of this format."""

    def feed(self, data: bytes) -> list[bytes]:
        if self._after_return and data.startswith(b"\n"):
            data = data[1:]  # the second half of a CRLF that was cut in two
        self._after_return = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in data:
            self._rest.append(data)
            return []
        if self._rest:
            data = b"".join((*self._rest, data))
        if self._first:
            self._first = False
            data = data.removeprefix(b"\xef\xbb\xbf")
        payloads: list[bytes] = []
        start = 0
        if not self._data:
            while (plain := _PLAIN.match(data, start)) is not None:
                payloads.append(plain[1])
                start = plain.end()
        lines = (data[start:] if start else data).split(b"\n")
        last = lines.pop()
        self._rest = [last] if last else []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif not line and self._data:
                payloads.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data = []
            elif line and not _is_field(line):
                self.foreign = True
        return payloads

    def finish(self) -> list[bytes]:
        """An event that the end of the stream completed instead of an empty line."""
        return self.feed(b"\n\n")
