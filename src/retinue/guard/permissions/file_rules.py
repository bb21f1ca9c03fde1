"""Rules about files as paths for the sandbox, and the `permission` map of an agent's file as rules.

A rule names files by patterns, but a mount needs paths: they are looked up before each command,
below the working directories. A path that does not exist yet cannot be hidden or kept read-only.

The `permission` map is an ordered list in which the last matching entry counts. Our rules have no
order, so each entry that restricts becomes a rule whose exceptions are the later, weaker entries. An
entry that cannot become a rule restricts every call of its tool.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from fnmatch import fnmatchcase

from retinue.core.lean import dataclass
from retinue.core.spec import PermissionRule
from retinue.core.toolnames import TOOLS, canonical
from retinue.guard.permissions.locations import RunFolders, anchored, compile_pattern
from retinue.guard.permissions.policy import Limit, PermissionPolicy
from retinue.guard.permissions.rule import FETCHING, SPAWNING, WRITING, Kind, Rule, is_about_files, parse_rule

MOST_ENTRIES = 400_000
_TICK_NS = 100_000_000
_WILD = re.compile(r"[*?\[\]\\]")


class TooManyFilesError(OSError):
    """The working directories hold more files than can be looked through before a command."""


@dataclass(frozen=True, slots=True)
class Masks:
    """`hidden` paths look empty inside the walls; `kept` ones cannot be changed."""

    hidden: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What one rule is about: paths below `base` that fit `pattern`."""

    base: str
    pattern: re.Pattern[str]
    hides: bool


@dataclass(slots=True)
class _Folder:
    """What was found in one folder when it had this time of change."""

    changed: int
    folders: tuple[str, ...]
    hidden: tuple[str, ...]
    kept: tuple[str, ...]
    count: int


@dataclass(slots=True)
class FileMasks:
    """The masks of one run. `asking` includes rules that ask: for commands nobody was asked about."""

    policy: PermissionPolicy
    asking: bool
    _seen: dict[str, _Folder] = field(default_factory=dict)

    def now(self) -> Masks:
        """Return the paths that rules are about at this moment. Raise `TooManyFilesError`."""
        kinds = ("deny", "ask") if self.asking else ("deny",)
        rules = [rule for rule in self.policy.own_rules if rule.kind in kinds and is_about_files(rule)]
        if not rules:
            return Masks()
        place = self.policy.place.now()
        hidden: list[str] = []
        kept: list[str] = []
        wanted: list[_Wanted] = []
        for rule in rules:
            target = hidden if "read" in rule.tools else kept
            if rule.specifier is None:
                target += place.real_roots
                continue
            for base, pattern in _starts(rule, place):
                fixed = _fixed_path(base, pattern)
                if fixed is not None:
                    target.append(os.path.realpath(fixed))
                else:
                    wanted.append(_Wanted(base, compile_pattern(pattern), target is hidden))
        if wanted:
            for folder in self._search(place.real_roots, wanted):
                hidden += folder.hidden
                kept += folder.kept
        return Masks(tuple(dict.fromkeys(hidden)), tuple(dict.fromkeys(kept)))

    def _search(self, roots: Iterable[str], wanted: list[_Wanted]) -> Iterator[_Folder]:
        """Yield every folder below `roots`. One that did not change since is not read again."""
        waiting, count = list(roots), 0
        while waiting:
            path = waiting.pop()
            try:
                changed = os.stat(path).st_mtime_ns  # noqa: PTH116 - thousands of these
                found = self._seen.get(path)
                if found is None or found.changed != changed:
                    # A file made within the clock's next tick would not change the time again.
                    settled = time.time_ns() - changed > _TICK_NS
                    found = self._seen[path] = _look(path, changed if settled else -1, wanted)
            except OSError:
                continue
            count += found.count
            if count > MOST_ENTRIES:
                raise TooManyFilesError(
                    f"The workspace holds more than {MOST_ENTRIES:,} files, too many to look for those that rules deny."
                )
            yield found
            waiting += found.folders


def _starts(rule: Rule, place: RunFolders) -> Iterator[tuple[str, str]]:
    """Yield the folder that a rule's pattern starts from, links followed, and the same folder of
    the worktree that is a copy of it."""
    base, pattern = anchored(rule, place)
    for form in dict.fromkeys((base, os.path.realpath(base))):
        yield form, pattern
        copied = place.copied
        if copied is not None and (form == copied[1] or form.startswith(f"{copied[1]}/")):
            yield copied[0] + form[len(copied[1]) :], pattern


def _fixed_path(base: str, pattern: str) -> str | None:
    """Return the one path that a pattern means; None where it can mean several."""
    text = pattern.removesuffix("/**").removesuffix("/")
    if text in ("", "."):
        return base
    if _WILD.search(text) or "/" not in text:
        return None
    return os.path.join(base, text.lstrip("/"))  # noqa: PTH118 - by text


