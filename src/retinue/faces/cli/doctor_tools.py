"""What `retinue doctor` checks of the web, language servers and the converter of documents."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from importlib.util import find_spec

from retinue.faces.cli.doctor import Installation, Row
from retinue.faces.text import optional

_EXTRA = "Install it with: pip install 'retinue[web]'"


def search(installation: Installation) -> Iterator[Row]:
    """Check which services a search would ask. None is asked here: a key that is there may still be refused."""
    from retinue.capabilities.web.base import WebError
    from retinue.capabilities.web.search import Search
    from retinue.http.transport import Transport

    settings = installation.loaded.settings
    if not settings.web_enabled:
        yield "info", "web tools", "switched off by web.enabled"
        return
    services = Search(settings, installation.environment, Transport())
    try:
        order = [searcher.name for searcher in services.order()]
    except WebError as error:
        yield "warning", "search", f"{error.code}: nobody can be asked", error.message
        return
    lacking = [f"{name} ({why})" for name, why in services.setup().items() if why is not None]
    yield "ok", "search", f"asks {order[0]}{optional(', then {}', ', '.join(order[1:]))}"
    if lacking:
        yield "info", "search services", f"not set up: {', '.join(lacking)}"


def pages(installation: Installation) -> Iterator[Row]:
    from retinue.capabilities.web.connect import has_network

    settings = installation.loaded.settings
    if not settings.web_enabled:
        return
    if not has_network():
        yield "warning", "network", "no route leads out of this machine", "Connect it, or expect searches to fail."
    missing = [name for name in ("trafilatura", "html_to_markdown") if find_spec(name) is None]
    if missing:
        what = "HTML cannot be read; JSON, XML and text can"
        yield "warning", "pages", f"{what} ({', '.join(missing)} not installed)", _EXTRA
    else:
        yield "ok", "pages", "read with trafilatura and html-to-markdown"
    if settings.web_allow_hosts:
        yield "info", "allowed hosts", f"outside the public internet: {', '.join(settings.web_allow_hosts)}"
    if settings.web_taint == "ask":
        yield "info", "taint", "runs that have read the web are asked about what reaches outward"


def language_servers(installation: Installation) -> Iterator[Row]:
    """Check which language servers there are, and which are missing for the files of this project."""
    from retinue.capabilities.lsp.catalog import present, server_kinds

    settings = installation.loaded.settings
    if not settings.allow_lsp_tools or not settings.allowed_lsp_actions:
        yield "info", "tool", "agents may not ask language servers (allowLspTools, allowedLspActions)"
        return
    if find_spec("lsprotocol") is None:
        yield "warning", "tool", "the protocol's types are not installed", "Run: pip install 'retinue[lsp]'"
    else:
        yield "ok", "tool", f"agents may ask for {', '.join(settings.allowed_lsp_actions)}"
    search = installation.environment.get("PATH")
    kinds = [kind for kind in server_kinds(settings.lsp_servers) if kind.enabled]
    covered: set[str] = set()
    for kind in kinds:
        program = kind.program(search)
        if program is not None:
            covered |= set(kind.languages)
            yield "ok", kind.name, f"{program}, for {' '.join(sorted(kind.languages))}"
    missing: dict[str, Row] = {}
    for kind, root in present(kinds, installation.cwd):
        lacking = sorted(set(kind.languages) - covered)
        if lacking and lacking[0] not in missing:
            detail = f"not installed, though there are {' '.join(lacking)} files in {root}"
            missing[lacking[0]] = ("warning", kind.name, detail, f"Install it: {kind.install or kind.argv[0]}")
    yield from missing.values()
    if not covered and not missing:
        yield "info", "servers", "none is installed; for Python: pip install 'retinue[lsp]'"
    yield from _confinement(installation)


def _confinement(installation: Installation) -> Iterator[Row]:
    from retinue.guard.sandbox.kernel import why_not

    settings = installation.loaded.settings
    if settings.lsp_sandbox == "off":
        detail = "language servers run with your rights, and some run programs of the project"
        yield "warning", "sandbox", detail, "retinue settings set lsp.sandbox on"
    elif why_not() is not None or settings.sandbox_mode == "off":
        yield "info", "sandbox", "nothing here confines servers: those that run code of a project are not started"
    else:
        yield "ok", "sandbox", "language servers can change nothing and reach nobody"
    edits = {"off": "nobody hears", "main": "agents that no other started hear", "all": "all agents that may ask hear"}
    yield "info", "after edits", f"{edits[settings.lsp_diagnostics_after_edit]} what servers find wrong"


def converter(installation: Installation) -> Iterator[Row]:
    settings = installation.loaded.settings
    if not settings.convert_enabled:
        yield "info", "converter", "switched off (convert.enabled)"
        return
    if find_spec("markitdown") is None:
        yield "warning", "converter", "markitdown is not installed", "Run: pip install 'retinue[convert]'"
        return
    from importlib.metadata import version

    yield "ok", "converter", f"markitdown {version('markitdown')}"
    parts = {"pdfminer": "PDF", "mammoth": "Word", "pptx": "PowerPoint", "openpyxl": "Excel", "PIL": "pictures"}
    lacking = [what for module, what in parts.items() if find_spec(module) is None]
    if lacking:
        yield "warning", "formats", f"cannot read {', '.join(lacking)}", "Run: pip install 'retinue[convert]'"
    else:
        yield "ok", "formats", f"{', '.join(parts.values())}, EPUB, HTML, notebooks, CSV, text"


def results_folder(installation: Installation) -> Iterator[Row]:
    """Check whether what tools find can be kept: a file is written there and removed."""
    from retinue.settings.places import retinue_home, state_folder

    wanted = state_folder(installation.cwd, installation.environment) / "outputs"
    folder = wanted
    while not folder.exists():
        folder = folder.parent
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".retinue-doctor-"):
            pass
    except OSError as error:
        home = retinue_home(installation.environment)
        remedy = f"Correct the owner or the mode of {folder}, or set RETINUE_HOME (now {home})."
        yield "failure", "results", f"{folder} cannot be written: {error.strerror}", remedy
        return
    where = str(wanted)
    if folder != wanted:
        where += f" can be made, {folder}"
    yield "ok", "results", f"{where} can be written"
