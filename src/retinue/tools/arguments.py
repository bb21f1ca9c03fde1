"""The border where a model's arguments come in: liberal in what it accepts, exact in what it says.

The loop has already put a call into the tool's own form (`loop/spellings.py`). For a tool that a
program calls, the readers here accept the canonical name and its other spellings. What cannot be
understood raises a `ToolError` that says what to send; outside this package it is a failed result.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from typing import Any

_REASONS = {
    errno.ENOENT: "it does not exist",
    errno.EACCES: "permission was denied by the operating system",
    errno.EPERM: "the operating system does not permit it",
    errno.EISDIR: "it is a folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "it is or became a symbolic link that cannot be followed safely; try again",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EBUSY: "it is in use by the system",
    errno.EMFILE: "too many files are open; try again",
    errno.ENFILE: "too many files are open; try again",
    errno.EIO: "the disk reported an error",
}


class ToolError(Exception):
    """A call that cannot be done as asked. Its text tells the model how to go on."""


def explain(error: OSError, what: str) -> str:
    """`what` could not be done, and the reason in words instead of an errno."""
    reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
    return f"{what}: {reason}."


PATH_NAMES = ("file_path", "filePath", "filepath", "file", "filename", "absolute_path", "target_file", "notebook_path")
FOLDER_NAMES = ("directory", "dir", "dir_path", "folder", "cwd", "root", *PATH_NAMES)

_TRUE = frozenset({"true", "yes", "1", "on"})
# An empty text is what some models send for a flag they leave out.
_FALSE = frozenset({"false", "no", "0", "off", ""})


class Arguments:
    """The arguments of one call of `tool`. None and absent are the same everywhere."""

    def __init__(
        self, tool: str, values: Mapping[str, Any], aliases: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        self._tool = tool
        self._values = values
        self._aliases = aliases or {}

    def find(self, name: str, *others: str) -> Any:
        """The value under the canonical name or, failing that, under another spelling."""
        for key in (name, *others, *self._aliases.get(name, ())):
            if self._values.get(key) is not None:
                return self._values[key]
        return None

    def text(self, name: str, *others: str) -> str:
        """A required string that is not empty."""
        value = self.optional_text(name, *others)
        if value is None:
            raise ToolError(f'{self._tool} needs "{name}": {self._hint()}')
        return value

    def optional_text(self, name: str, *others: str) -> str | None:
        """A string, or None when absent or empty."""
        value = self.find(name, *others)
        if isinstance(value, str):
            return value or None
        if value is None:
            return None
        raise self.wrong(name, "a string", value)

    def whole(self, name: str, *others: str, least: int = 0) -> int | None:
        """A whole number that is at least `least`; strings and 3.0 count."""
        value = self.number(name, *others)
        if value is None:
            return None
        if value != int(value) or value < least:
            raise self.wrong(name, f"a whole number of at least {least}", value)
        return int(value)

    def number(self, name: str, *others: str) -> float | None:
        value = self.find(name, *others)
        if value is None or value == "":
            return None
        # True is a number to Python, but never what a model means by one.
        if isinstance(value, bool):
            raise self.wrong(name, "a number", value)
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise self.wrong(name, "a number", value) from None
        # NaN is unequal to itself.
        if number != number or number in (float("inf"), float("-inf")):
            raise self.wrong(name, "a number", value)
        return number

    def flag(self, name: str, *others: str) -> bool:
        value = self.find(name, *others)
        if value is None or isinstance(value, bool):
            return bool(value)
        word = str(value).strip().lower()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
        raise self.wrong(name, "true or false", value)

    def choice(self, name: str, *others: str, allowed: Mapping[str, str], default: str) -> str:
        """One of the words in `allowed`, which maps every accepted spelling to its meaning."""
        value = self.find(name, *others)
        if value is None or value == "":
            return default
        word = str(value).strip().lower()
        if word not in allowed:
            raise self.wrong(name, "one of " + ", ".join(dict.fromkeys(allowed.values())), value)
        return allowed[word]

    def items(self, name: str) -> list[Any] | None:
        """A list; a JSON string of one counts, and a lone object is a list of one."""
        value = self.find(name)
        if isinstance(value, str) and value.strip():
            try:
                value = json.loads(value)
            except ValueError:
                raise self.wrong(name, "a list", value) from None
        if value is None or isinstance(value, list):
            return value
        if isinstance(value, Mapping):
            return [value]
        raise self.wrong(name, "a list", value)

    def wrong(self, name: str, wanted: str, value: Any) -> ToolError:
        shown = json.dumps(value, default=str, ensure_ascii=False)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        return ToolError(f'{self._tool}: "{name}" must be {wanted}, but it was {shown}.')

    def _hint(self) -> str:
        sent = ", ".join(f'"{key}"' for key in list(self._values)[:12])
        return f"a string that is not empty. The call had {sent or 'no arguments'}."
