"""The known language servers, and the source files of a project that each of them reads.

Settings (`lsp.servers`) change the servers or add others. Programs are searched on the PATH and beside our own
interpreter, where the extra `lsp` installs one for Python. They are never searched in the project, whose programs must
not be started just because an agent looks at a file.

Servers cache files and expect their client to report changes on the disk. Agents change files all the time, so the
files are checked before every question."""

from __future__ import annotations

import os
import shutil
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.install import install_command


class ServerKind(Struct, frozen=True):
    """A language server. `languages` maps file name extensions to the protocol's language ids. `runs_code`: it may
    start programs of the project (build scripts, plugins), so it needs a sandbox."""

    name: str
    argv: tuple[str, ...]
    languages: Mapping[str, str]
    markers: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    """Sent when it starts, as `initializationOptions`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Its configuration by section, sent when it asks for it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    runs_code: bool = True
    install: str = ""
    """The command that installs it, or the name of what to install."""
    extra: str = ""
    """The optional part of Retinue that installs it."""
    enabled: bool = True

    @property
    def how_to_install(self) -> str:
        # Computed on demand, because it looks up how Retinue was installed, which takes time.
        return install_command(self.extra) if self.extra else self.install

    def handles(self, name: str) -> bool:
        """Return whether it reads files with this name."""
        return os.path.splitext(name)[1].lower() in self.languages or name in self.languages  # noqa: PTH122

    def language(self, path: Path) -> str:
        return self.languages.get(path.name) or self.languages.get(path.suffix.lower(), "plaintext")

    def program(self, search: str | None) -> str | None:
        """Return the program to start; None when it is not installed. `search` is the PATH to look in."""
        program = shutil.which(self.argv[0], path=search)
        # The extra `lsp` installs a server beside our interpreter, whose folder may not be on the PATH.
        if program is None and sys.executable:
            program = shutil.which(self.argv[0], path=str(Path(sys.executable).parent))
        return program


_PYTHON_LANGUAGES = {".py": "python", ".pyi": "python"}
_PYTHON_ROOTS = ("pyproject.toml", "ty.toml", "setup.py", "setup.cfg", "pyrightconfig.json", "requirements.txt")
_WEB_LANGUAGES = {
    **dict.fromkeys((".ts", ".mts", ".cts"), "typescript"),
    **dict.fromkeys((".js", ".mjs", ".cjs"), "javascript"),
    ".tsx": "typescriptreact",
    ".jsx": "javascriptreact",
}
_WEB_ROOTS = ("tsconfig.json", "jsconfig.json", "package.json")
_C_LANGUAGES = {
    **dict.fromkeys((".c",), "c"),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".hxx"), "cpp"),
    ".m": "objective-c",
    ".mm": "objective-cpp",
}
_RUST_SETTINGS = {"cargo": {"buildScripts": {"enable": False}}, "procMacro": {"enable": False}, "checkOnSave": False}

KNOWN_SERVERS: tuple[ServerKind, ...] = (
    ServerKind(
        "ty",
        ("ty", "server"),
        _PYTHON_LANGUAGES,
        _PYTHON_ROOTS,
        options={"diagnosticMode": "workspace"},
        settings={"ty": {"diagnosticMode": "workspace"}},
        runs_code=False,
        extra="lsp",
    ),
    ServerKind(
        "basedpyright",
        ("basedpyright-langserver", "--stdio"),
        _PYTHON_LANGUAGES,
        _PYTHON_ROOTS,
        runs_code=False,
        install="pip install basedpyright",
    ),
    ServerKind(
        "pyright",
        ("pyright-langserver", "--stdio"),
        _PYTHON_LANGUAGES,
        _PYTHON_ROOTS,
        runs_code=False,
        install="pip install pyright",
    ),
    ServerKind("pylsp", ("pylsp",), _PYTHON_LANGUAGES, _PYTHON_ROOTS, install="pip install python-lsp-server"),
    ServerKind(
        "typescript",
        ("typescript-language-server", "--stdio"),
        _WEB_LANGUAGES,
        _WEB_ROOTS,
        install="npm install -g typescript typescript-language-server",
    ),
    ServerKind(
        "vue",
        ("vue-language-server", "--stdio"),
        {".vue": "vue"},
        _WEB_ROOTS,
        install="npm install -g @vue/language-server",
    ),
    ServerKind(
        "svelte",
        ("svelteserver", "--stdio"),
        {".svelte": "svelte"},
        ("svelte.config.js", *_WEB_ROOTS),
        install="npm install -g svelte-language-server",
    ),
    ServerKind(
        "gopls",
        ("gopls",),
        {".go": "go", "go.mod": "go.mod"},
        ("go.work", "go.mod"),
        install="go install golang.org/x/tools/gopls@latest",
    ),
    ServerKind(
        "rust-analyzer",
        ("rust-analyzer",),
        {".rs": "rust"},
        ("Cargo.toml", "rust-project.json"),
        options=_RUST_SETTINGS,
        settings={"rust-analyzer": _RUST_SETTINGS},
        install="rustup component add rust-analyzer",
    ),
    ServerKind(
        "clangd",
        ("clangd", "--background-index=false"),
        _C_LANGUAGES,
        ("compile_commands.json", "compile_flags.txt", ".clangd", "CMakeLists.txt", "Makefile"),
        runs_code=False,
        install="apt install clangd, or the package of your system",
    ),
    ServerKind(
        "dart",
        ("dart", "language-server", "--protocol=lsp"),
        {".dart": "dart"},
        ("pubspec.yaml",),
        install="the Dart SDK",
    ),
    ServerKind(
        "kotlin",
        ("kotlin-language-server",),
        {".kt": "kotlin", ".kts": "kotlin"},
        ("settings.gradle.kts", "settings.gradle", "build.gradle.kts", "build.gradle", "pom.xml"),
        install="kotlin-language-server",
    ),
    ServerKind(
        "swift",
        ("sourcekit-lsp",),
        {".swift": "swift"},
        ("Package.swift",),
        install="the Swift toolchain",
    ),
    ServerKind(
        "java",
        ("jdtls",),
        {".java": "java"},
        ("pom.xml", "build.gradle", "build.gradle.kts", "settings.gradle"),
        install="jdtls",
    ),
    ServerKind("zig", ("zls",), {".zig": "zig"}, ("build.zig",), install="zls"),
    ServerKind(
        "lua",
        ("lua-language-server",),
        {".lua": "lua"},
        (".luarc.json", ".git"),
        runs_code=False,
        install="lua-language-server",
    ),
    ServerKind("ruby", ("ruby-lsp",), {".rb": "ruby"}, ("Gemfile",), install="gem install ruby-lsp"),
    ServerKind(
        "bash",
        ("bash-language-server", "start"),
        {".sh": "shellscript", ".bash": "shellscript"},
        runs_code=False,
        install="npm install -g bash-language-server",
    ),
)


def server_kinds(configured: Mapping[str, Mapping[str, Any]]) -> tuple[ServerKind, ...]:
    """Return the known servers, changed and extended by the settings. Servers of the settings come first, because they
    are preferred. A new one without command or languages is left out."""
    by_name = {kind.name: kind for kind in KNOWN_SERVERS}
    own = {}
    for name, values in configured.items():
        kind = _configure(by_name.get(name) or ServerKind(name, (), {}), values)
        if kind.argv and kind.languages:
            own[name] = kind
    return (*own.values(), *(kind for kind in KNOWN_SERVERS if kind.name not in own))


def _configure(kind: ServerKind, values: Mapping[str, Any]) -> ServerKind:
    changes: dict[str, Any] = {}
    # A program that the user names may run code of the project.
    if values.get("command"):
        changes |= {"argv": tuple(values["command"]), "runs_code": True}
    if values.get("languages"):
        changes["languages"] = {_normalize_extension(key): value for key, value in values["languages"].items()}
    if "rootMarkers" in values:
        changes["markers"] = tuple(values["rootMarkers"])
    for key, attribute in (("initializationOptions", "options"), ("env", "environment"), ("settings", "settings")):
        if key in values:
            changes[attribute] = dict(values[key])
    if values.get("disabled"):
        changes["enabled"] = False
    return replace(kind, **changes)


def _normalize_extension(text: str) -> str:
    """Return `.py` for `.py`, `py` and `*.py`; a whole file name is returned unchanged."""
    plain = text.removeprefix("*")
    return plain if plain.startswith(".") or "." in plain else f".{plain}"


def for_file(kinds: Iterable[ServerKind], path: Path) -> list[ServerKind]:
    return [kind for kind in kinds if kind.enabled and kind.handles(path.name)]


def root_of(kind: ServerKind, path: Path, workspace: Path) -> Path:
    """Return the root of the project of a file: the nearest folder above it with a marker, never outside of the
    workspace. Without any marker it is the workspace."""
    folder = path.parent
    while folder != workspace and workspace in folder.parents:
        if any((folder / marker).exists() for marker in kind.markers):
            return folder
        folder = folder.parent
    return workspace


MAX_WATCHED_FILES = 50_000
MAX_ROOTS = 8
UNWATCHED_FOLDERS = frozenset(
    ".git .hg .svn .venv venv node_modules target build dist __pycache__ .tox .nox .mypy_cache .ruff_cache "
    ".pytest_cache .idea .gradle .dart_tool .next .nuxt .cache site-packages".split()
)

FileVersion = tuple[int, int]
"""Time and size of a file, which tell its versions apart."""
Change = tuple[Path, Literal[1, 2, 3]]
"""A file that was created (1), changed (2) or deleted (3)."""


class Inventory(Struct):
    """The files of one server's languages below one root, at the time of the last scan."""

    kind: ServerKind
    root: Path
    files: dict[str, FileVersion] | None = None

    def scan(self) -> list[Change]:
        """Return the changes since the last scan; none at the first. Reads the disk: call it in a thread."""
        files: dict[str, FileVersion] = {}
        complete = True
        for entry in walk(self.root):
            if not self.kind.handles(entry.name) and entry.name not in self.kind.markers:
                continue
            try:
                if not entry.is_file(follow_symlinks=False):
                    continue
                stat = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # deleted meanwhile
            if len(files) >= MAX_WATCHED_FILES:
                complete = False
                break
            files[entry.path] = (stat.st_mtime_ns, stat.st_size)
        before, self.files = self.files, files
        if before is None:
            return []
        changes: list[Change] = [(Path(path), 1) for path in files if path not in before]
        changes += [
            (Path(path), 2) for path, version_mark in files.items() if before.get(path, version_mark) != version_mark
        ]
        # After an incomplete scan, a missing file may just not have been reached.
        if complete:
            changes += [(Path(path), 3) for path in before if path not in files]
        return changes

    def sources(self) -> list[Path]:
        """Return the source files of the last scan, in order."""
        return [path for path in map(Path, sorted(self.files or ())) if self.kind.handles(path.name)]


def find_projects(kinds: Sequence[ServerKind], workspace: Path) -> list[tuple[ServerKind, Path]]:
    """Return the projects in a workspace: the servers for its files, each with a root."""
    projects: dict[tuple[str, Path], ServerKind] = {}
    for number, entry in enumerate(walk(workspace)):
        if number > MAX_WATCHED_FILES or len(projects) >= MAX_ROOTS:
            break
        for kind in kinds:
            if kind.handles(entry.name):
                projects.setdefault((kind.name, root_of(kind, Path(entry.path), workspace)), kind)
    return [(kind, root) for (_, root), kind in projects.items()]


def walk(root: Path) -> Iterator[os.DirEntry[str]]:
    """Yield everything below `root` that is not a folder, nearest first. Links to folders are not followed."""
    folders = deque([str(root)])
    while folders:
        try:
            with os.scandir(folders.popleft()) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    if not entry.is_dir(follow_symlinks=False):
                        yield entry
                    elif entry.name not in UNWATCHED_FOLDERS:
                        folders.append(entry.path)
        except OSError:
            continue  # deleted or unreadable, also for the server
