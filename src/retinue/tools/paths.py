"""Confined paths, which are resolved and checked before they are opened, and opened without following a link.

Links, `..`, `~` and absolute paths are resolved to their real path. A confined path holds no
symbolic link. It is then walked folder by folder with descriptors and O_NOFOLLOW, starting at its
root, so that a link put in place between the check and the opening is refused as well. Where the
system has no such calls (Windows), the checked path is opened by name.

`Reaching` gives the file tools of one run a folder outside of the workspace: a memory, the files of a skill. Shells,
searches and other runs do not reach it. A call that leads into such a folder is confined to it and nothing else, so a
link that is put there meanwhile leads nowhere. A tool that has `only` its folders can touch nothing in the workspace.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Self

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.messages import Text
from retinue.core.tool import Tool, ToolContext, ToolOutput, failed
from retinue.tools.base import PATH_NAMES, ToolError
from retinue.tools.safe_dir import BY_DESCRIPTOR, OPEN_FILE, OPEN_FOLDER, open_inner

_PATH_PARAMETERS = ("path", *PATH_NAMES)
After = Callable[[Path], str]
"""Returns a note for the model about a file that it has just written."""
Beyond = Callable[[str], Path | None]
"""Returns the readable folder outside of the workspace that contains a resolved path."""


class Reaching:
    """A file tool that also reaches `folders`, which are real paths. `inner` is read, write or edit. If the tool is for
    these folders only, `only` states their purpose."""

    def __init__(
        self,
        inner: Tool,
        folders: tuple[Path, ...],
        *,
        beyond: Beyond | None = None,
        only: str = "",
        after: After | None = None,
    ) -> None:
        self.inner = inner
        self.spec = inner.spec
        self.only = only
        self._folders = folders
        self._beyond = beyond
        self._after = after

    def target(self, arguments: Mapping[str, Any], root: Path, house: str = "") -> tuple[Path, Path] | None:
        """Return the folder outside of the workspace that a call leads into, and the path in it."""
        text = _path(arguments)
        if text is None:
            return None
        if house and (text == "~" or text.startswith("~/")):
            text = house + text[1:]
        # Links are resolved here, and the inner tool then refuses any that appear later.
        path = os.path.realpath(root / text)
        target = _inside(path, self._folders)
        if target is None and self._beyond is not None and not path.startswith(f"{root}{os.sep}"):
            folder = self._beyond(path)
            if folder is not None:
                target = folder, Path(path)
        if target is not None or Path(text).is_absolute():
            return target
        if self.only:
            first = self._folders[:1]
            return _inside(os.path.realpath(first[0] / text), self._folders) if first else None
        if "write" in self.spec.effects or (root / text).exists():
            return None
        # A relative path is looked up in the folders, because an index names files beside it.
        for folder in self._folders:
            target = _inside(os.path.realpath(folder / text), (folder,))
            if target is not None and target[1].is_file():
                return target
        return None

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        target = self.target(arguments, context.root, _home(context))
        if target is None:
            if self.only:
                return failed(f"{self.spec.name} is for {self.only} only: {', '.join(map(str, self._folders))}")
            return await self.inner.run(call_id, arguments, context)
        output = await self.inner.run(call_id, *_aimed(arguments, context, target))
        if output.is_error:
            return output
        path, content = target[1], list(output.content)
        if self._after is not None and (note := self._after(path)):
            content.append(Text(note))
        if self.only and "write" in self.spec.effects:
            content.append(Text(f"This is {self.only}: {path}. {self.spec.name} reaches no file of the workspace."))
        return replace(output, content=tuple(content))


class ReachingWriter(Reaching):
    """A `Reaching` whose inner tool can preview its changes."""

    async def preview(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        target = self.target(arguments, context.root, _home(context))
        if target is not None:
            arguments, context = _aimed(arguments, context, target)
        preview = getattr(self.inner, "preview", None)
        return str(await preview(arguments, context)) if preview is not None else ""


def label(tool: Tool) -> str:
    """Return the name of a tool in the log. A tool that reaches only a memory has a different label, so that a child
    does not inherit a right to the full tool."""
    if isinstance(tool, Reaching) and tool.only:
        return f"{tool.spec.name} (memory only)"
    return tool.spec.name


def _path(arguments: Mapping[str, Any]) -> str | None:
    text = next((arguments[name] for name in _PATH_PARAMETERS if arguments.get(name) is not None), None)
    return text if isinstance(text, str) and text and _is_name(text) else None


def _is_name(text: str) -> bool:
    """Return whether a text can be a path. The system cannot encode an unpaired surrogate from JSON."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _aimed(
    arguments: Mapping[str, Any], context: ToolContext, target: tuple[Path, Path]
) -> tuple[dict[str, Any], ToolContext]:
    """Return the arguments and context of a call that is confined to one folder."""
    folder, path = target
    others = {name: value for name, value in arguments.items() if name not in _PATH_PARAMETERS}
    return {**others, "path": str(path)}, replace(context, roots=(folder,))


def _inside(path: str, folders: Iterable[Path]) -> tuple[Path, Path] | None:
    for folder in folders:
        if path.startswith(f"{folder}{os.sep}"):
            return folder, Path(path)
    return None


def _home(context: ToolContext) -> str:
    return context.environment.get("HOME") or str(Path.home())


_DETOURS = frozenset({"", ".", ".."})
_folded = str if os.sep == "/" else os.path.normcase


class Confined(Struct, frozen=True):
    """A path that was inside `root` when it was resolved. `shown` is its name for a model: relative to the working
    directory if it is inside."""

    root: Path
    real: str
    """The path as text, which is enough for most callers."""
    shown: str

    @property
    def path(self) -> Path:
        return Path(self.real)

    @property
    def parts(self) -> tuple[str, ...]:
        below = _below(self.real, self.root)
        if not below:
            return ()
        return tuple(below.split(os.sep))  # noqa: PTH206 - see _below


def confine(text: str, context: ToolContext, *, writing: bool = False) -> Confined:
    """Return the confined path of `text`, or raise ToolError if tools may not use it. Reading may also use the run's
    stored outputs and the transcripts of its children, because results name them."""
    path = _resolve(text, context)
    for root in context.roots:
        if _below(path, root) is not None:
            return Confined(root, path, shown(path, context))
    if not writing:
        outputs = Path(os.path.realpath(context.outputs))
        if _below(path, outputs) is not None:
            return Confined(outputs, path, shown(path, context))
        if path in map(os.path.realpath, context.transcripts()):
            return Confined(Path(path).parent, path, shown(path, context))
    allowed = ", ".join(map(str, context.roots))
    where = f"{text!r} leads to {path}, which is" if path != text else f"{text} is"
    if context.instead is not None and (below := _below(path, context.instead[0])) is not None:
        right = context.instead[1] / below
        raise ToolError(f"{where} in the main checkout, which this run must not touch. Use its copy: {right}")
    raise ToolError(f"{where} outside the workspace. Use a path inside: {allowed}")


def as_written(text: str, context: ToolContext) -> Confined | None:
    """Return the confined path of `text` if it is a plain path below the working directory. Links are not checked here,
    because opening it part by part refuses them. Return None for a path with detours, which `confine` resolves."""
    root = context.root
    path = os.path.join(root, text)  # noqa: PTH118
    below = _straight_below(path, root)
    if below is None or "\0" in text or text.startswith("~"):
        return None
    return Confined(root, path, visible(below))


def shown(path: Path | str, context: ToolContext) -> str:
    """Return the name of a path for a model: relative to the working directory if it is inside."""
    below = _below(str(path), context.root)
    return visible(str(path)) if below is None else visible(below or ".")


def visible(name: str) -> str:
    """Return a file name without hidden characters: control characters are escaped, so that no name can
    pose as another line of a result, and bytes that are not valid text are replaced."""
    if name.isprintable():
        return name
    name = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(map(_printable, name))


def _printable(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()


def _below(path: str, root: Path) -> str | None:
    """Return the part of `path` below `root`: "" for the root itself, None for a path outside. Neither path has
    links."""
    # Compared as text: Path objects took most of the time of a small read.
    folded, start = _folded(path), _folded(str(root))
    if folded == start:
        return ""
    start = start.rstrip(os.sep) + os.sep
    return path[len(start) :] if folded.startswith(start) else None


def _resolve(text: str, context: ToolContext) -> str:
    if "\0" in text:
        raise ToolError("The path holds a NUL character. Send a plain path.")
    if not _is_name(text):
        raise ToolError("The path holds characters that no file name can have. Send a plain path.")
    if text == "~" or text.startswith("~/"):
        text = (context.environment.get("HOME") or str(Path.home())) + text[1:]
    path = os.path.join(context.root, text)  # noqa: PTH118
    # Path.resolve raises on loops.
    return path if _is_plain(path, context.root) else os.path.realpath(path)


def _is_plain(path: str, root: Path) -> bool:
    """Return whether `path` is its own real path: below the root, which is real, without detours and
    links. Only the part below the root is checked. A doubtful path is not plain."""
    below = _straight_below(path, root)
    if below is None:
        return False
    start = f"{root}{os.sep}"
    try:
        for name in below.split("/"):
            start += name
            if stat.S_ISLNK(os.lstat(start).st_mode):
                return False
            start += "/"
    except OSError:
        return False
    return True


def _straight_below(path: str, root: Path) -> str | None:
    """Return the part of `path` below the root, if it has only names and no detours."""
    start = f"{root}{os.sep}"
    if os.sep != "/" or not path.startswith(start):
        return None
    below = path[len(start) :]
    return below if _DETOURS.isdisjoint(below.split("/")) else None


_OPEN_PASSAGE = OPEN_FOLDER | getattr(os, "O_PATH", 0)

_IRREGULAR_FILE_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a symbolic link that changed just now"),
)


class FolderEntry(Struct, frozen=True):
    """A name in an open folder, for `os` functions with `dir_fd`. Use it in a `with` statement, which closes the
    folder. Where paths are opened by name, `folder` is None and `name` is the complete path."""

    folder: int | None
    name: str

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.folder is not None:
            os.close(self.folder)

    def stat(self) -> os.stat_result | None:
        """Return the status of the entry without following links; None if it does not exist."""
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None


def open_parent(confined: Confined, *, create: bool = False) -> FolderEntry:
    """Return `confined` as a name in its open parent folder; `create` makes the folders above it."""
    parts = confined.parts
    if not parts:
        raise ToolError(f"{confined.shown} is the workspace folder itself, not a file.")
    if not BY_DESCRIPTOR:
        if create:
            confined.path.parent.mkdir(parents=True, exist_ok=True)
        return FolderEntry(None, confined.real)
    return FolderEntry(_walk(confined, parts[:-1], create), parts[-1])


def _walk(confined: Confined, parts: tuple[str, ...], create: bool) -> int:
    folder = os.open(confined.root, _OPEN_PASSAGE)
    for name in parts:
        try:
            inner = open_inner(folder, name, _OPEN_PASSAGE, make=0o777 if create else None)
        finally:
            os.close(folder)
        folder = inner
    return folder


def open_regular(where: FolderEntry, confined: Confined) -> int:
    """Return a descriptor to read a regular file. Pipes, devices and folders are refused before they
    are opened, because opening them alone may block or have effects."""
    return _open_regular(where, confined)[0]


def read_little(confined: Confined, most: int) -> bytes | None:
    """Return the whole of a regular file that has fewer than `most` bytes; None for a larger one."""
    with open_parent(confined) as where:
        descriptor, size = _open_regular(where, confined)
    try:
        data = os.read(descriptor, most)
        complete = len(data) < most and (len(data) == size or not os.read(descriptor, 1))
        return data if complete else None
    finally:
        os.close(descriptor)


def _open_regular(where: FolderEntry, confined: Confined) -> tuple[int, int]:
    status = where.stat()
    if status is None:
        raise FileNotFoundError(2, "No such file or directory", confined.shown)
    refuse_irregular(status, confined)
    descriptor = os.open(where.name, OPEN_FILE, dir_fd=where.folder)
    try:
        opened = os.fstat(descriptor)
        # Checked again, because the name may lead to another file by now.
        refuse_irregular(opened, confined)
    except ToolError:
        os.close(descriptor)
        raise
    return descriptor, opened.st_size


def refuse_irregular(status: os.stat_result, confined: Confined) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise ToolError(f"{confined.shown} is a folder. List it with ls, or name a file in it.")
    kind = next((label for test, label in _IRREGULAR_FILE_KINDS if test(status.st_mode)), "not a regular file")
    raise ToolError(f"{confined.shown} is {kind}, not a regular file. It cannot be read or written with this tool.")


def list_folder(confined: Confined, most: int) -> list[os.DirEntry[str]]:
    """Return at most `most` entries of a folder, in no order; links are not followed."""
    if not BY_DESCRIPTOR:
        with os.scandir(confined.path) as entries:
            return list(islice(entries, most))
    if confined.parts:
        with open_parent(confined) as where:
            descriptor = os.open(where.name, OPEN_FOLDER, dir_fd=where.folder)
    else:
        descriptor = os.open(confined.root, OPEN_FOLDER)
    try:
        with os.scandir(descriptor) as entries:
            return list(map(_load_kind, islice(entries, most)))
    finally:
        os.close(descriptor)


def _load_kind(entry: os.DirEntry[str]) -> os.DirEntry[str]:
    """Load the kind while the descriptor is open. Some file systems do not list it, and the entry caches it."""
    entry.is_dir(follow_symlinks=False)
    return entry


_MAX_NAMES = 500
_MAX_COUNTED = 100_000


def folder_listing(confined: Confined) -> str:
    """Return the names in a folder, a line each. Raise ToolError if it is not a folder."""
    try:
        entries = list_folder(confined, _MAX_COUNTED)
    except FileNotFoundError:
        raise ToolError(f"{confined.shown} does not exist. List the folder above it, or use find.") from None
    except NotADirectoryError:
        raise ToolError(f"{confined.shown} is not a folder. Use read to see a file.") from None
    if not entries:
        return "(empty folder)"
    names = sorted(map(_marked_name, entries))
    if len(names) <= _MAX_NAMES:
        return "\n".join(names)
    total = f"{len(names):,}{'+' if len(names) == _MAX_COUNTED else ''}"
    return "\n".join(
        [*names[:_MAX_NAMES], f"[{_MAX_NAMES} of {total} entries; use find with a pattern for the others]"]
    )


def _marked_name(entry: os.DirEntry[str]) -> str:
    mark = "/" if entry.is_dir(follow_symlinks=False) else ""
    return visible(entry.name) + ("@" if entry.is_symlink() else mark)
