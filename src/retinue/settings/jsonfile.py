"""Reading a JSON object that a person may have damaged. Never raises, never creates anything."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

EMPTY = "is empty"
MAX_BYTES = 4 * 1024 * 1024


class JsonObject(NamedTuple):
    """`data` is {} when there is no usable file; `problem` says why, and is None when the file
    is simply not there. `signature` changes whenever the file does."""

    data: dict[str, Any]
    problem: str | None = None
    signature: tuple[int, int, int] | None = None


def read_object(path: Path, *, exact: bool = False) -> JsonObject:
    """`exact` keeps numbers of any size as they are, for whoever writes the file back."""
    try:
        # Non-blocking, so that a FIFO in the file's place cannot hang the program.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (FileNotFoundError, NotADirectoryError):
        return JsonObject({})
    except (OSError, ValueError) as error:
        return JsonObject({}, f"cannot be read: {getattr(error, 'strerror', None) or error}")
    try:
        status = os.fstat(handle)
        signature = (status.st_mtime_ns, status.st_size, status.st_ino)
        if not stat.S_ISREG(status.st_mode):
            return JsonObject({}, "is not a regular file", signature)
        if status.st_size > MAX_BYTES:
            return JsonObject({}, f"is larger than {MAX_BYTES // 1024 // 1024} MiB", signature)
        with os.fdopen(os.dup(handle), "rb") as stream:
            data, problem = parse_object(stream.read(MAX_BYTES), exact=exact)
        return JsonObject(data, problem, signature)
    except OSError as error:
        return JsonObject({}, f"cannot be read: {error.strerror or error}")
    finally:
        os.close(handle)


def parse_object(text: bytes, *, exact: bool = False) -> tuple[dict[str, Any], str | None]:
    text = text.removeprefix(b"\xef\xbb\xbf")
    if not text.strip():
        return {}, EMPTY
    data, problem = _parse_exactly(text) if exact else _parse(text)
    if problem is not None:
        return {}, problem
    return (data, None) if isinstance(data, dict) else ({}, "does not hold a JSON object")


def _parse(text: bytes) -> tuple[Any, str | None]:
    import orjson

    try:
        return orjson.loads(text), None
    except orjson.JSONDecodeError:
        # The slower reader accepts NaN, which then falls as one bad value, and tells the line.
        return _parse_exactly(text)


def _parse_exactly(text: bytes) -> tuple[Any, str | None]:
    import json

    try:
        return json.loads(text.decode("utf-8")), None
    except json.JSONDecodeError as error:
        return None, f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
    except UnicodeDecodeError:
        return None, "is not UTF-8 text"
    except (ValueError, RecursionError):
        return None, "is not JSON that can be read"
