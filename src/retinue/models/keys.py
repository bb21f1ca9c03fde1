"""Keys of model servers and search services: read by us, and by no program that we start.

Whoever can look at a process sees the environment it was started with, also after it has deleted
a variable: `ps eww`, `/proc/PID/environ`. So the program (`retinue …`) takes the keys out of its
environment when it starts, overwrites them there, and holds them in memory only. Inside somebody
else's program (`Retinue()`) the environment is theirs and stays as it is; children of ours get it
without the keys.

A key is one of the variables of the known providers, or one that the user's own settings name
(`apiKeyEnv`). `sandbox.passEnvironment` passes one on by name.

**What it does not protect.** The shell that `retinue` was started from keeps its variables. A
program of the same user that may read our memory finds the keys there.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from retinue.models.presets import BUILT_IN, PRESETS

SEARCH_KEYS = ("BRAVE_SEARCH_API_KEY", "TAVILY_API_KEY", "EXA_API_KEY")
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")

_names = {*SEARCH_KEYS, *(key for preset in (*BUILT_IN.values(), *PRESETS.values()) for key in preset.keys)}
_kept: dict[str, str] = {}
_taking = False


def take_keys() -> None:
    """Moves the keys of the known providers from this process's environment into memory, and from
    now on those that settings name. Only for the program itself."""
    global _taking
    _taking = True
    _take(_names)


def environment() -> Mapping[str, str]:
    """The environment of this process with the keys: to look things up, never for a child."""
    return {**os.environ, **_kept} if _taking else os.environ


def learn_keys(providers: Mapping[str, Mapping[str, Any]]) -> None:
    """Remembers the variables with keys that entries of the user's own settings name."""
    new = {name for entry in providers.values() for name in named_variables(entry)} - _names
    _names.update(new)
    if _taking:
        _take(new)


def named_variables(entry: Mapping[str, Any]) -> list[str]:
    """The variables whose values a provider's entry asks for."""
    named = [str(entry["apiKeyEnv"])] if entry.get("apiKeyEnv") else []
    headers = entry.get("headers")
    values = list(headers.values()) if isinstance(headers, Mapping) else []
    for text in (entry.get("apiKey"), *values):
        named += [a or b for a, b in VARIABLE.findall(text)] if isinstance(text, str) else []
    return named


def without_keys(given: Mapping[str, str], passed: Collection[str] = ()) -> dict[str, str]:
    """`given` for a program that we start: without keys, but for those that the user passes on."""
    return {name: value for name, value in given.items() if name not in _names or name in passed}


class KeysInEnvironment:
    """A moment in which the keys are variables again, for a library that looks for them there."""

    def __enter__(self) -> None:
        os.environ.update(_kept)

    def __exit__(self, *_: object) -> None:
        for name in _kept:
            os.environ.pop(name, None)


def _take(names: Iterable[str]) -> None:
    there = [name for name in names if name in os.environ]
    if not there:
        return
    for name in there:
        _kept[name] = os.environ[name]
    _overwrite(there)
    for name in there:
        del os.environ[name]


def _overwrite(names: list[str]) -> None:
    """Wipes the values in the block of memory that other processes see as our environment."""
    try:
        if sys.platform == "linux":
            _overwrite_block({os.fsencode(name) for name in names})
        elif sys.platform == "darwin":
            _overwrite_strings(names)
    except (OSError, ValueError, AttributeError):  # a kernel that does not show it: then nobody else sees it either
        return


def _overwrite_block(names: set[bytes]) -> None:
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - at every start
        numbers = file.read().rpartition(b")")[2].split()
    start, end = int(numbers[47]), int(numbers[48])  # env_start and env_end in proc(5)
    with open("/proc/self/mem", "r+b", buffering=0) as memory:  # noqa: PTH123
        memory.seek(start)
        at = start
        for entry in memory.read(end - start).split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name in names and value:
                memory.seek(at + len(name) + 1)
                memory.write(bytes(len(value)))
            at += len(entry) + 1


def _overwrite_strings(names: list[str]) -> None:
    import ctypes

    library = ctypes.CDLL(None)
    library.getenv.restype = ctypes.c_void_p
    for name in names:
        found = library.getenv(os.fsencode(name))
        if found:
            ctypes.memset(found, 0, len(os.fsencode(os.environ[name])))
