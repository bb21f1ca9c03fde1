"""From a checked name to checked addresses: the only place where names are looked up.

What comes out is what is connected to; nothing is looked up again, so an answer that changes
between the check and the connection changes nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from retinue.capabilities.web.errors import FetchError
from retinue.capabilities.web.fetch.addresses import Address, connectable, refused_address, refused_name, refused_port
from retinue.capabilities.web.fetch.allowed import AllowedHosts
from retinue.capabilities.web.fetch.url import Target
from retinue.core.lean import dataclass

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host, as texts. Raises OSError when there are none."""

DNS_SECONDS = 5.0
_REMEDY = "A user can allow a host of their own with the setting web.allowHosts."


@dataclass(frozen=True, slots=True)
class Pin:
    """A target together with the addresses that were checked for it, in the order to try."""

    target: Target
    addresses: tuple[Address, ...]
    allowed: bool = False
    """A user has exempted the host."""


async def system_resolver(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def check_target(target: Target, allowed: AllowedHosts) -> bool:
    """Whether the user has exempted the host. Raises FetchError for what is refused without
    looking anything up."""
    if target in allowed:
        return True
    reason = refused_name(target.host) if target.ip is None else refused_address(target.ip, literal=True)
    if reason is not None:
        raise blocked(f"{target.host} is {reason}")
    port = refused_port(target.port)
    if port is not None:
        raise blocked(f"{target.authority} cannot be fetched: {port}")
    return False


async def pin(target: Target, allowed: AllowedHosts, resolve: Resolver = system_resolver) -> Pin:
    """Looks the host up, once. One refused address among several refuses them all. Raises
    FetchError: PRIVATE_NETWORK_BLOCKED, DNS_RESOLUTION_FAILED, NETWORK_ERROR."""
    exempt = check_target(target, allowed)
    if target.ip is not None:
        found = [str(target.ip)]
    else:
        if not exempt and resolve is system_resolver and not has_network():
            raise FetchError("NETWORK_ERROR", "There is no network: this machine has no route to the internet.")
        found = await _looked_up(target, resolve)
    addresses = [ip for text in found if (ip := connectable(text)) is not None]
    if not addresses or len(addresses) != len(found):
        raise FetchError("DNS_RESOLUTION_FAILED", f"The name {target.host} leads to no usable address.")
    if not exempt:
        for ip in addresses:
            reason = refused_address(ip)
            if reason is not None:
                raise blocked(f"{target.host} leads to {ip}, which is {reason}")
    return Pin(target, tuple(dict.fromkeys(addresses)), exempt)


def blocked(why: str) -> FetchError:
    return FetchError("PRIVATE_NETWORK_BLOCKED", f"{why}. Only public web servers can be fetched. {_REMEDY}")


def has_network() -> bool:
    """Whether any route leads out of this machine. Nothing is sent: connecting a datagram socket
    only asks the kernel for a route."""
    for family, anywhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((anywhere, 9))
            return True
    return False


async def _looked_up(target: Target, resolve: Resolver) -> list[str]:
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
