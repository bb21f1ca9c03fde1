"""The tools of a plugin: its modules are imported when the first run of a process needs them.

An import runs in a separate thread, in bounded time. If it raises, exits or hangs, that is reported as a problem of the
plugin, and the others work. Modules of a folder are compiled from their source, never from a cache, and import each
other relatively (`from . import helper`).
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import orjson
from msgspec import Struct

from retinue.capabilities.plugins.discover import Plugin
from retinue.core.files import read_file
from retinue.core.permission import EffectKind
from retinue.core.tool import Tool, ToolSpec
from retinue.core.tool_names import TOOL_NAME_ALIASES
from retinue.guard.trust import TrustSubject, describe_program, settings_subject

IMPORT_SECONDS = 10.0
_PACKAGE_PREFIX = "retinue_plugin_"
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_EFFECTS = frozenset(get_args(EffectKind))
_plugin_by_package: dict[str, Plugin] = {}


class PluginTools(Struct, frozen=True):
    """The tools of one plugin by name, and its problems."""

    plugin: Plugin
    tools: Mapping[str, Tool]
    problems: tuple[str, ...] = ()


def load_tools(plugin: Plugin, seconds: float = IMPORT_SECONDS) -> PluginTools:
    """Import the tools of a plugin, waiting at most `seconds`. Blocks: call it in a thread. Never raises for an error
    of the plugin."""
    tools: dict[str, Tool] = {}
    problems: list[str] = []
    if not plugin.entry:
        _forget(_package(plugin))
    for code in plugin.code:
        value, problem = _run_bounded(functools.partial(_import_tools, plugin, code), seconds)
        if problem:
            problems.append(f"{code} {problem}")
            continue
        for tool in value:
            name = tool.spec.name
            why = _find_fault(tool.spec)
            if not why and name in tools:
                why = "there are two tools of that name"
            if why:
                problems.append(f"its tool '{str(name)[:80]}' is left out: {why}")
            else:
                tools[name] = tool
    return PluginTools(plugin, tools, tuple(problems))


def _run_bounded(work: Callable[[], list[Tool]], seconds: float) -> tuple[list[Tool], str]:
    """Return the result of `work`, or a problem. A thread that hangs is abandoned; it does not keep the process
    alive."""
    done: list[tuple[list[Tool], str]] = []

    def target() -> None:
        try:
            done.append((work(), ""))
        except BaseException as error:  # noqa: BLE001 - a plugin may even try to exit
            done.append(([], f"failed on import: {_describe(error)}"))

    thread = threading.Thread(target=target, name="plugin import", daemon=True)
    thread.start()
    thread.join(seconds)
    return done[0] if done else ([], f"did not finish its import within {seconds:g} s")


def _describe(error: BaseException) -> str:
    """Return the error on one line, with its position in the plugin."""
    text = " ".join(str(error).split())[:300]
    if text:
        text = f": {text}"
    frame = error.__traceback__
    position = ""
    while frame is not None:
        module = frame.tb_frame.f_globals.get("__name__", "")
        if module.startswith(_PACKAGE_PREFIX):
            position = f" ({Path(frame.tb_frame.f_code.co_filename).name}, line {frame.tb_lineno})"
        frame = frame.tb_next
    return f"{type(error).__name__}{text}{position}"


def _import_tools(plugin: Plugin, code: str) -> list[Tool]:
    if plugin.entry:
        module, _, attribute = plugin.entry.partition(":")
        entry: Any = importlib.import_module(module)
        for name in filter(None, attribute.split(".")):
            entry = getattr(entry, name)
        return _tools_of(entry)
    if _MODULE_FINDER not in sys.meta_path:
        # Before Python's own finders, which would use its caches.
        sys.meta_path.insert(0, _MODULE_FINDER)
    base = _package(plugin)
    name = base if plugin.file is not None else f"{base}.{code}"
    return _tools_of(importlib.import_module(name))


def _tools_of(entry: Any) -> list[Tool]:
    """Return the tools of a module: its list `tools`, or else every tool it defines. `entry` may also be a tool, a list
    of tools, or a function that returns one of them."""
    if _is_tool(entry):
        return [entry]
    if isinstance(entry, ModuleType):
        listed = entry.__dict__.get("tools")
        if not isinstance(listed, (list, tuple)):
            own: dict[int, Tool] = {}
            for value in vars(entry).values():
                if _is_tool(value):
                    # One tool may have two names in its module.
                    own[id(value)] = value
            return list(own.values())
        entry = listed
    elif not isinstance(entry, Sequence) and callable(entry):
        if inspect.signature(entry).parameters:
            raise TypeError("an entry point that is a function is called without arguments")
        return _tools_of(entry())
    if not isinstance(entry, (list, tuple)) or not all(map(_is_tool, entry)):
        raise TypeError("it returns something that is not a tool; make tools with retinue.tool")
    return list(entry)


def _is_tool(value: Any) -> bool:
    if isinstance(value, type):
        return False
    return isinstance(getattr(value, "spec", None), ToolSpec) and callable(getattr(value, "run", None))


def _find_fault(spec: ToolSpec) -> str:
    """Return why models cannot be offered a tool with this spec; empty if they can."""
    name = spec.name
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        return "a name has at most 64 letters, digits, '_' and '-'"
    if name.lower() in TOOL_NAME_ALIASES or name.lower().startswith("mcp__"):
        return "Retinue has a tool of that name, which no plugin can replace"
    if not isinstance(spec.description, str) or not spec.description.strip():
        return "it has no description"
    if not isinstance(spec.effects, frozenset) or not spec.effects <= _EFFECTS:
        return f"its effects must be a frozenset out of {', '.join(sorted(_EFFECTS))}"
    if spec.paths is not None and not (isinstance(spec.paths, tuple) and all(isinstance(p, str) for p in spec.paths)):
        return "its paths must be a tuple of names of parameters"
    try:
        shape = orjson.loads(orjson.dumps(spec.parameters))
    except (TypeError, ValueError):
        shape = None
    if not isinstance(shape, dict) or shape.get("type") != "object":
        return "its parameters must be a JSON Schema of an object"
    return ""


# Modules of folders


def _package(plugin: Plugin) -> str:
    """Return the package name under which a folder or a file is imported, unique for each path."""
    mark = hashlib.sha256(str(plugin.path).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    name = f"{_PACKAGE_PREFIX}{re.sub(r'[^A-Za-z0-9_]', '_', plugin.name)}_{mark}"
    _plugin_by_package[name] = plugin
    return name


def _forget(package: str) -> None:
    """Remove a package and its modules from `sys.modules`, so that the files are read again."""
    for module in list(sys.modules):
        if module == package or module.startswith(f"{package}."):
            del sys.modules[module]


class _Finder(MetaPathFinder):
    """Finds modules of plugins, which are not on `sys.path`."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, below = fullname.partition(".")
        plugin = _plugin_by_package.get(package)
        if plugin is None:
            return None
        if plugin.file is not None:
            return _spec(fullname, plugin.file) if not below else None
        assert plugin.root is not None
        folder = plugin.root
        if below:
            folder = plugin.root.joinpath(*below.split("."))
            if (folder / "__init__.py").is_file():
                return _spec(fullname, folder / "__init__.py", [str(folder)])
            module = folder.with_name(f"{folder.name}.py")
            if module.is_file():
                return _spec(fullname, module)
        if not folder.is_dir():
            return None
        spec = ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        return spec


