"""Connections to checked addresses. Only this module resolves names.

The address that was checked is the one that is connected to. The name is not resolved again, so a later change of its
DNS records has no effect. The name is used for the Host header and TLS.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress

from msgspec import Struct

from retinue.capabilities.web.addresses import (
    AllowedHosts,
    IpAddress,
    Target,
    connectable,
    refused_address,
    refused_name,
    refused_port,
)
from retinue.http.address import Address, FetchError, display_url, parse_url, proxy_for
from retinue.http.connection import Connection, default_tls

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""Returns the addresses of a host, as texts. Raises OSError when there are none."""

DNS_SECONDS = 5.0
_ALLOW_HOSTS_REMEDY = "A user can allow their own hosts with the setting web.allowHosts."


class Pin(Struct, frozen=True):
    """A target with its checked addresses, in the order to try."""

    target: Target
    addresses: tuple[IpAddress, ...]
    allowed: bool = False
    """A user has exempted the host."""


async def system_resolver(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(entry[4][0]) for entry in addresses))


def check_target(target: Target, allowed: AllowedHosts) -> bool:
    """Return whether the user has exempted the host. Raise FetchError for a host that is refused before its name is
    resolved."""
    if target in allowed:
        return True
    if target.ip is None:
        reason = refused_name(target.host)
    else:
        reason = refused_address(target.ip, literal=True)
    if reason is not None:
        raise block_error(f"{target.host} is {reason}")
    port = refused_port(target.port)
    if port is not None:
        raise block_error(f"{target.authority} cannot be fetched: {port}")
    return False


async def pin(target: Target, allowed: AllowedHosts, resolve: Resolver = system_resolver) -> Pin:
    """Resolve the host, once. If one of its addresses is refused, the host is refused. Raise FetchError:
    PRIVATE_NETWORK_BLOCKED, DNS_RESOLUTION_FAILED, NETWORK_ERROR."""
    exempt = check_target(target, allowed)
    if target.ip is not None:
        resolved = [str(target.ip)]
    else:
        # Without a route the resolver would only time out. An exempted host may still be reachable.
        if not exempt and resolve is system_resolver and not has_network():
            raise FetchError("NETWORK_ERROR", "There is no network: this machine has no route to the internet.")
        resolved = await _look_up(target, resolve)
    addresses: list[IpAddress] = list(filter(None, map(connectable, resolved)))
    if not addresses or len(addresses) != len(resolved):
        raise FetchError("DNS_RESOLUTION_FAILED", f"The name {target.host} leads to no usable address.")
    if not exempt:
        for ip in addresses:
            reason = refused_address(ip)
            if reason is not None:
                raise block_error(f"{target.host} leads to {ip}, which is {reason}")
    return Pin(target, tuple(dict.fromkeys(addresses)), exempt)


def block_error(why: str) -> FetchError:
    return FetchError(
        "PRIVATE_NETWORK_BLOCKED", f"{why}. Only public web servers can be fetched. {_ALLOW_HOSTS_REMEDY}"
    )


def has_network() -> bool:
    """Return whether any route leads out of this machine. Nothing is sent: connecting a datagram socket only asks the
    kernel for a route."""
    for family, anywhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((anywhere, 9))
            return True
    return False


async def _look_up(target: Target, resolve: Resolver) -> list[str]:
    try:
        async with asyncio.timeout(DNS_SECONDS):
            return await resolve(target.host, target.port)
    except TimeoutError:
        raise FetchError(
            "DNS_RESOLUTION_FAILED", f"The name {target.host} could not be looked up in {DNS_SECONDS:g} seconds."
        ) from None
    except (OSError, UnicodeError):
        raise FetchError(
            "DNS_RESOLUTION_FAILED", f"The name {target.host} cannot be resolved. Check it, and the network."
        ) from None


_MAX_HEAD_BYTES = 256 * 1024
_ADDRESS_SECONDS = 2.0
"""The time for one address while there are others, because some routes drop all packets."""


class PageConnection(Connection):
    """An exchange with an untrusted server. Its headers are bounded. Its body is not decompressed, because only the
    caller knows the limit for that."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._head = 0

    def data_received(self, data: bytes) -> None:
        if not self.status:
            self._head += len(data)
            if self._head > _MAX_HEAD_BYTES:
                self._fail("garbage", f"{self.address.origin} sent headers without an end.")
                self.abort()
                self._wake()
                return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        status = self._status_code()
        # 1xx answers precede the final one, which has its own headers.
        if status < 200:
            self.headers = {}
            return
        self.status = status


Connect = Callable[[Pin, ssl.SSLContext | None], Awaitable[PageConnection]]


async def connect(pin: Pin, tls: ssl.SSLContext | None = None) -> PageConnection:
    """Connect to the first of the pinned addresses that answers. Raise OSError or FetchError."""
    address = pin.target.address
    proxy = None if pin.allowed else proxy_for(address)
    problem: OSError | None = None
    for ip in pin.addresses:
        # The last address gets all the remaining time.
        seconds = None if ip == pin.addresses[-1] else _ADDRESS_SECONDS
        try:
            async with asyncio.timeout(seconds):
                if proxy is not None:
                    return await _connect_through_proxy(proxy, address, ip, tls)
                return await _connect_directly(address, ip, tls)
        except ssl.SSLError:
            raise
        except OSError as error:
            problem = error
    raise problem or OSError("there is no address to connect to")


def _tls_for(address: Address, tls: ssl.SSLContext | None) -> tuple[ssl.SSLContext | None, str | None]:
    """Return the TLS context and the host name to verify; None for both without TLS, as asyncio demands."""
    if not address.secure:
        return None, None
    return tls or default_tls(), address.host


async def _connect_directly(address: Address, ip: IpAddress, tls: ssl.SSLContext | None) -> PageConnection:
    loop = asyncio.get_running_loop()
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    context, verified = _tls_for(address, tls)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await loop.sock_connect(sock, (str(ip), address.port))
        if connectable(sock.getpeername()[0]) != ip:
            raise FetchError("PRIVATE_NETWORK_BLOCKED", f"{address.host} was not reached at the checked address.")
        _, connection = await loop.create_connection(
            lambda: PageConnection(address), sock=sock, ssl=context, server_hostname=verified
        )
    except BaseException:
        sock.close()
        raise
    return connection


async def _connect_through_proxy(
    proxy: str, address: Address, ip: IpAddress, tls: ssl.SSLContext | None
) -> PageConnection:
    """Connect through a proxy. It gets the checked IP address, so that it does not resolve the name itself."""
    try:
        relay, _, authorization = parse_url(proxy)
    except ValueError:
        raise FetchError("NETWORK_ERROR", f"The proxy {display_url(proxy)} is not an http or https URL.") from None
    loop = asyncio.get_running_loop()
    context, verified = _tls_for(relay, None)
    _, connection = await loop.create_connection(
        lambda: PageConnection(address), relay.host, relay.port, ssl=context, server_hostname=verified
    )
    host = f"[{ip}]" if ip.version == 6 else str(ip)
    try:
        refusal = await connection.ask_for_tunnel(host, authorization)
        if refusal:
            raise FetchError(
                "NETWORK_ERROR", f"The proxy {display_url(proxy)} {refusal} when asked for {address.origin}."
            )
        return await connection.enter_tunnel(_tls_for(address, tls)[0])
    except BaseException:
        connection.abort()
        raise
