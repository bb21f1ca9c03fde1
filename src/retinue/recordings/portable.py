"""Text of a run without the traces of its machine and its time, and the reverse.

A recording must be the same wherever it was made, or nobody could review a change of it. Folders become names
(`$CWD`), ids of runs, calls and inbox items become numbers in the order in which they appear, and durations become 0.
Text that already looks like such a name gets one more `$`, so that the conversion can be reversed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from retinue.core.encode import dump

RecordedT = TypeVar("RecordedT")
PACKAGE = Path(__file__).parent.parent
_FOLDER_NAMES = ("CWD", "STATE", "USER_HOME", "PACKAGE")
_SHORT_ID_CHARACTERS = 8
"""The length of the abbreviated run ids that people and models use."""
_FOLDER_OR_RUN_PLACEHOLDER = re.compile(rb"\$+(?:CWD|STATE|USER_HOME|PACKAGE|RUN\d+)(?!\w)")
_NO_BOUNDARY = rb"(?![\w-]|\.\w)"
"""The path of a folder does not end before these: `/work/app` is not a prefix folder of `/work/app2`."""
_DURATION = rb"(?:\d+h(?: \d+m)?|\d+m(?: \d+s)?|[\d.]+s|\d+)"
"""The forms in which our own results state the duration of an agent."""


class MachineFolders(Struct, frozen=True):
    """The folders of one machine that the text of a run may name."""

    cwd: str
    state: str
    home: str
    package: str = str(PACKAGE)

    def by_name(self) -> dict[str, str]:
        return dict(zip(_FOLDER_NAMES, (self.cwd, self.state, self.home, self.package), strict=True))


class PortableText:
    """Makes the JSON of a tree's events portable. Use one object for all events of a tree: it numbers ids
    consecutively."""

    def __init__(self, folders: MachineFolders, runs: Sequence[str]) -> None:
        self._runs: dict[bytes, bytes] = {}
        for number, run_id in enumerate(runs, 1):
            self._runs[run_id.encode()] = b"$RUN%d" % number
            self._runs.setdefault(run_id[:_SHORT_ID_CHARACTERS].encode(), b"$RUN%d" % number)
        self._calls: dict[bytes, bytes] = {}
        self._items: dict[bytes, bytes] = {}
        self._folders = _spellings(folders)
        self._pattern = self._compile()

    def add_call(self, call_id: str) -> None:
        """Give a call its number."""
        encoded = json.dumps(call_id, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")
        self._calls.setdefault(encoded, b"call-%d" % (len(self._calls) + 1))

    def __call__(self, encoded: bytes) -> bytes:
        """Return the JSON of a value in its portable form."""
        return self._pattern.sub(self._replace, encoded)

    def _compile(self) -> re.Pattern[bytes]:
        longest_first = sorted(self._folders, key=len, reverse=True)
        folders = b"|".join(re.escape(folder) for folder in longest_first)
        return re.compile(
            rb"(?P<placeholder>\$+(?:CWD|STATE|USER_HOME|PACKAGE|RUN\d+)(?!\w))"
            rb"|(?P<folder>" + folders + rb")" + _NO_BOUNDARY + rb'|"(?P<id>call_id|id)":"(?P<call>[^"]+)"'
            rb'|"item_id":"(?P<item>[^"]+)"'
            rb'|"duration_ms":(?P<duration>\d+)'
            rb"|(?P<words>Agent completed in |Duration: |<duration_ms>)"
            + _DURATION
            + rb"|\b(?P<run>[0-9a-f]{8}(?:-[0-9a-f]{4}-4[0-9a-f]{2})?)\b"
        )

    def _replace(self, match: re.Match[bytes]) -> bytes:
        text = match[0]
        match match.lastgroup:
            case "placeholder":
                return b"$" + text
            case "folder":
                return self._folders[text]
            case "call":
                return b'"%b":"%b"' % (match["id"], self._calls.get(match["call"], self(match["call"])))
            case "item":
                number = self._items.setdefault(match["item"], b"item-%d" % (len(self._items) + 1))
                return b'"item_id":"%b"' % number
            case "words":
                return match["words"] + b"0"
            case "duration":
                return b'"duration_ms":0'
            case _:
                return self._runs.get(text, text)


def _spellings(folders: MachineFolders) -> dict[bytes, bytes]:
    """Return the name of each folder by the spellings of its path in JSON."""
    names: dict[bytes, bytes] = {}
    # The working folder comes last: if it is the user's home as well, its name wins.
    for name, path in reversed(folders.by_name().items()):
        for spelling in (path, os.path.realpath(path)):
            if len(spelling) > 1:
                encoded = json.dumps(spelling, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")
                names[encoded] = b"$" + name.encode()
    return names


def localize(
    value: RecordedT, folders: MachineFolders, run_id: Callable[[int], str | None] = lambda _: None
) -> RecordedT:
    """Return a value of a cassette with the folders of this machine. `run_id` returns the local id of a numbered run;
    the placeholder stays if it returns None."""
    paths: Mapping[str, str] = folders.by_name()

    def replace(match: re.Match[bytes]) -> bytes:
        placeholder = match[0]
        if placeholder.startswith(b"$$"):
            return placeholder[1:]
        name = placeholder[1:].decode()
        if name.startswith("RUN"):
            here = run_id(int(name[3:]))
            return placeholder if here is None else here.encode()
        return json.dumps(paths[name], ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")

    return msgspec.json.decode(_FOLDER_OR_RUN_PLACEHOLDER.sub(replace, dump(value)), type=type(value))
