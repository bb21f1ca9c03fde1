"""The folders of a run, and the comparison of its paths with patterns of rules.

Patterns are those of gitignore with four anchors: `//` the root of the file system, `~/` the
home, `/` the folder of the file that holds the rule, and none at all: the working directory. A
path is compared as written and with its links resolved: to allow, both must match; to deny, one is enough.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.globs import gitignore_regex
from retinue.guard.permissions.rule import GLOB, HOLE, MAYBE, NO, YES, Match, is_known, match

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from retinue.guard.permissions.rule import Rule


_MAX_GLOB_MATCHES = 2_000
_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/lib", "/etc/", "/opt/", "/dev/", "/proc/", "/sys/", "/nix/")


class RunFolders(Struct, frozen=True):
    """`cwd` and `roots` (the working directories, `cwd` first) as written; `real_roots` without
    links. All absolute."""

    cwd: str
    roots: tuple[str, ...]
    home: str
    real_roots: tuple[str, ...]
    seen: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    """Where paths and folders lead, for as long as one call is judged."""
    copied: tuple[str, str] | None = None
    """A worktree and the checkout it is a copy of, without links: a rule about a file of
    the checkout is also about the copy of the file."""
    programs: str = ""
    """The folders of programs, as PATH lists them."""
    consented: Callable[[Path, bytes], bool] | None = None
    """Whether someone has agreed to what a file of the project brings."""

    @classmethod
    def of(
        cls,
        cwd: str | os.PathLike[str],
        directories: Iterable[str] = (),
        home: str = "",
        copied: tuple[str, str] | None = None,
        programs: str = "",
        consented: Callable[[Path, bytes], bool] | None = None,
        real: Callable[[str], str] = os.path.realpath,
    ) -> RunFolders:
        """`real` says where the folders lead, links followed."""
        here = os.path.abspath(cwd)  # noqa: PTH100 - links must stay as they are written
        house = os.path.abspath(home or os.path.expanduser("~"))  # noqa: PTH100, PTH111 - the same
        roots = dict.fromkeys([here, *(_joined(here, directory, house) for directory in directories)])
        real_roots = tuple(dict.fromkeys(map(real, roots)))
        twins = (real(copied[0]), real(copied[1])) if copied is not None else None
        return cls(here, tuple(roots), house, real_roots, {}, {}, twins, programs, consented)

    def now(self) -> RunFolders:
        """Return the same without remembered lookups: links may have changed since."""
        return replace(self, seen={}, folders={})

    def absolute(self, path: str, base: str | None = None) -> str:
        """Without `.` and `..`; links stay. A mark counts as a name, or as a path if it is whole."""
        return _joined(base or self.cwd, path, self.home)

    def forms(self, path: str, base: str | None = None) -> tuple[str, ...]:
        """Return the path as written and, if links lead elsewhere, where it really is."""
        start = base or self.cwd
        forms = self.seen.get((start, path))
        if forms is None:
            written, real = _joined(start, path, self.home), real_path(_join(start, path, self.home), self.folders)
            forms = self.seen[start, path] = (written,) if real == written else (written, real)
        return forms

    def original(self, path: str) -> str | None:
        """Return where in the checkout a file of the worktree is from; None for any other."""
        if self.copied is None:
            return None
        relative = below(path, self.copied[0])
        return None if relative is None else f"{self.copied[1]}/{relative}".rstrip("/")

    def inside(self, path: str, base: str | None = None) -> bool:
        """Return whether it certainly is in a working directory. `$X/…` is nowhere for certain; a pattern
        is where the files are that it matches now, links followed."""
        real = self.forms(path, base)[-1]
        if HOLE in real or not self.holds(real):
            return False
        return GLOB not in real or all(map(self.holds, _targets(real)))

    def leaves(self, path: str, base: str | None = None) -> bool:
        """Return whether it certainly is a path of the user's outside of the working directories:
        not a folder of the system or the root, which everyone may see."""
        if not path.startswith(("/", "~", "..")):
            return False
        real = self.forms(path, base)[-1]
        seen = real == "/" or f"{real}/".startswith(_SYSTEM)
        return is_known(real) and not self.holds(real) and not seen

    def holds(self, real: str) -> bool:
        """Return whether a path without links is in a working directory."""
        return any(below(real, root) is not None for root in self.real_roots)


def below(path: str, folder: str) -> str | None:
    """Return what follows `folder` in `path`; "" for itself, None outside."""
    if path == folder:
        return ""
    start = folder if folder.endswith("/") else folder + "/"
    return path[len(start) :] if path.startswith(start) else None


def real_path(path: str, folders: dict[str, str]) -> str:
    """Return the path with links resolved; with marks, as far as it is known. `folders` are those looked at."""
    cut = len(path.replace(GLOB, HOLE).partition(HOLE)[0])
    try:
        if cut == len(path):
            return _follow_links(path, folders)
        folder, slash, name = path[:cut].rpartition("/")
        return os.path.realpath(folder or "/").rstrip("/") + slash + name + path[cut:]
    except (OSError, ValueError):
        return path


def _follow_links(path: str, folders: dict[str, str]) -> str:
    """Do what realpath does, with one look in the common case: the last part is no link."""
    folder, _, name = path.rpartition("/")
    if not folder or name in ("", ".", "..") or "/.." in folder or "//" in path or "/./" in path:
        return os.path.realpath(path)
    real = folders.get(folder)
    if real is None:
        real = folders[folder] = os.path.realpath(folder)
    there = f"{real.rstrip('/')}/{name}"
    return os.path.realpath(there) if os.path.islink(there) else there  # noqa: PTH114 - by text, and quick


def _targets(pattern: str) -> Iterator[str]:
    """Yield where the files are that a pattern of the shell becomes; nowhere for one that matches very
    many."""
    import glob

    text = "*".join(map(glob.escape, pattern.split(GLOB)))
    for count, entry in enumerate(glob.iglob(text)):  # noqa: PTH207 - by text, and quick
        yield os.path.realpath(entry) if count < _MAX_GLOB_MATCHES else ""


def match_path(rule: Rule, folders: RunFolders, path: str, base: str | None = None) -> Match:
    """Return what the pattern of `rule` says about a path: for allow rules YES only if link and target
    match, for others if either does; MAYBE where the path is not known well enough."""
    assert rule.specifier is not None
    forms = folders.forms(path, base)
    best = _match_forms(rule, folders, forms)
    if folders.copied is not None and best != YES:
        originals = list(filter(None, map(folders.original, forms)))
        if originals and (rule.kind != "allow" or len(originals) == len(forms)):
            best = max(best, _match_forms(rule, folders, originals))
    return best


def _match_forms(rule: Rule, folders: RunFolders, forms: Iterable[str]) -> Match:
    answers = [_match_form(rule, folders, form) for form in forms]
    return min(answers) if rule.kind == "allow" else max(answers)


def _match_form(rule: Rule, folders: RunFolders, path: str) -> Match:
    base, pattern = anchor_pattern(rule, folders)
    allow = rule.kind == "allow"
    best: Match = NO
    for folder in folders.forms(base):
        if is_known(path):
            relative = below(path, folder)
            if relative is not None and _fits(_compile(pattern, allow), relative or ".", allow):
                return YES
        elif not allow and _may_match(pattern, folder, path):
            best = MAYBE
        elif allow and GLOB in path and HOLE not in path and pattern.endswith("/**"):
            fixed = path[: path.index(GLOB)].rpartition("/")[0]
            relative = below(fixed, folder)
            if relative is None or ".." in path:
                continue
            if _compile(pattern, allow).match(f"{relative}/x".lstrip("/")):
                return YES
    return best


def _fits(pattern: re.Pattern[str], relative: str, allow: bool) -> bool:
    """Return whether a pattern fits. `dir/` means the folder, whose path comes without the slash."""
    return bool(pattern.match(relative) or (not allow and pattern.match(relative + "/")))


def anchor_pattern(rule: Rule, folders: RunFolders) -> tuple[str, str]:
    """Return the folder that a rule's pattern starts from, and the pattern inside it."""
    text = rule.specifier or ""
    if text.startswith("//"):
        return "/", text[1:]
    if text == "~" or text.startswith("~/"):
        return folders.home, text[1:] or "/**"
    if text.startswith("/"):
        return rule.base, text
    return folders.cwd, text.removeprefix("./") if text != "./" else "/**"


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return what a pattern of a deny or ask rule matches, from the folder that it starts in."""
    return _compile(pattern, False)


@lru_cache(maxsize=16_384)
def _compile(pattern: str, allow: bool) -> re.Pattern[str]:
    """Compile a pattern. Deny and ask rules ignore case, as some file systems do."""
    head, _, tail = pattern.rpartition("/")
    # A single `dir/**`: any depth, but not to allow.
    if tail == "**" and head and "/" not in head:
        pattern = f"/{pattern}" if allow else f"**/{pattern}"
    if pattern in ("**", "*", "/**", "/*", "."):
        return re.compile(r".*", re.DOTALL)
    source = gitignore_regex(pattern)
    if source is None:
        # A pattern that means nothing matches nothing.
        return re.compile(r"(?!)")
    return re.compile(source, re.DOTALL if allow else re.DOTALL | re.IGNORECASE)


def _may_match(pattern: str, folder: str, path: str) -> bool:
    """Return whether some path that `path` can become may be meant. Err on the side of yes."""
    wide = _widen(pattern)
    start = folder.rstrip("/") + "/"
    text = path.lower()
    rooted = "/" in pattern.rstrip("/")
    ends = (wide, f"{wide}/*")
    heads = (start,) if rooted else (start, f"{start}*/")
    return any(match((head + end).lower(), text) != NO for head in heads for end in ends)


@lru_cache(maxsize=512)
def _widen(pattern: str) -> str:
    """Return the pattern with every special sign as a plain `*`, which spans more than they do."""
    wide = ""
    bracket = False
    for letter in pattern.strip("/"):
        if bracket:
            bracket = letter != "]"
        elif letter == "[":
            wide, bracket = wide + "*", True
        elif letter in "?\\":
            wide += "*"
        else:
            wide += letter
    return wide.replace("**/", "*")


def _joined(base: str, path: str, home: str) -> str:
    """Return the path absolute and without `..`, by text alone."""
    joined = _join(base, path, home)
    return joined if joined.startswith(HOLE) else os.path.normpath(joined)


def _join(base: str, path: str, home: str) -> str:
    """Return the path absolute, with its `..` left for the code that follows links. A path through the folders of a
    process is known to that process alone."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    elif path.startswith(HOLE) or (not is_known(path) and ".." in path):
        # A path with an unknown beginning may be absolute, and `..` may lead anywhere.
        return HOLE
    joined = os.path.join(base, path)  # noqa: PTH118 - Path would drop what matters here
    if joined.startswith("/") and ("/proc/" in joined or "/dev/fd/" in joined) and _leads_through_process(joined):
        return HOLE
    return joined


@lru_cache(maxsize=64)
def _leads_through_process(path: str) -> bool:
    within = r"/proc/[^/]+/(?:task/[^/]+/)?(?:cwd|root)(?:/|\Z)|(?:/dev|/proc/[^/]+(?:/task/[^/]+)?)/fd/[^/]+/"
    return re.match(within, "/" + os.path.normpath(path).lstrip("/")) is not None
