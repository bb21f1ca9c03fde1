"""Which URLs and addresses the web tools may contact: the public internet, and hosts that a user exempts.

URLs are parsed strictly. A URL that two programs could parse differently (backslashes, user names, percent signs in
host names, numeric forms of addresses, control characters) is refused, so that rules, people and the connection all
have the same host. An address is checked in the form in which the connection is made. An IPv6 address that contains an
IPv4 address is checked by that one, or refused if an unknown router would translate it. `web.allowHosts` exempts hosts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import quote, urljoin, urlsplit

from msgspec import Struct

from retinue.http.address import DEFAULT_PORTS, Address, FetchError

IpAddress = IPv4Address | IPv6Address

MAX_URL_LENGTH = 8_192
_HOST_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_NUMERIC_LABEL = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)")
_UNESCAPED_CHARACTERS = "/?:@!$&'()*+,;=~-._%[]"


class Target(Struct, frozen=True):
    """The destination of one request. `host` is a lower-case ASCII name without a final dot, or an address; then `ip`
    is set. `path` is the path and query of the request line."""

    scheme: str
    host: str
    port: int
    path: str
    fragment: str = ""
    ip: IpAddress | None = None

    @property
    def address(self) -> Address:
        return Address(self.scheme, self.host, self.port)

    @property
    def authority(self) -> str:
        return self.address.authority

    @property
    def url(self) -> str:
        """The URL without the fragment."""
        return self.address.origin + self.path

    @property
    def full_url(self) -> str:
        if not self.fragment:
            return self.url
        return f"{self.url}#{self.fragment}"


def parse_target(url: str) -> Target:
    """Parse a URL. Raise FetchError: INVALID_URL, UNSUPPORTED_PROTOCOL."""
    text = url.strip(" \t\r\n")
    if not text:
        raise _invalid(url, "it is empty")
    if len(text) > MAX_URL_LENGTH:
        raise _invalid(url, f"it is longer than {MAX_URL_LENGTH} characters")
    # The plain space is the only blank that `isprintable` accepts.
    if not text.isprintable() or " " in text:
        raise _invalid(url, "it contains blanks, control characters or invisible characters")
    scheme, mark, remainder = text.partition(":")
    if not mark or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        raise _invalid(url, "it has no scheme; give the whole URL, such as https://example.com/page")
    if scheme.lower() not in DEFAULT_PORTS:
        raise FetchError("UNSUPPORTED_PROTOCOL", f"'{_display(url)}' cannot be fetched: only http and https URLs can.")
    if not remainder.startswith("//") or "\\" in text:
        raise _invalid(url, "what follows the scheme must be // and a host, without backslashes")
    try:
        parts = urlsplit(text)
    except ValueError:
        raise _invalid(url, "it cannot be parsed") from None
    host, ip, port = _authority(url, parts.netloc, scheme.lower())
    # `%` is not escaped, because the URL may be escaped already.
    path = quote(parts.path or "/", safe=_UNESCAPED_CHARACTERS)
    if parts.query:
        path += "?" + quote(parts.query, safe=_UNESCAPED_CHARACTERS)
    return Target(scheme.lower(), host, port, path, quote(parts.fragment, safe=_UNESCAPED_CHARACTERS), ip)


def follow(target: Target, location: str) -> Target:
    """Return the destination of a redirect of `target`."""
    try:
        url = urljoin(target.url, location.strip())
    except ValueError:
        raise _invalid(location, "a redirect leads there, and it cannot be parsed") from None
    # Servers put unescaped characters into this header.
    return parse_target(url.replace(" ", "%20"))


def _authority(url: str, netloc: str, scheme: str) -> tuple[str, IpAddress | None, int]:
    if "@" in netloc:
        raise _invalid(url, "it contains a user name or password; leave them out")
    if netloc.startswith("["):
        name, bracket, remainder = netloc[1:].partition("]")
        try:
            ip = IPv6Address(name)
        except ValueError:
            raise _invalid(url, f"[{name[:60]}] is not an IPv6 address") from None
        if not bracket or "%" in name or (remainder and not remainder.startswith(":")):
            raise _invalid(url, "its IPv6 address is malformed")
        return str(ip), ip, _port(url, remainder.removeprefix(":"), scheme)
    name, _, port = netloc.partition(":")
    host = _ascii(url, name)
    # Resolvers treat a name with a numeric last label as an IPv4 address, also in octal and hexadecimal.
    last = host.rpartition(".")[2]
    if _NUMERIC_LABEL.fullmatch(last):
        return *_parse_number(url, host), _port(url, port, scheme)
    if len(host) > 253 or not _HOST_NAME.fullmatch(host):
        raise _invalid(url, f"'{host[:80]}' is not a host name")
    return host, None, _port(url, port, scheme)


def _ascii(url: str, name: str) -> str:
    """Return the host in lower case and punycode, without its final dot."""
    if not name.isascii():
        try:
            name = name.encode("idna").decode("ascii")
        except UnicodeError:
            raise _invalid(url, "its host name cannot be written in ASCII") from None
    return name.lower().removesuffix(".")


def _parse_number(url: str, host: str) -> tuple[str, IPv4Address]:
    """Return a numeric host as an address. Raise FetchError for any form but four decimal numbers."""
    try:
        ip = IPv4Address(host)
    except ValueError:
        raise _invalid(url, f"'{host[:80]}' is a number in place of a host; write addresses as 93.184.216.34") from None
    return str(ip), ip


def _port(url: str, text: str, scheme: str) -> int:
    if not text:
        return DEFAULT_PORTS[scheme]
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65_536):
        raise _invalid(url, f"'{text[:20]}' is not a port")
    return int(text)


def _invalid(url: str, why: str) -> FetchError:
    return FetchError("INVALID_URL", f"'{_display(url)}' is not a URL that can be fetched: {why}.")


def _display(url: str) -> str:
    """Return a URL for messages: printable, short, without a user name or password."""
    text = "".join(sign if sign.isprintable() else "\ufffd" for sign in url.strip()[:300])
    before, mark, remainder = text.partition("://")
    authority = re.split(r"[/?#]", remainder, maxsplit=1)[0]
    if "@" in authority:
        remainder = "…@" + remainder[authority.rindex("@") + 1 :]
    text = before + mark + remainder
    return text if len(text) <= 120 else text[:119] + "…"


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
_PRIVATE_NAMES = ("localhost", "local", "internal", "localdomain", "home.arpa", "lan", "intranet", "corp", "private")
"""Names that do not exist on the public internet, also as the end of a name."""

_ODD_PORTS = frozenset(
    {1719, 1720, 1723, 2049, 3306, 3659, 4045, 4190, 5060, 5061, 5432, 6000, 6379, 6566}
    | {*range(6665, 6670), 6679, 6697, 9100, 10080, 11211, 27017}
)
"""Ports above 1023 that are usually not of web servers."""


def refused_address(ip: IpAddress, *, literal: bool = False) -> str | None:
    """Return the kind of address if `ip` may not be contacted, otherwise None. `literal`: it was written in the URL,
    where a translated address has no legitimate use."""
    if isinstance(ip, IPv4Address):
        return _find_kind(ip, _REFUSED_V4)
    if ip.ipv4_mapped is not None:
        return refused_address(ip.ipv4_mapped)
    if ip in _NAT64:
        if literal:
            return "an address behind a translator"
        # In networks without IPv4, resolvers return these for public hosts; the last four bytes are the IPv4 address.
        return refused_address(IPv4Address(int(ip) & 0xFFFFFFFF))
    if ip not in _PUBLIC_V6:
        return _find_kind(ip, _KINDS_V6) or "no address of the public internet"
    return _find_kind(ip, _REFUSED_V6)


def _find_kind(ip: IpAddress, kinds: Mapping[str, str]) -> str | None:
    for network, kind in kinds.items():
        if ip in _network(network):
            return kind
    return None


# Parsed on first use, because most runs fetch nothing.
_network = cache(ip_network)


def refused_name(host: str) -> str | None:
    """Return the kind of host if its name alone forbids a connection, otherwise None."""
    for name in _PRIVATE_NAMES:
        if host == name or host.endswith(f".{name}"):
            if name == "localhost":
                return "this machine"
            return f"a name of a private network (.{name})"
    return None


def refused_port(port: int) -> str | None:
    if port in (80, 443) or (port >= 1024 and port not in _ODD_PORTS):
        return None
    return f"port {port} is not one that web servers use"


def connectable(text: str) -> IpAddress | None:
    """Return an address from a resolver in the form of the connection: a mapped one as IPv4."""
    try:
        ip = ip_address(text)
    except ValueError:
        return None
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    return ip


class AllowedHosts:
    """The hosts that a user exempts. An entry is a host, `*.domain`, an address or a network such as 10.1.0.0/16; with
    `:port` at its end it allows that port only. Anything else allows nothing."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._entries = [_split(entry.strip().lower()) for entry in entries]

    def __contains__(self, target: Target) -> bool:
        return any(_fits(name, target) and port in ("", str(target.port)) for name, port in self._entries)


def _split(entry: str) -> tuple[str, str]:
    if entry.startswith("["):
        name, _, remainder = entry[1:].partition("]")
        return name, remainder.removeprefix(":")
    name, colon, port = entry.rpartition(":")
    # More than one colon means an IPv6 address without brackets, which has no port.
    if colon and port.isdigit() and ":" not in name:
        return name.removesuffix("."), port
    return entry.removesuffix("."), ""


def _fits(name: str, target: Target) -> bool:
    if target.ip is not None:
        try:
            return target.ip in ip_network(name, strict=False)
        except (ValueError, TypeError):
            return False
    if name.startswith("*."):
        return len(name) > 2 and target.host.endswith(name[1:])
    return bool(name) and target.host == name
