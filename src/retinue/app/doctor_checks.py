"""Checks of the sandbox, the web, language servers and the document converter for `retinue doctor`.

The layers of the sandbox are tested: whether they exist, and whether they hold.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Literal

from retinue.app.text import optional
from retinue.capabilities.lsp.catalog import find_projects, server_kinds
from retinue.capabilities.web.base import WebError
from retinue.capabilities.web.connect import has_network
from retinue.capabilities.web.search import Search
from retinue.core.install import install_command
from retinue.guard.sandbox.control_groups import group_place
from retinue.guard.sandbox.kernel import has_seccomp, landlock_abi, why_not
from retinue.guard.sandbox.policy import (
    SandboxPolicy,
    bubblewrap,
    bubblewrap_works,
    masks_work,
    namespaces_work,
    restriction,
    run_inside,
    uncovered,
)
from retinue.guard.trust import settings_in_effect
from retinue.http.transport import Transport
from retinue.settings.load import Loaded
from retinue.settings.places import retinue_home, state_folder

Grade = Literal["ok", "info", "warning", "failure"]
Row = tuple[Grade, str, str] | tuple[Grade, str, str, str]
"""The result of a check: grade, name, detail, and for every warning and failure a remedy."""
_FULL_LANDLOCK_ABI = 6
_KERNEL_REMEDY = "Use Linux 6.12 or newer for all of it; from 6.2 on it is enough."

_ESCAPE_SCRIPT = """
try() { name=$1; shift; "$@" >/dev/null 2>&1 && echo "open $name" || echo "shut $name"; }
try write sh -c 'echo x > "$PROBE/file"'
try create sh -c 'echo x > "$PROBE/new"'
try mode chmod 777 "$PROBE/file"
try times touch -d 2001-01-01 "$PROBE/file"
try delete rm "$PROBE/file"
try signal kill -0 "$OURS"
try environment cat "/proc/$OURS/environ"
try command-line grep -q . "/proc/$OURS/cmdline"
try scratch sh -c 'echo x > "$TMPDIR/x"'
command -v bash >/dev/null && try tcp bash -c 'echo x > "/dev/tcp/127.0.0.1/$TCP"'
command -v bash >/dev/null && try udp bash -c 'echo x > "/dev/udp/127.0.0.1/$UDP" && exit 1'
"""
_READ_SCRIPT = """
cat "$1" >/dev/null 2>&1 && echo seen
true
"""
_ATTEMPT_PHRASES = {
    "write": "change a file",
    "create": "create a file",
    "mode": "change a file's mode",
    "times": "change a file's times",
    "delete": "delete a file",
    "signal": "signal a process outside",
    "environment": "read the environment of a process outside",
    "command-line": "read the command line of a process outside",
    "tcp": "connect to a port of this machine",
}


_MEANS_OF_MACOS = "Retinue's sandbox for macOS was not run on a Mac. Please report this."


class Installation:
    """The installation as seen from one folder."""

    def __init__(self, cwd: Path, environment: Mapping[str, str]) -> None:
        self.cwd = cwd
        self.environment = environment

    @cached_property
    def loaded(self) -> Loaded:
        return settings_in_effect(self.cwd, self.environment)


def layers(installation: Installation) -> Iterator[Row]:
    if sys.platform == "darwin":
        problem = why_not()
        if problem is not None:
            yield "warning", "Seatbelt", problem, _MEANS_OF_MACOS
        else:
            yield "ok", "Seatbelt", "a confined program tried to get out and failed. Not run on a Mac by its authors"
        return
    abi = landlock_abi()
    if abi == 0:
        yield (
            "warning",
            "Landlock",
            "not available",
            f"{_KERNEL_REMEDY} In a container, allow the landlock system calls.",
        )
    elif abi < _FULL_LANDLOCK_ABI:
        yield (
            "warning",
            "Landlock",
            f"version {abi}: signals and abstract sockets are closed by other means",
            _KERNEL_REMEDY,
        )
    else:
        yield "ok", "Landlock", f"version {abi}: files, TCP, signals, abstract sockets"
    if has_seccomp():
        yield "ok", "seccomp", "closes other sockets, tracing, mounts, keys and system calls it does not know"
    else:
        yield "warning", "seccomp", "not available", "Use a kernel that has CONFIG_SECCOMP_FILTER."
    yield _namespaces()
    program = bubblewrap()
    if program is None:
        yield "info", "bubblewrap", "not installed; only needed where other programs may not make namespaces"
    else:
        state = "works" if bubblewrap_works() else "does not work here"
        yield "info", "bubblewrap", f"{program} {state}; used only where our own namespaces are not allowed"


def _namespaces() -> Row:
    if why_not() is None and namespaces_work():
        return "ok", "namespaces", "own view of files, network, processes and shared memory"
    held = restriction()
    if held is not None and bubblewrap_works():
        return "ok", "namespaces", f"forbidden to us ({held}), made by bubblewrap instead"
    return "warning", "namespaces", "not available; the rows below list the missing protection", _remedy()


def _remedy() -> str:
    """Return how this host could get namespaces."""
    held = restriction()
    ways = []
    if not bubblewrap():
        ways.append("install bubblewrap")
    if held:
        ways.append(f"have an administrator change {held}")
    ways.append("in a container, allow user namespaces")
    remedy = f"{', or '.join(ways)}."
    return remedy[0].upper() + remedy[1:]


def walls(installation: Installation) -> Iterator[Row]:
    """Start a confined program that tries to escape."""
    mode = installation.loaded.settings.sandbox_mode
    problem = why_not()
    if problem is not None:
        detail = f"read-only agents have no shell here: {problem}"
        yield "warning", "read-only shells", detail, "Use them without a shell, or on a system that can confine one."
        return
    began = time.perf_counter()
    code, _ = run_inside(SandboxPolicy(), "exit 0")
    took = (time.perf_counter() - began) * 1000
    if code != 0:
        yield "failure", "start", f"a confined program could not be started (exit code {code})", "Please report this."
        return
    yield "ok", "start", f"a confined program starts, in {took:.0f} ms with everything around it"
    results = _attempts()
    tried = []
    opened = []
    for name, result in results.items():
        if name in _ATTEMPT_PHRASES:
            tried.append(name)
            if result == "open":
                opened.append(_ATTEMPT_PHRASES[name])
    if opened:
        detail = f"a confined program could {', '.join(opened)}"
        yield "failure", "walls", detail, "Set sandbox.mode to off and report this."
    else:
        shut = ", ".join(map(_ATTEMPT_PHRASES.__getitem__, tried))
        yield "ok", "walls", f"a confined program tried and failed to {shut}"
    yield from _coverage()
    if results.get("scratch") != "open":
        yield "failure", "scratch folder", "a confined program cannot write to its own", "Check the folder in TMPDIR."
    quota = installation.loaded.settings.sandbox_scratch_mb
    if quota is None:
        yield "info", "scratch folder", "a run may fill the disk: sandbox.scratchMb is 0"
    else:
        yield "ok", "scratch folder", f"a run may keep {quota} MB in it (sandbox.scratchMb)"
    yield _memory(installation.loaded.settings.sandbox_memory_mb)
    if mode == "off":
        detail = "switched off: none of these walls is used, commands are judged by their text"
        detail += ", and read-only agents have no shell"
        yield "warning", "setting", detail, "retinue settings set sandbox.mode readonly-only"
    else:
        who = "all commands" if mode == "workspace" else "commands of read-only agents and of agents in worktrees"
        yield "info", "setting", f"sandbox.mode is {mode}: what nobody approved is confined, and {who}"


def _memory(most: int | None) -> Row:
    """Report how the memory of a command is limited."""
    if most is None:
        return "info", "memory", "a command may take all: sandbox.memoryMb is 0"
    if group_place() is not None and (namespaces_work() or not bubblewrap_works()):
        return "ok", "memory", f"the kernel bounds a command and all that it starts to {most} MB (sandbox.memoryMb)"
    detail = f"the processes of a command are counted and stopped above {most} MB (sandbox.memoryMb), so they can have"
    return "info", "memory", f"{detail} more for a moment: this process may not make control groups, or bwrap is used"


def _coverage() -> Iterator[Row]:
    """Yield for each kind of shell what the sandbox covers and what it does not."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x")
        file.flush()
        _, output = run_inside(SandboxPolicy(reach="system"), _READ_SCRIPT, file.name)
    if "seen" in output:
        detail = "a command that runs without a question could read a file outside of the workspace"
        yield "failure", "reading", detail, "Set sandbox.mode to off and report this."
    else:
        yield "ok", "reading", "commands that run without a question see only the system, your tools and the workspace"
    if masks_work():
        yield "ok", "rules about files", "files that rules hide or protect are walled off from every shell"
    else:
        detail = "files that rules hide or protect are not walled off from commands that may change everything"
        yield "warning", "rules about files", f"{detail}; these are judged by their text", _remedy()
    workspace = Path("/doctor")
    policy = SandboxPolicy(writable=(workspace,), readonly=(workspace / "kept",))
    missing = uncovered(policy)
    if missing:
        detail = f"{missing} In sandbox.mode workspace an agent can change .git/config, hooks and settings that exist"
        yield "warning", "not covered", f"{detail}; agents in worktrees cannot", _remedy()
    else:
        yield "ok", "workspaces", "in sandbox.mode workspace an agent cannot leave anything that git would run"


