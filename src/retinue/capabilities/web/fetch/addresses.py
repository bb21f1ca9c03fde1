"""Which addresses the web tools may talk to: the public internet, and nothing else.

An address is judged in the form in which the connection is made. IPv6 forms that carry an IPv4
address are judged by it, or refused where a router of unknown rights would unwrap them.
"""

from __future__ import annotations

from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address

_REFUSED_V4 = {
    "0.0.0.0/8": "this host",
    "10.0.0.0/8": "a private network",
    "100.64.0.0/10": "the network of a provider",
    "127.0.0.0/8": "this machine",
    "168.63.129.16/32": "a cloud's metadata service",
    "169.254.0.0/16": "a link-local or metadata address",
    "172.16.0.0/12": "a private network",
    "192.0.0.0/24": "a special-purpose address",
    "192.0.2.0/24": "a documentation address",
    "192.88.99.0/24": "a relay of IPv6",
    "192.168.0.0/16": "a private network",
    "198.18.0.0/15": "a test network",
    "198.51.100.0/24": "a documentation address",
    "203.0.113.0/24": "a documentation address",
    "224.0.0.0/4": "a multicast address",
    "240.0.0.0/4": "a reserved or broadcast address",
}
_REFUSED_V6 = {
    "2001::/23": "a special-purpose or Teredo address",
    "2001:db8::/32": "a documentation address",
    "2002::/16": "a 6to4 address",
    "3fff::/20": "a documentation address",
}
_PUBLIC_V6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_KINDS_V6 = {
    "::/128": "this host",
    "::1/128": "this machine",
    "fe80::/10": "a link-local address",
    "fc00::/7": "a private network",
    "ff00::/8": "a multicast address",
}
_NAMES = ("localhost", "local", "internal", "localdomain", "home.arpa", "lan", "intranet", "corp", "private")
"""Names of networks that are nobody's on the internet, alone or as the end of a name."""

_ODD_PORTS = frozenset(
    {1719, 1720, 1723, 2049, 3306, 3659, 4045, 4190, 5060, 5061, 5432, 6000, 6379, 6566}
    | {*range(6665, 6670), 6679, 6697, 9100, 10080, 11211, 27017}
)
"""Above 1023, where something else than a web server is likely to listen."""


def refused_address(ip: Address, *, literal: bool = False) -> str | None:
    """What `ip` is that it may not be talked to; None if it may. `literal`: it stood in a URL,
    where nobody has a reason to write the address of a translator."""
    if isinstance(ip, IPv4Address):
        return next((kind for network, kind in _v4() if ip in network), None)
    if ip.ipv4_mapped is not None:
        return refused_address(ip.ipv4_mapped)
    if ip in _NAT64:
        return "an address behind a translator" if literal else refused_address(IPv4Address(int(ip) & 0xFFFFFFFF))
    if ip not in _PUBLIC_V6:
        return next((kind for network, kind in _v6_kinds() if ip in network), "no address of the public internet")
    return next((kind for network, kind in _v6() if ip in network), None)


def refused_name(host: str) -> str | None:
    """What a host is by its name alone that it may not be talked to."""
    for name in _NAMES:
        if host == name or host.endswith(f".{name}"):
            return "this machine" if name == "localhost" else f"a name of a private network (.{name})"
    return None


def refused_port(port: int) -> str | None:
    if port in (80, 443) or (port >= 1024 and port not in _ODD_PORTS):
        return None
    return f"port {port} is not one that web servers use"


def connectable(text: str) -> Address | None:
    """An address as a resolver gives it, in the form that is connected to: mapped ones as IPv4."""
    try:
        ip = ip_address(text)
    except ValueError:
        return None
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    return ip


@cache
def _v4() -> tuple[tuple[IPv4Network, str], ...]:
    return tuple((IPv4Network(text), kind) for text, kind in _REFUSED_V4.items())


@cache
def _v6() -> tuple[tuple[IPv6Network, str], ...]:
    return tuple((IPv6Network(text), kind) for text, kind in _REFUSED_V6.items())


@cache
def _v6_kinds() -> tuple[tuple[IPv6Network, str], ...]:
    return tuple((IPv6Network(text), kind) for text, kind in _KINDS_V6.items())
