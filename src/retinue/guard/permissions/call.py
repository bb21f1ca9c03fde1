"""One tool call as rules see it: its tool, commands, paths, hosts and agents, and the texts among its arguments.

The spellings are those that the tools accept, and where a call has several, all of them are compared: a rule must
not be passed by writing a path under another name. Tools of plugins, programs and MCP servers name their parameters
as they like; where such a tool does not declare which of them are paths, each text may be one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from retinue.core.permission import EffectKind, ToolUse
from retinue.core.tool_names import PATH_PARAMETERS, STARTING_TOOLS, TOOL_EFFECTS, canonical
from retinue.guard.permissions.locations import RunFolders
from retinue.guard.permissions.rule import GLOB, HOLE, is_known
from retinue.guard.permissions.shell_commands import SPEAKING, WRITERS, read_paths, searched_files
from retinue.guard.permissions.shell_grammar import analyse
from retinue.guard.permissions.shell_step import CARRIERS, Script, Step, has_option

if TYPE_CHECKING:
    from retinue.guard.gitconfig import GitPrograms


_MAX_ARGUMENT_DEPTH = 8
_MAX_TEXTS = 1_000
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PATH_NAME = re.compile(
    r"(?:^|[_.-])(?:path|file|filename|filepath|dir|directory|folder|cwd|root|notebook)s?$", re.IGNORECASE
)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>`]+")
_GIT = re.compile(r"(?<![\w.])git(?![\w.])")
_WORD = re.compile(r"""[^\s'"`;&|<>()={}$,]+""")
_MAX_PATH_CHARACTERS = 4_096
_HOST_NAME = re.compile(r"(?:^|_)(?:url|uri|link|host|hostname|domain|endpoint|address)s?$", re.IGNORECASE)


class ArgumentText(NamedTuple):
    """`name` is that of the parameter, or of the innermost object's field."""

    name: str
    text: str


def all_texts(arguments: Mapping[str, Any]) -> tuple[ArgumentText, ...] | None:
    """Return every text in the arguments, including names of fields inside objects; None if there are too many, or if
    they are nested too deeply."""
    texts: list[ArgumentText] = []
    for name, value in arguments.items():
        for text in _texts_in(str(name), value, 0):
            if text is None or len(texts) >= _MAX_TEXTS:
                return None
            texts.append(text)
    return tuple(texts)


def _texts_in(name: str, value: object, depth: int) -> Iterator[ArgumentText | None]:
    if depth > _MAX_ARGUMENT_DEPTH:
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
        head, _, field = name.partition(".")
        for value in _values(arguments, head):
            if field:
                yield from texts_under(value, (field,))
            # The usual case, for which two generators would cost more than the rest of a decision.
            elif isinstance(value, str):
                if value:
                    yield value
            elif value is not None:
                # Lists and objects below it name paths as well.
                yield from (text.text for text in _texts_in("", value, 0) if text is not None and text.text)


def _values(arguments: object, name: str) -> Iterator[object]:
    if isinstance(arguments, Mapping):
        value = arguments.get(name)
        if isinstance(value, list | tuple):
            yield from value
        elif value is not None:
            yield value


def named_paths(
    arguments: Mapping[str, Any], texts: Iterable[ArgumentText], declared: tuple[str, ...] | None
) -> tuple[str, ...]:
    """Return the paths in the declared parameters; without a declaration, in those whose names say so."""
    if declared is None:
        candidates: Iterable[str] = (text.text for text in texts if text.text and is_path_name(text.name))
    else:
        candidates = texts_under(arguments, declared)
    return tuple(dict.fromkeys(map(plain_path, candidates)))


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
    """Return a path as programs write it, from a `file:` URL or unchanged."""
    if text[:5].lower() != "file:":
        return text
    location = text[5:]
    if location.startswith("//"):
        location = "/" + location[2:].partition("/")[2]
    from urllib.parse import unquote

    return unquote(location)


COMMAND_FIELDS = ("command", "cmd", "script")
PATH_FIELDS = (
    # Every spelling that our own tools accept.
    *("path", "file_path", "filePath", "filepath", "file", "filename", "absolute_path", "target_file"),
    *("notebook_path", "directory", "dir", "dir_path", "folder", "cwd", "root", "files"),
)
URL_FIELDS = ("url", "urls", "uri", "link")
_AGENTS = ("subagent_type", "agent", "agent_type", "type", "name")
_MAX_BASES = 12
_ANYTHING: frozenset[EffectKind] = frozenset({"read", "write", "execute", "network", "spawn"})

_CAPABLE: Mapping[EffectKind, frozenset[EffectKind]] = {
    "read": frozenset({"read", "write", "execute"}),
    "write": frozenset({"write", "execute"}),
    "execute": frozenset({"execute"}),
    "network": frozenset({"network", "execute"}),
    "spawn": frozenset({"spawn"}),
}
"""Subjects of rules, with the effects of tools that may act on them: a program may do anything with files and hosts."""


@lru_cache(maxsize=64)
def _subjects(effects: frozenset[EffectKind]) -> frozenset[EffectKind]:
    return frozenset(subject for subject, capable in _CAPABLE.items() if effects & capable)


class JudgedCall:
    """One call. Costly properties are computed on first use."""

    def __init__(self, use: ToolUse, folders: RunFolders, *, masked: bool = False) -> None:
        """`masked`: the sandbox hides and protects what rules about files forbid, whatever a command does."""
        names = canonical(use.tool) if use.tool not in TOOL_EFFECTS else ()
        self.tool = names[0] if len(names) == 1 else use.tool
        self.arguments: Mapping[str, Any] = use.arguments if isinstance(use.arguments, Mapping) else {}
        self.effects: frozenset[EffectKind] = use.effects or TOOL_EFFECTS.get(self.tool, frozenset())
        self.is_foreign = self.tool not in TOOL_EFFECTS
        """Whether it is a tool of a plugin, a program or a server."""
        self.possible = self.effects or (_ANYTHING if self.is_foreign else self.effects)
        """Its possible effects: all of them, where it declares none."""
        self.subjects = _subjects(self.possible)
        self._declared = use.paths if use.paths is not None else PATH_PARAMETERS.get(self.tool)
        self.confined = use.confined
        self.stopped = use.stopped
        self.masked = masked
        self.folders = folders.now()
        self.is_shell = self.tool == "bash"
        self.is_server = self.tool.startswith("mcp__")

    @cached_property
    def script(self) -> Script:
        texts = [self.arguments[name] for name in COMMAND_FIELDS if isinstance(self.arguments.get(name), str)]
        # With two spellings of the command, a rule could look at one and the tool run the other.
        if len(texts) != 1:
            return Script(doubts=("it names no command, or more than one",))
        script = analyse(texts[0])
        doubts = tuple(self._surprises(script))
        return replace(script, doubts=(*script.doubts, *doubts)) if doubts else script

    def _surprises(self, script: Script) -> Iterator[str]:
        """Yield what the files in the command's folders would change about the command."""
        bases = self._bases(script.moves)
        patterns = any(has_option(step.words[1:], GLOB) for step in script.all_steps())
        if patterns and any(map(_has_dashed, bases)):
            yield "a pattern in it may become a file name that is taken for an option; put ./ before it"
        names = script.names()
        creates = script.writes or bool(names & WRITERS)
        if script.moves and "git" in names and (creates or any(map(_hides_repository, bases[1:]))):
            yield "git may take a folder there for a repository of its own, whose settings can start programs"

    @cached_property
    def text(self) -> str:
        """All texts among its arguments."""
        return " ".join(value for value in self.arguments.values() if isinstance(value, str))

    @cached_property
    def touched(self) -> tuple[tuple[str, bool], ...]:
        """The files of a command line, and whether it changes them."""
        files = [(file.path, file.writes) for file in self.script.opened]
        for step in self.script.all_steps():
            if step.name not in SPEAKING and not step.inner:
                files += _touched_by(step)
        return tuple(dict.fromkeys(files))

    @cached_property
    def bases(self) -> tuple[str, ...]:
        """Return where relative paths of the command may start from: `cd` moves, or fails to."""
        return self._bases(self.script.moves if self.is_shell else ())

    def _bases(self, moves: tuple[str, ...]) -> tuple[str, ...]:
        bases = dict.fromkeys([self.folders.cwd])
        for move in moves:
            bases |= dict.fromkeys(self.folders.absolute(move, base) for base in tuple(bases))
            # Each `cd` may fail, so the number of folders doubles.
            if not is_known(move) or len(bases) > _MAX_BASES:
                bases[HOLE] = None
                break
        return tuple(bases)

    @cached_property
    def git_programs(self) -> GitPrograms | None:
        """Return what git would start in the folders where it may run, and nobody has consented to. Where the text
        cannot be judged, or other programs start commands, every folder that it names may be one."""
        words = self._words_beside_git()
        if not words:
            return None
        from retinue.guard.gitconfig import find_repository, git_programs

        called = {word.lower() for word in words}
        tops: dict[Path, Path] = {}
        for folder in self._named_folders(words):
            repository = find_repository(folder)
            if repository is not None:
                tops.setdefault(repository[1], repository[0])
        for top in tops.values():
            programs = git_programs(top, aliases=called.__contains__)
            consented = self.folders.consented
            if programs is not None and not (consented and consented(programs.path, programs.content)):
                return programs
        return None

    def _words_beside_git(self) -> frozenset[str]:
        """Return the words of a text that may start git, quoted ones included; none where it cannot."""
        if _GIT.search(self.text) is None:
            return frozenset()
        steps = self.script.all_steps()
        if self.script.doubts or any(step.name == "git" or step.name in CARRIERS or step.opaque for step in steps):
            return frozenset(_WORD.findall(self.text))
        return frozenset()

    def _named_folders(self, words: frozenset[str]) -> Iterator[Path]:
        for base in filter(is_known, self.bases):
            yield Path(base)
            for word in words:
                folder = Path(self.folders.absolute(word, base))
                if len(word) <= _MAX_PATH_CHARACTERS and folder.is_dir():
                    yield folder

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Return the paths that the call certainly names. A tool that declares paths and gets none works in the working
        directory."""
        if not self.is_foreign:
            paths = tuple(dict.fromkeys(texts_under(self.arguments, PATH_FIELDS)))
        else:
            paths = named_paths(self.arguments, self.texts, self._declared)
        return paths or ((".",) if self._declared and not self.hosts else ())

    @cached_property
    def suspects(self) -> tuple[str, ...]:
        """The texts that may be paths as well, because the tool does not say which of its parameters are."""
        if self._declared is not None:
            return ()
        return tuple(dict.fromkeys(text for name, text in self.texts if text and not is_path_name(name)))

    @property
    def hides_paths(self) -> bool:
        """Whether it declares that it reads or writes files, but not which parameters are paths."""
        touches = bool(self.effects & {"read", "write"})
        return self.is_foreign and not self.is_server and touches and self._declared is None

    @property
    def texts(self) -> tuple[ArgumentText, ...]:
        return self._all_texts or ()

    @property
    def is_too_large(self) -> bool:
        """Whether its arguments are too large to be checked."""
        return self._all_texts is None

    @cached_property
    def _all_texts(self) -> tuple[ArgumentText, ...] | None:
        return all_texts(self.arguments)

    @cached_property
    def commands(self) -> tuple[tuple[str, bool], ...]:
        """For a tool that is no shell: the texts that may be commands, and whether they certainly are. A program and
        its arguments may be texts of their own."""
        sure = tuple(texts_under(self.arguments, COMMAND_FIELDS))
        others = [argument.text for argument in self.texts if argument.text not in sure]
        named = [*sure, *(" ".join((command, *others)) for command in sure)] if others else list(sure)
        joined = " ".join(argument.text for argument in self.texts)
        return (*((text, True) for text in named), *((text, False) for text in dict.fromkeys([*others, joined])))

    @property
    def writes(self) -> bool:
        return "write" in self.effects and not self.is_shell and not self.is_server

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        if self.is_shell:
            urls = self._urls_of_commands()
        elif self.is_foreign:
            urls = addresses(self.texts)
        else:
            urls = texts_under(self.arguments, URL_FIELDS if "network" in self.effects else ())
        return tuple(dict.fromkeys(map(host_of, urls)))

    def _urls_of_commands(self) -> Iterator[str]:
        for step in self.script.all_steps():
            for word in step.words[1:]:
                start = word.find("://")
                if start > 0:
                    yield word[max(word.rfind("=", 0, start) + 1, 0) :]
                elif step.name in ("curl", "wget") and not word.startswith("-") and "." in word:
                    yield f"https://{word}"

    @cached_property
    def agents(self) -> tuple[str, ...]:
        """The agents that it would start; general-purpose where our own tool is given none."""
        if self.tool not in STARTING_TOOLS and not (self.is_foreign and "spawn" in self.possible):
            return ()
        agents = tuple(dict.fromkeys(_named_agents(self.arguments)))
        return agents or (() if self.is_foreign else ("general-purpose",))


def _touched_by(step: Step) -> Iterator[tuple[str, bool]]:
    writes = read_paths(step) is None and (step.name in WRITERS or step.name == "git")
    for path in searched_files(step):
        yield path, writes
        if step.name == "git" and ":" in path:
            yield path.partition(":")[2], writes
        if path.startswith("@"):
            # As in `curl -d @file`.
            yield path[1:], writes


def _hides_repository(folder: str) -> bool:
    """Return whether git would find a bare repository there, or above: any clone can have such a folder."""
    while folder.strip("/"):
        if all(map(os.path.lexists, (f"{folder}/HEAD", f"{folder}/objects", f"{folder}/refs"))):
            return True
        if os.path.lexists(f"{folder}/.git"):
            return False
        folder = folder.rpartition("/")[0]
    return False


def _has_dashed(folder: str) -> bool:
    try:
        return has_option(os.listdir(folder), "-")  # noqa: PTH208 - quick
    except (OSError, ValueError):
        return False


def host_of(url: str) -> str:
    """Return the host of a URL in lower case, or a hole if it is unknown."""
    location = url.partition("://")[2] if "://" in url else url
    authority = location.replace("\\", "/").partition("/")[0].partition("?")[0].partition("#")[0]
    host = authority.rpartition("@")[2]
    host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    host = host.rstrip(".").lower()
    if not host or not is_known(host) or not host.isprintable() or " " in host or "%" in host:
        return HOLE
    # Letters that look alike must not pass for another host.
    if not host.isascii():
        try:
            return host.encode("idna").decode("ascii")
        except UnicodeError:
            return HOLE
    return host


def _named_agents(arguments: object, depth: int = 0) -> Iterator[str]:
    if depth > 4:
        return
    if isinstance(arguments, Mapping):
        for name in _AGENTS if depth == 0 else _AGENTS[:3]:
            if isinstance(arguments.get(name), str):
                yield arguments[name].strip()
                break
        for inner in arguments.values():
            if isinstance(inner, Mapping | list | tuple):
                yield from _named_agents(inner, depth + 1)
    elif isinstance(arguments, list | tuple):
        for inner in arguments:
            yield from _named_agents(inner, depth + 1)