def _attempts() -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as tcp:
        probe = Path(folder)
        (probe / "file").write_text("as it was\n")
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", 0))
        ports = {"TCP": str(tcp.getsockname()[1]), "UDP": str(udp.getsockname()[1])}
        _, output = run_inside(SandboxPolicy(), _ESCAPE_SCRIPT, PROBE=folder, OURS=str(os.getpid()), **ports)
        udp.setblocking(False)
        results = {}
        for line in output.splitlines():
            result, _, name = line.partition(" ")
            results[name] = result
        # Sending by UDP succeeds even if nothing arrives, so check what is received here.
        results.pop("udp", None)
        try:
            udp.recv(10)
            results["tcp"] = "open"
        except BlockingIOError:
            pass
        finally:
            udp.close()
        if (probe / "file").read_text() != "as it was\n":
            results["write"] = "open"
    return results


_WEB_REMEDY = f"Install it with: {install_command('web')}"


def search(installation: Installation) -> Iterator[Row]:
    """Check which services a search would use. No service is contacted, so a key that is set may still be refused."""
    settings = installation.loaded.settings
    if not settings.web_enabled:
        yield "info", "web tools", "switched off by web.enabled"
        return
    services = Search(settings, installation.environment, Transport())
    try:
        order = [searcher.name for searcher in services.order()]
    except WebError as error:
        yield "warning", "search", f"{error.code}: no service can be used", error.message
        return
    lacking = [f"{name} ({why})" for name, why in services.setup().items() if why is not None]
    yield "ok", "search", f"asks {order[0]}{optional(', then {}', ', '.join(order[1:]))}"
    if lacking:
        yield "info", "search services", f"not set up: {', '.join(lacking)}"


