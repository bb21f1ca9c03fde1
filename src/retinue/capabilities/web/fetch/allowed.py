"""The hosts a user exempts from the guard of addresses (`web.allowHosts`)."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network

from retinue.capabilities.web.fetch.url import Target


class AllowedHosts:
    """Entries are a host, `*.domain`, an address or a network such as 10.1.0.0/16; each may end
    in `:port`, and then allows that port only. What is no such entry allows nothing."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._entries = [_split(entry.strip().lower()) for entry in entries]

    def __contains__(self, target: Target) -> bool:
        return any(_fits(name, target) and port in ("", str(target.port)) for name, port in self._entries)


def _split(entry: str) -> tuple[str, str]:
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        return name, rest.removeprefix(":")
    name, colon, port = entry.rpartition(":")
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
