"""Opening a connection: happy eyeballs, TLS with verification, tunnels through a proxy."""

from __future__ import annotations

import asyncio
import errno
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
    """A connection ready for an exchange. Raise TransportError, never anything of OSError."""
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
    """Connect to `place` for exchanges with `address` (the same, unless `place` is a proxy)."""
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
    """Whether the host is a numeric address already: then there is nothing to look up."""
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