def _cannot_import(*modules: str) -> dict[str, str]:
    """Return the modules that cannot be imported, each with the reason. An installed module may lack a dependency."""
    reasons = {}
    for name in modules:
        try:
            import_module(name)
        except Exception as error:  # noqa: BLE001 - whatever a broken installation raises, it does not work
            reason = (str(error) or type(error).__name__).splitlines()[0]
            reasons[name] = f"{name} cannot be imported: {reason}"
    return reasons


def pages(installation: Installation) -> Iterator[Row]:
    settings = installation.loaded.settings
    if not settings.web_enabled:
        return
    if not has_network():
        yield "warning", "network", "no route leads out of this machine", "Connect it, or expect searches to fail."
    missing = _cannot_import("trafilatura", "html_to_markdown")
    if missing:
        what = "HTML cannot be read; JSON, XML and text can"
        yield "warning", "pages", f"{what} ({', '.join(missing.values())})", _WEB_REMEDY
    else:
        yield "ok", "pages", "read with trafilatura and html-to-markdown"
    if settings.web_allow_hosts:
        yield "info", "allowed hosts", f"outside the public internet: {', '.join(settings.web_allow_hosts)}"
    if settings.web_taint == "ask":
        yield "info", "taint", "runs that have read the web are asked about what reaches outward"


