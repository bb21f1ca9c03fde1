"""The texts among the arguments of a call, and what those of a tool may be that does not declare its paths.

Tools of plugins, programs and MCP servers name their parameters as they like. Where such a tool does not say which of
them are paths, each text may be one: a rule must not be passed by the name of a parameter.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from retinue.guard.permissions.locations import RunFolders, anchor_pattern, below, compile_pattern, match_path
from retinue.guard.permissions.rule import GLOB, HOLE, MAYBE, NO, YES, Match, Rule

_DEEPEST = 8
_MOST_TEXTS = 1_000
_LONGEST_PATH = 4_096
_MOST_ENTRIES = 2_000
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PATH_NAME = re.compile(
    r"(?:^|[_.-])(?:path|file|filename|filepath|dir|directory|folder|cwd|root|notebook)s?$", re.IGNORECASE
)
_WILD = re.compile(r"\*\*|[*?]|\[[^]]*\]|\{[^}]*\}")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>`]+")
_HOST_NAME = re.compile(r"(?:^|_)(?:url|uri|link|host|hostname|domain|endpoint|address)s?$", re.IGNORECASE)
_LOCATED = re.compile(r"[./~]")


class ArgumentText(NamedTuple):
    """`name` is that of the parameter, or of the innermost object's field."""

    name: str
    text: str


def all_texts(arguments: Mapping[str, Any]) -> tuple[ArgumentText, ...] | None:
    """Return every text in the arguments, names of fields inside of objects included; None where there are too many
    to look at, or they are nested too deeply."""
    found: list[ArgumentText] = []
    for name, value in arguments.items():
        for text in _texts_in(str(name), value, 0):
            if text is None or len(found) >= _MOST_TEXTS:
                return None
            found.append(text)
    return tuple(found)


def _texts_in(name: str, value: object, depth: int) -> Iterator[ArgumentText | None]:
    if depth > _DEEPEST:
        yield None
    elif isinstance(value, str):
        yield ArgumentText(name, value)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield ArgumentText("", str(key))
            yield from _texts_in(str(key), inner, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts_in(name, inner, depth + 1)


def texts_under(arguments: object, names: Iterable[str]) -> Iterator[str]:
    """Yield the texts of the named parameters. `edits.path` is a field of the objects in `edits`."""
    for name in names:
        head, _, rest = name.partition(".")
        for value in _values(arguments, head):
            if rest:
                yield from texts_under(value, (rest,))
            elif isinstance(value, str) and value:
                yield value


def _values(arguments: object, name: str) -> Iterator[object]:
    if isinstance(arguments, Mapping):
        value = arguments.get(name)
        if isinstance(value, list | tuple):
            yield from value
        else:
            yield value


def named_paths(
    arguments: Mapping[str, Any], texts: Iterable[ArgumentText], declared: tuple[str, ...] | None
) -> tuple[str, ...]:
    """Return the paths in the declared parameters; without a declaration, in those whose names say so."""
    if declared is None:
        found: Iterable[str] = (each.text for each in texts if each.text and is_path_name(each.name))
    else:
        found = texts_under(arguments, declared)
    return tuple(dict.fromkeys(map(plain_path, found)))


def addresses(texts: Iterable[ArgumentText]) -> Iterator[str]:
    """Yield the URLs in the texts, and what stands where a host is named."""
    for name, text in texts:
        yield from _ADDRESS.findall(text)
        if text and "://" not in text and _HOST_NAME.search(name):
            yield text


def is_path_name(name: str) -> bool:
    """Return whether a parameter of this name holds a path: `file_path`, `targetFile`, `paths`."""
    return _PATH_NAME.search(_HUMP.sub("_", name)) is not None


def plain_path(text: str) -> str:
    """Return a path as programs write it, from a `file:` URL or as it is."""
    if text[:5].lower() != "file:":
        return text
    rest = text[5:]
    if rest.startswith("//"):
        rest = "/" + rest[2:].partition("/")[2]
    from urllib.parse import unquote

    return unquote(rest)


def match_suspect(rule: Rule, folders: RunFolders, text: str) -> Match:
    """Return what a rule about files says about a text that may be a path, or may have one in it.

    A text is certainly meant where it exists as a file or where the rule names the file; a mere mention of the file, or
    a pattern that may become its name, is a doubt.
    """
    path = plain_path(text)
    if 0 < len(path) <= _LONGEST_PATH and "\n" not in path:
        wild = _WILD.search(path) is not None and not any(map(str.isspace, path))
        if wild and match_path(rule, folders, _WILD.sub(_mark, path)) != NO:
            return MAYBE
        if match_path(rule, folders, path) == YES:
            if _literal(rule.specifier or "") is not None or exists(folders, path):
                return YES
            # A rule about every file: any text would be a name of one.
            return MAYBE if _LOCATED.search(path) and " " not in path else NO
    return MAYBE if _is_mentioned(rule.specifier or "", text) else NO


def _mark(wildcard: re.Match[str]) -> str:
    return HOLE if wildcard[0] in ("**",) or wildcard[0].startswith("{") else GLOB


def exists(folders: RunFolders, path: str) -> bool:
    try:
        return os.path.lexists(folders.absolute(path))
    except (OSError, ValueError):
        return False


@lru_cache(maxsize=512)
def _literal(specifier: str) -> str | None:
    """Return the last part of a pattern that says more than "any name"; None where none does."""
    for part in reversed(specifier.split("/")):
        if part.strip("*?.~"):
            return part
    return None


def _is_mentioned(specifier: str, text: str) -> bool:
    name = _literal(specifier)
    return name is not None and _mention(name, "\n" in text).search(text) is not None


@lru_cache(maxsize=512)
def _mention(name: str, in_prose: bool) -> re.Pattern[str]:
    """Return what finds a file's name in a text. In prose a plain word such as `secrets` is a name only beside a
    slash."""
    source = "".join({"*": r"[^\s/'\"]*", "?": r"[^\s/'\"]"}.get(sign) or re.escape(sign) for sign in name)
    source = rf"(?<![\w.-]){source}(?![\w-])"
    if in_prose and "." not in name:
        source = rf"(?<=/){source}|{source}(?=/)"
    return re.compile(source, re.IGNORECASE)


def holds_file(rule: Rule, folders: RunFolders, path: str) -> bool:
    """Return whether a rule is about a file in this folder, as far as it can be looked through."""
    base, pattern = anchor_pattern(rule, folders)
    compiled = compile_pattern(pattern)
    for folder in folders.forms(path):
        for start in folders.forms(base):
            # A folder that has no path in common with the rule's holds nothing of it.
            if below(folder, start) is None and below(start, folder) is None:
                continue
            for entry in _entries(folder):
                if entry is None:
                    return True
                rest = below(entry, start)
                if rest and (compiled.match(rest) or compiled.match(f"{rest}/")):
                    return True
    return False


def _entries(folder: str) -> Iterator[str | None]:
    """Yield what is in a folder and below; None at the end where that is too much to look at."""
    waiting, count = [folder], 0
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    count += 1
                    if count > _MOST_ENTRIES:
                        yield None
                        return
                    yield entry.path
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue
