"""Reading of files and values from outside: files of a project, rows of a database, and where a value came from.

Files: regular files only, of limited size, without waiting. A clone can hold links to devices, and an unpacked archive
can hold pipes. Reading a device fills the memory, and opening a pipe waits for ever. Links are followed, because people
link their settings and agents; the target must be a regular file. `/dev/null` reads as an empty file, because mounting
it over a file is the usual way to hide the file.

Values: a value of one of the types below is checked where it is decoded (`decode_json`, `decode_row`, `check`), so that
later code can use it in a path, a git ref or an SQL identifier. Constructing a struct checks nothing: values of this
process are its own.

Provenance: definitions of agents, MCP servers, hooks, plugins, settings, skills and test files. Their reader records
the provenance, and `requirement` is the only place that turns a provenance into a decision.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, assert_never

import msgspec
from msgspec import Meta

from retinue.errors import StateError

MAX_FILE_BYTES = 10 * 1024 * 1024
NO_LIMIT = sys.maxsize
MAX_READ_SECONDS = 10.0
_CHUNK_BYTES = 1024 * 1024
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
_FILE_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


class FileRefusedError(OSError):
    """A file that is not read. `strerror` is the reason for people, `reason` for programs."""

    def __init__(self, reason: Literal["not-a-file", "too-large"], text: str, path: str) -> None:
        super().__init__(errno.EINVAL, text, path)
        self.reason = reason


def read_file(path: str | os.PathLike[str], max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of a regular file. Raise OSError; FileRefusedError for anything but a regular file, and for
    one of more than `max_bytes`."""
    return read_with_status(path, max_bytes)[0]


def read_head(path: str | os.PathLike[str], count: int) -> bytes:
    """Return the first `count` bytes of a regular file of any size. Raise OSError as `read_file` does."""
    descriptor, status = _open(path)
    try:
        return _read(descriptor, status, count, os.fspath(path))
    finally:
        os.close(descriptor)


def read_text(path: str | os.PathLike[str], max_bytes: int = MAX_FILE_BYTES, errors: str = "strict") -> str:
    """Return a regular file as UTF-8 text with plain line ends. Raise OSError as `read_file` does, and
    UnicodeDecodeError."""
    text = read_file(path, max_bytes).decode("utf-8", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_with_status(path: str | os.PathLike[str], max_bytes: int = MAX_FILE_BYTES) -> tuple[bytes, os.stat_result]:
    """Return the content of a regular file with its status from before it was read. Raise OSError as `read_file`."""
    descriptor, status = _open(path)
    try:
        # One byte more tells a file that just fits from one that has grown since.
        data = b"" if status.st_size > max_bytes else _read(descriptor, status, max_bytes + 1, os.fspath(path))
    finally:
        os.close(descriptor)
    size = max(status.st_size, len(data))
    if size > max_bytes:
        text = f"it has {size:,} bytes, and at most {max_bytes:,} are read"
        raise FileRefusedError("too-large", text, os.fspath(path))
    return data, status


def _open(path: str | os.PathLike[str]) -> tuple[int, os.stat_result]:
    try:
        # Non-blocking: opening a pipe returns at once.
        descriptor = os.open(path, _OPEN_FLAGS)
    except ValueError as error:  # a path with a NUL in it
        raise OSError(errno.EINVAL, str(error)) from None
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) or _is_null(status):
        return descriptor, status
    os.close(descriptor)
    kind = _FILE_KINDS.get(stat.S_IFMT(status.st_mode), "something else")
    raise FileRefusedError("not-a-file", f"it is {kind}, not a regular file", os.fspath(path))


