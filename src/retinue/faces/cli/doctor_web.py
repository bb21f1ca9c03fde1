"""The doctor's look at the web: who would search, how pages are read, which hosts are exempt."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from retinue.faces.cli.doctor_checks import Patient

Row = tuple[str, ...]
_EXTRA = "Install it with: pip install 'retinue[web]'"


def search(patient: Patient) -> Iterator[Row]:
    """Nobody is asked anything: a key that is there may still be refused."""
    from retinue.capabilities.web.errors import WebError
    from retinue.capabilities.web.search.choose import Search
    from retinue.http.transport import Transport

    settings = patient.loaded.settings
    if not settings.web_enabled:
        yield "info", "web tools", "switched off by web.enabled"
        return
    services = Search(settings, patient.environment, Transport())
    try:
        order = [searcher.name for searcher in services.order()]
    except WebError as error:
        yield "warning", "search", f"{error.code}: nobody can be asked", error.message
        return
    lacking = [f"{name} ({why})" for name, why in services.setup().items() if why is not None]
    then = f", then {', '.join(order[1:])}" if order[1:] else ""
    yield "ok", "search", f"asks {order[0]}{then}"
    if lacking:
        yield "info", "search services", f"not set up: {', '.join(lacking)}"


def pages(patient: Patient) -> Iterator[Row]:
    from retinue.capabilities.web.fetch.resolve import has_network

    settings = patient.loaded.settings
    if not settings.web_enabled:
        return
    if not has_network():
        yield "warning", "network", "no route leads out of this machine", "Connect it, or expect searches to fail."
    if find_spec("trafilatura"):
        yield "ok", "pages", "read with trafilatura"
    else:
        yield "info", "pages", "read with our own converter; trafilatura is not installed", _EXTRA
    if settings.web_allow_hosts:
        yield "info", "allowed hosts", f"outside the public internet: {', '.join(settings.web_allow_hosts)}"
    if settings.web_taint == "ask":
        yield "info", "taint", "runs that have read the web are asked about what reaches outward"