_MODULE_FINDER = _Finder()


def _spec(name: str, file: Path, below: list[str] | None = None) -> ModuleSpec | None:
    loader = _Loader(name, str(file))
    return importlib.util.spec_from_file_location(name, file, loader=loader, submodule_search_locations=below)


class _Loader(SourceFileLoader):
    """Compiles the source of the file. Calls of `print` in the module write to standard error, because standard output
    is for the result of the program."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        raise OSError("the caches of Python are not used for plugins")

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.setdefault("print", functools.partial(print, file=sys.stderr))
        super().exec_module(module)


# Consent


MAX_PLUGIN_FILES = 5_000
MAX_FOLDER_BYTES = 64 * 1024 * 1024
_CACHE_FOLDERS = frozenset({"__pycache__", ".git"})
_SETTLED_NANOSECONDS = 2_100_000_000
"""The time after which a change is visible in a file's times on every file system."""


class NoDigestError(Exception):
    """The content cannot be digested, so consent to it is not possible. The message is the reason."""


_digests: dict[str, tuple[object, str]] = {}


def content_digest(root: Path) -> str:
    """Return a digest of the names, modes and contents of all files at `root`. Raise UnboundError for a folder that is
    too large, cannot be read, or has a link that leads out of it."""
    try:
        files = list(_files(root))
        signature = tuple((name, *_signature(status)) for name, _, status in files)
        earlier = _digests.get(str(root))
        if earlier is not None and earlier[0] == signature:
            return earlier[1]
        now, digest = time.time_ns(), _digest(files)
    except OSError as error:
        raise NoDigestError(f"{error.filename or root} cannot be read: {error.strerror or error}") from error
    # A file that has just changed may change again without new times, so the digest is not cached yet.
    if all(status.st_ctime_ns < now - _SETTLED_NANOSECONDS for _, _, status in files):
        _digests[str(root)] = (signature, digest)
    return digest