def _look(path: str, changed: int, wanted: list[_Wanted]) -> _Folder:
    folders: list[str] = []
    found: dict[bool, list[str]] = {True: [], False: []}
    count = 0
    with os.scandir(path) as entries:
        for entry in entries:
            count += 1
            is_folder = entry.is_dir(follow_symlinks=False)
            match = _match(entry.path, is_folder, wanted)
            if match is not None:
                found[match].append(os.path.realpath(entry.path))
            elif is_folder:
                folders.append(entry.path)
    return _Folder(changed, tuple(folders), tuple(found[True]), tuple(found[False]), count)


def _match(path: str, is_folder: bool, wanted: list[_Wanted]) -> bool | None:
    """Return True for a path to hide, False for one to keep, None for any other."""
    answer: bool | None = None
    for each in wanted:
        start = each.base if each.base.endswith("/") else f"{each.base}/"
        if not path.startswith(start):
            continue
        rest = path[len(start) :]
        if each.pattern.match(rest) or (is_folder and each.pattern.match(f"{rest}/")):
            if each.hides:
                return True
            answer = False
    return answer


EVERY = "*"
_URL = re.compile(r"(?:https?|\*)://([\w.*-]+)(?:[/:].*)?")


def rules_of_file(
    entries: Sequence[PermissionRule], *, source: str, base: str
) -> tuple[tuple[Rule, ...], tuple[Limit, ...]]:
    """What a file's `permission` map forbids, wants asked and leaves. Never raises."""
    rules: list[Rule] = []
    limits: list[Limit] = []
    for tool in _tools_of(entries):
        chain = _from_last_for_all([each for each in entries if _is_about(each, tool)])
        made = _Chain(tool, chain, source, base)
        rules += made.rules()
        limits += made.limits()
    return tuple(dict.fromkeys(rules)), tuple(limits)


class _Chain:
    """The entries about one tool. The first may be about every call of it; no other is."""

    def __init__(self, tool: str, entries: Sequence[PermissionRule], source: str, base: str) -> None:
        self._tool = tool
        self._entries = entries
        self._source = source
        self._base = base

    def limits(self) -> list[Limit]:
        """Where everything is denied at first, only what later entries name is left."""
        if not self._entries or self._entries[0].pattern != EVERY or self._entries[0].verdict != "deny":
            return []
        return [Limit(self._tool, self._permitting(self._entries[1:], ("allow", "ask")), self._source)]

    def rules(self) -> list[Rule]:
        found: list[Rule] = []
        for place, entry in enumerate(self._entries):
            if entry.verdict == "allow" or (entry.verdict == "deny" and entry.pattern == EVERY):
                continue
            milder = ("allow", "ask") if entry.verdict == "deny" else ("allow",)
            rule = self._rule(entry.pattern, entry.verdict) or self._rule(EVERY, entry.verdict)
            if rule is not None:
                found.append(replace(rule, unless=self._permitting(self._entries[place + 1 :], milder)))
        return found

    def _permitting(self, entries: Iterable[PermissionRule], verdicts: tuple[str, ...]) -> tuple[Rule, ...]:
        made = [self._rule(each.pattern, "allow") for each in entries if each.verdict in verdicts]
        return tuple(rule for rule in made if rule is not None)

    def _rule(self, pattern: str, kind: Kind) -> Rule | None:
        """The rule for one pattern; None for one that means nothing to this tool."""
        specifier = self._specifier(pattern)
        if specifier is None:
            return None
        text = self._tool if specifier == EVERY else f"{self._tool}({specifier})"
        made = parse_rule(text, kind, source=self._source, base=self._base)
        return made if isinstance(made, Rule) else None

    def _specifier(self, pattern: str) -> str | None:
        if pattern == EVERY:
            return EVERY
        if self._tool in FETCHING:
            host = _URL.fullmatch(pattern)
            return f"domain:{host[1]}" if host is not None else None
        if self._tool in SPAWNING:
            return pattern if EVERY not in pattern else None
        return pattern


def _tools_of(entries: Iterable[PermissionRule]) -> tuple[str, ...]:
    """The tools that the entries are about, by the names a call has. A pattern that covers none of
    our own is about tools of MCP servers."""
    found: dict[str, None] = {}
    for entry in entries:
        own = [tool for tool in TOOLS if _is_about(entry, tool)]
        found.update(dict.fromkeys(own or [_served(entry.tool)]))
    return tuple(found)


def _is_about(entry: PermissionRule, tool: str) -> bool:
    name = entry.tool
    if name in (EVERY, tool) or _served(name) == tool:
        return True
    if name == "edit":
        return tool in WRITING
    known = canonical(name)
    if known:
        return tool in known or (tool in SPAWNING and bool(SPAWNING & set(known)))
    return EVERY in name and fnmatchcase(tool.lower(), name.lower())


def _served(name: str) -> str:
    """opencode's `server_tool` as the name that a tool of a server has here."""
    return name if name.startswith("mcp__") else f"mcp__{name.replace('_', EVERY)}"


def _from_last_for_all(entries: list[PermissionRule]) -> list[PermissionRule]:
    """Without what a later entry about every call overrides."""
    last = max((place for place, entry in enumerate(entries) if entry.pattern == EVERY), default=0)
    return entries[last:]