def _is_null(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == os.stat(os.devnull).st_rdev  # noqa: PTH116 - quick


def _read(descriptor: int, status: os.stat_result, count: int, path: str) -> bytes:
    parts: list[bytes] = []
    unread = count
    deadline = time.monotonic() + MAX_READ_SECONDS
    # Files have their size and no more, in almost every case.
    size = min(unread, status.st_size + 1)
    while unread > 0 and (part := os.read(descriptor, size)):
        parts.append(part)
        unread -= len(part)
        size = min(unread, _CHUNK_BYTES)
        if time.monotonic() > deadline:
            text = f"it took longer than {MAX_READ_SECONDS:.0f} seconds to read"
            raise TimeoutError(errno.ETIMEDOUT, text, path)
    if parts and status.st_size == 0 and os.fstat(descriptor).st_size == 0:
        # Files of the kernel have no size; some tell secrets of this process, and some never end.
        raise FileRefusedError("not-a-file", "it is a file of the kernel, not a regular file", path)
    return b"".join(parts)


T = TypeVar("T")

RunId = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")]
ProjectName = Annotated[str, Meta(pattern=r"\A[a-z0-9_][a-z0-9_-]{0,47}\Z")]
"""As `settings.database.project_name` makes them."""
Commit = Annotated[str, Meta(pattern=r"\A(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")]
CommitOrNone = Annotated[str, Meta(pattern=r"\A(?:[0-9a-f]{40}|[0-9a-f]{64}|)\Z")]
PackName = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}(?:-[A-Za-z0-9][A-Za-z0-9_-]{0,63})?\Z")]
"""The SHA-256 of a pack of files, and the run that it belongs to."""
BranchName = Annotated[str, Meta(pattern=r"\A(?:retinue-agent-[A-Za-z0-9][A-Za-z0-9_-]{0,100})?\Z")]
WorkerId = Annotated[str, Meta(pattern=r"\A[0-9a-f]{24}\Z")]
QueueName = Annotated[str, Meta(pattern=r"\A(?:retinue-[0-9a-f]{12})?\Z")]
RemoteUrl = Annotated[str, Meta(pattern=r"\A(?!-)[^\x00-\x20\x7f-\x9f]{0,2000}\Z")]
"""A git repository. `engine.git_remote.check_url` decides whether it can be used."""
Word = Annotated[str, Meta(pattern=r"\A[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{0,255}\Z")]
"""A label, a provider, a version, a machine: shown to people and compared, never a path."""
Words = Annotated[tuple[Word, ...], Meta(max_length=256)]
MAX_TEXT_CHARACTERS = 1 << 20
Text = Annotated[str, Meta(max_length=MAX_TEXT_CHARACTERS)]
"""For people or models, never a path."""
AttemptNumber = Annotated[int, Meta(ge=1, le=2**31 - 2)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]

MAX_JSON_CHARACTERS = 1 << 18
"""Of one JSON value in a column: the largest, the profile of a worker, has about 600."""


class UnreadableValueError(StateError):
    """A value of a database is not of the type that its column has."""


def decode_json(text: object, kind: type[T], where: str, max_characters: int = MAX_JSON_CHARACTERS) -> T:
    """Return the JSON value of a column. Raise UnreadableValueError."""
    if not isinstance(text, str) or len(text) > max_characters:
        raise UnreadableValueError(f"{where} cannot be read: it is no text, or too long.")
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UnreadableValueError(f"{where} cannot be read: {error}.") from None


def decode_row(values: Mapping[str, object], kind: type[T], where: str) -> T:
    """Return a row as a struct whose fields have the names of its columns. Raise UnreadableValueError."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise UnreadableValueError(f"{where} cannot be read: {error}.") from None


def check(value: object, kind: Any, where: str) -> None:
    """Raise UnreadableValueError unless `value` is of that type."""
    decode_row(value, kind, where)  # type: ignore[arg-type]


def is_valid(value: object, kind: Any) -> bool:
    """Return whether `value` is of that type."""
    try:
        check(value, kind, "")
    except UnreadableValueError:
        return False
    return True


Provenance = Literal["person", "project", "plugin", "machine", "recording"]
"""`person`: this user, on this machine: own files, flags, programs that use the library, and what Retinue ships.
`project`: files of the project, which a repository may have brought. `plugin`: an agent's file in a plugin.
`machine`: another machine, by way of a shared database. `recording`: a test file or a recorded run."""

Right = Literal["hooks", "servers", "extensions", "permissions", "shell", "commands", "folders", "git", "settings"]
"""`hooks`: programs at events. `servers`: MCP and language servers. `extensions`: Python code of plugins.
`permissions`: allow rules, allowed tools and permission modes. `shell`: a shell on a host without a sandbox.
`commands`: shell lines of command files. `folders`: folders outside of the workspace. `git`: programs that git starts.
`settings`: every other setting that widens rights."""

Requirement = Literal["none", "consent", "operator", "never"]
"""`none`: it takes effect. `consent`: a person has consented to exactly this content. `operator`: whoever started
this worker allows senders the right (`retinue worker --allow`). `never`: it has no effect."""

OPERATOR_RIGHTS: tuple[Right, ...] = ("hooks", "servers", "extensions", "permissions", "shell")
"""What the operator of a worker may allow senders. The rest would give away files, keys or the worker's settings."""


def requirement(provenance: Provenance, right: Right) -> Requirement:
    """Return what it takes before a value of this provenance gives `right`."""
    match provenance:
        case "person":
            return "none"
        case "project" | "recording":
            return "consent"
        case "plugin":
            return "never"
        case "machine":
            return "operator" if right in OPERATOR_RIGHTS else "never"
        case _:
            assert_never(provenance)