def _signature(status: os.stat_result) -> tuple[int, ...]:
    """Return values of which one changes with every change of a file: programs cannot set `st_ctime`."""
    return status.st_mode, status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _files(root: Path) -> Iterator[tuple[str, Path, os.stat_result]]:
    """Yield every file below `root`, in an order that does not depend on the file system."""
    base = root.resolve()
    if not root.is_dir():
        yield root.name, root, root.stat()
        return
    number = size = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - _CACHE_FOLDERS)
        here = Path(folder)
        # Links to folders are not followed, but one that leads out must be refused.
        for name in folders:
            if (here / name).is_symlink():
                names.append(name)
        for name in sorted(names):
            path = here / name
            if path.is_symlink() and base not in path.resolve().parents:
                raise NoDigestError(f"{path.relative_to(root)} is a link that leads out of the plugin")
            status = path.stat()
            if path.is_symlink() and not stat.S_ISREG(status.st_mode):
                # A link to a folder inside the plugin, whose files are listed there.
                continue
            if not stat.S_ISREG(status.st_mode):
                raise NoDigestError(f"{path.relative_to(root)} is not a file")
            number, size = number + 1, size + status.st_size
            if number > MAX_PLUGIN_FILES or size > MAX_FOLDER_BYTES:
                raise NoDigestError(
                    f"it has more than {MAX_PLUGIN_FILES} files or {MAX_FOLDER_BYTES // 1024 // 1024} MiB"
                )
            yield str(path.relative_to(root)), path, status


def _digest(files: list[tuple[str, Path, os.stat_result]]) -> str:
    digest = hashlib.sha256()
    for name, path, status in files:
        content = hashlib.sha256(read_file(path, MAX_FOLDER_BYTES)).hexdigest()
        runs = "x" if status.st_mode & stat.S_IXUSR else "-"
        digest.update(f"{len(name)} {name} {runs} {content}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def subjects(plugins: Iterable[Plugin]) -> list[TrustSubject]:
    """Return the plugins of a project that run something, as subjects of consent."""
    trust_subjects: list[TrustSubject] = []
    for plugin in plugins:
        if plugin.provenance != "person" and plugin.rights:
            with suppress(NoDigestError):
                trust_subjects.append(
                    TrustSubject(plugin.path, (content_digest(plugin.path),), tuple(what_runs(plugin)))
                )
    return trust_subjects


def what_runs(plugin: Plugin) -> list[str]:
    """Return the parts of a plugin that need consent, one line each."""
    lines = [f"Python code: {code}" for code in plugin.code]
    for table in plugin.hooks:
        subject = settings_subject(table.path, {"hooks": table.value}, b"")
        if subject is not None:
            lines += subject.what
    for table in plugin.servers:
        for name, raw in table.value.items():
            lines.append(f"MCP server {name}: {describe_program(raw) if isinstance(raw, Mapping) else raw}")
    return lines
