"""A URL as it will be asked for, or the reason why it is not one.

Strict on purpose: whatever two programs could read differently (backslashes, user names,
percent signs in host names, numbers that are addresses in disguise, controls) is refused, so that
the host that rules and people see is the host that is contacted.
"""

from __future__ import annotations

import ipaddress
import re
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import quote, urljoin, urlsplit

from retinue.capabilities.web.errors import FetchError
from retinue.core.lean import dataclass

LONGEST = 8_192
_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)")
_KEPT = "/?:@!$&'()*+,;=~-._%[]"


@dataclass(frozen=True, slots=True)
class Target:
    """Where one request goes. `host` is a lower-case ASCII name without a final dot, or an
    address; then `ip` is set. `path` is what the request line asks for."""

    scheme: str
    host: str
    port: int
    path: str
    fragment: str = ""
    ip: IPv4Address | IPv6Address | None = None

    @property
    def secure(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == _PORTS[self.scheme] else f"{name}:{self.port}"

    @property
    def url(self) -> str:
        """Without the fragment: what is asked for, and what is remembered."""
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def full_url(self) -> str:
        return f"{self.url}#{self.fragment}" if self.fragment else self.url


def parse_target(url: str) -> Target:
    """Raises FetchError: INVALID_URL, UNSUPPORTED_PROTOCOL."""
    text = url.strip(" \t\r\n")
    if not text or len(text) > LONGEST:
        raise _invalid(url, "it is empty" if not text else f"it is longer than {LONGEST} characters")
    if not text.isprintable() or any(sign.isspace() for sign in text):
        raise _invalid(url, "it holds blanks, control characters or characters that do not show")
    scheme, mark, rest = text.partition(":")
    if not mark or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        raise _invalid(url, "it has no scheme; give the whole URL, such as https://example.com/page")
    if scheme.lower() not in _PORTS:
        raise FetchError("UNSUPPORTED_PROTOCOL", f"'{_shown(url)}' cannot be fetched: only http and https URLs can.")
    if not rest.startswith("//") or "\\" in text:
        raise _invalid(url, "what follows the scheme must be // and a host, without backslashes")
    try:
        parts = urlsplit(text)
    except ValueError:
        raise _invalid(url, "it cannot be parsed") from None
    host, ip, port = _authority(url, parts.netloc, scheme.lower())
    path = quote(parts.path or "/", safe=_KEPT)
    if parts.query:
        path += "?" + quote(parts.query, safe=_KEPT)
    return Target(scheme.lower(), host, port, path, quote(parts.fragment, safe=_KEPT), ip)


def follow(target: Target, location: str) -> Target:
    """Where a redirect of `target` leads."""
    try:
        url = urljoin(target.url, location.strip())
    except ValueError:
        raise _invalid(location, "a redirect leads there, and it cannot be parsed") from None
    # Servers write characters into this header that a URL would have to escape.
    return parse_target(url.replace(" ", "%20"))


def _authority(url: str, netloc: str, scheme: str) -> tuple[str, IPv4Address | IPv6Address | None, int]:
    if "@" in netloc:
        raise _invalid(url, "it holds a user name or password; leave them out")
    if netloc.startswith("["):
        name, bracket, rest = netloc[1:].partition("]")
        try:
            ip: IPv4Address | IPv6Address = IPv6Address(name)
        except ValueError:
            raise _invalid(url, f"[{name[:60]}] is no IPv6 address") from None
        if not bracket or "%" in name or (rest and not rest.startswith(":")):
            raise _invalid(url, "its IPv6 address is malformed")
        return str(ip), ip, _port(url, rest.removeprefix(":"), scheme)
    name, _, port = netloc.partition(":")
    host = _ascii(url, name)
    last = host.rpartition(".")[2]
    if _NUMBER.fullmatch(last):
        return *_number(url, host), _port(url, port, scheme)
    if len(host) > 253 or not _HOST.fullmatch(host):
        raise _invalid(url, f"'{host[:80]}' is no host name")
    return host, None, _port(url, port, scheme)


def _ascii(url: str, name: str) -> str:
    """The host as it goes over the wire: lower case, punycode, without its final dot."""
    if not name.isascii():
        try:
            name = name.encode("idna").decode("ascii")
        except UnicodeError:
            raise _invalid(url, "its host name cannot be written in ASCII") from None
    return name.lower().removesuffix(".")


def _number(url: str, host: str) -> tuple[str, IPv4Address]:
    """Hosts that end in a number are addresses to every resolver: only the plain form passes."""
    try:
        ip = ipaddress.IPv4Address(host)
    except ValueError:
        raise _invalid(url, f"'{host[:80]}' is a number in place of a host; write addresses as 93.184.216.34") from None
    return str(ip), ip


def _port(url: str, text: str, scheme: str) -> int:
    if not text:
        return _PORTS[scheme]
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65_536):
        raise _invalid(url, f"'{text[:20]}' is no port")
    return int(text)


def _invalid(url: str, why: str) -> FetchError:
    return FetchError("INVALID_URL", f"'{_shown(url)}' is not a URL that can be fetched: {why}.")


def _shown(url: str) -> str:
    """Fit for a message: printable, short, without what may be a password."""
    text = "".join(sign if sign.isprintable() else "\ufffd" for sign in url.strip()[:300])
    before, mark, rest = text.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        rest = "…@" + rest[authority.rindex("@") + 1 :]
    text = before + mark + rest
    return text if len(text) <= 120 else text[:119] + "…"