def language_servers(installation: Installation) -> Iterator[Row]:
    """Check which language servers are installed, and which are missing for the files of this project."""
    settings = installation.loaded.settings
    if not settings.lsp_enabled:
        yield "info", "tool", "agents may not ask language servers (lsp.enabled)"
        return
    if _cannot_import("lsprotocol"):
        yield "warning", "tool", "the protocol's types are not installed", f"Run: {install_command('lsp')}"
    elif not settings.allow_lsp_tools or not settings.allowed_lsp_actions:
        yield "info", "tool", "only the main agent may ask language servers (allowLspTools, allowedLspActions)"
    else:
        yield "ok", "tool", f"sub-agents may ask for {', '.join(settings.allowed_lsp_actions)}"
    search = installation.environment.get("PATH")
    kinds = [kind for kind in server_kinds(settings.lsp_servers) if kind.enabled]
    covered: set[str] = set()
    for kind in kinds:
        program = kind.program(search)
        if program is not None:
            covered |= set(kind.languages)
            yield "ok", kind.name, f"{program}, for {' '.join(sorted(kind.languages))}"
    missing: dict[str, Row] = {}
    for kind, root in find_projects(kinds, installation.cwd):
        lacking = sorted(set(kind.languages) - covered)
        if lacking and lacking[0] not in missing:
            detail = f"not installed, though there are {' '.join(lacking)} files in {root}"
            missing[lacking[0]] = ("warning", kind.name, detail, f"Install it: {kind.how_to_install or kind.argv[0]}")
    yield from missing.values()
    if not covered and not missing:
        yield "info", "servers", f"none is installed; for Python: {install_command('lsp')}"
    yield from _confinement(installation)


def _confinement(installation: Installation) -> Iterator[Row]:
    settings = installation.loaded.settings
    if settings.lsp_sandbox == "off":
        detail = "language servers run with your rights, and some run programs of the project"
        yield "warning", "sandbox", detail, "retinue settings set lsp.sandbox on"
    elif why_not() is not None or settings.sandbox_mode == "off":
        yield "info", "sandbox", "nothing here confines servers: those that run code of a project are not started"
    else:
        yield "ok", "sandbox", "language servers cannot write or use the network"
    edits = {"off": "nobody hears", "main": "agents that no other started hear", "all": "all agents that may ask hear"}
    yield "info", "after edits", f"{edits[settings.lsp_diagnostics_after_edit]} what servers find wrong"


def converter(installation: Installation) -> Iterator[Row]:
    settings = installation.loaded.settings
    if not settings.convert_enabled:
        yield "info", "converter", "switched off (convert.enabled)"
        return
    missing = _cannot_import("markitdown")
    if missing:
        yield "warning", "converter", missing["markitdown"], f"Run: {install_command('convert')}"
        return
    from importlib.metadata import version

    yield "ok", "converter", f"markitdown {version('markitdown')}"
    parts = {"pdfminer": "PDF", "mammoth": "Word", "pptx": "PowerPoint", "openpyxl": "Excel", "PIL": "pictures"}
    lacking = [parts[module] for module in _cannot_import(*parts)]
    if lacking:
        yield "warning", "formats", f"cannot read {', '.join(lacking)}", f"Run: {install_command('convert')}"
    else:
        yield "ok", "formats", f"{', '.join(parts.values())}, EPUB, HTML, notebooks, CSV, text"


def results_folder(installation: Installation) -> Iterator[Row]:
    """Check that tool results can be stored, by writing and removing a file."""
    outputs = state_folder(installation.cwd, installation.environment) / "outputs"
    folder = outputs
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
    where = str(outputs)
    if folder != outputs:
        where += f" can be made, {folder}"
    yield "ok", "results", f"{where} can be written"
