"""Which tools of extensions an agent's file means: `extensions`, `exclude_extensions`, `ext:`.

An extension is what brings tools beside the built-in ones: a plugin here, MCP servers elsewhere
(`retinue.capabilities.mcp.scope`). The words and rules are pi's:

    extensions: false             none            isolated: true      none, whatever else is said
    extensions: [git, ./own.py]   only these      extensions: [*, …]  all, and these
    exclude_extensions: [web]     all but these; exclude wins
    tools: read, ext:git          of extensions only the tools of git
    tools: ext:git/status         only this one; several add up, and narrow `ext:git`

Names match in any case, names of tools exactly. What matches nothing is a note and stops no run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.spec import AgentSpec, ToolPolicy

PREFIX = "extension-error:"
_EVERY = "*"
_LISTS_BUILTINS = frozenset({"pi"})
"""Dialects whose list of tools says nothing about those of extensions."""


class Extension(Struct, frozen=True):
    """`names` in lower case: those by which a file may mean it, its path if the file brings it by
    one. `title` is for people. `serves` says that it also brings MCP servers."""

    title: str
    names: frozenset[str]
    tools: tuple[str, ...] = ()
    serves: bool = False


class Scoped(Struct, frozen=True):
    """`tools` are those of extensions that the run may have; `policy` is the file's with its
    selectors resolved."""

    policy: ToolPolicy
    tools: frozenset[str]
    notes: tuple[str, ...] = ()


def is_path(entry: str) -> bool:
    """Return whether an entry of `extensions` is a path and no name."""
    return "/" in entry or "\\" in entry or entry.startswith("~")


def own_paths(spec: AgentSpec) -> tuple[str, ...]:
    """Return the extensions that an agent's file brings by path."""
    listed = spec.tools.extensions
    if spec.isolated or not isinstance(listed, tuple):
        return ()
    return tuple(filter(is_path, listed))


def scope_extensions(
    spec: AgentSpec, policy: ToolPolicy, extensions: Sequence[Extension], *, others: Collection[str] = ()
) -> Scoped:
    """Resolve what a file says of extensions. `policy` is the spec's, perhaps with more in it. `others` are names, in
    lower case, of extensions that are dealt with elsewhere."""
    plain = replace(policy, selectors=())
    if spec.isolated:
        return Scoped(plain, frozenset())
    names = _Names(spec, extensions, frozenset(others))
    loaded = list(filter(names.loads, extensions))
    tools = _selected(policy.selectors, loaded, names)
    if tools is None:
        tools = [name for each in loaded for name in each.tools]
    if policy.allow is not None and _implied(spec):
        listed = tuple(entry for entry in policy.allow if entry.strip().lower() != "none")
        plain = replace(plain, allow=(*listed, *tools))
    return Scoped(plain, frozenset(tools), tuple(dict.fromkeys(names.notes)))


def _implied(spec: AgentSpec) -> bool:
    """Return whether tools of extensions come on top of a list of tools that does not name them."""
    return bool(spec.dialect in _LISTS_BUILTINS or spec.tools.selectors or spec.tools.extensions)


class _Names:
    """What the file says about extensions by name, and what is wrong with it."""

    def __init__(self, spec: AgentSpec, extensions: Sequence[Extension], others: frozenset[str]) -> None:
        self._agent = spec.name
        self.known = frozenset().union(others, *(each.names for each in extensions))
        self.others = others
        said = spec.tools.extensions
        listed: list[str] = []
        self._only: set[str] | None = None
        if isinstance(said, tuple):
            listed = list(map(str.strip, said))
            if _EVERY not in listed:
                self._only = set(map(str.lower, listed))
        self._off = said is False
        self._excluded = {each.strip().lower() for each in spec.tools.exclude_extensions}
        self.notes: list[str] = []
        self._check([each for each in listed if each != _EVERY and not is_path(each)], spec)

    def _check(self, listed: Sequence[str], spec: AgentSpec) -> None:
        if self._off and self._excluded:
            self.warn("exclude_extensions has no effect, because extensions is false")
            return
        for name in listed:
            if name.lower() in self._excluded:
                self.warn(f'"{name}" is in extensions and in exclude_extensions: exclude wins')
            elif name.lower() not in self.known:
                self.warn(f'extension "{name}" is not loaded')
        for name in spec.tools.exclude_extensions:
            if name.strip().lower() not in self.known:
                self.warn(f'exclude_extensions: "{name}" matches no extension')

    def loads(self, extension: Extension) -> bool:
        if self._off or extension.names & self._excluded:
            return False
        return self._only is None or bool(extension.names & self._only)

    def is_other(self, name: str) -> bool:
        """Return whether a selector is about an extension that is dealt with elsewhere."""
        return name in self.others

    def warn(self, text: str) -> None:
        self.notes.append(f'{PREFIX}{text} (agent "{self._agent}")')


def _selected(selectors: Sequence[str], loaded: Sequence[Extension], names: _Names) -> list[str] | None:
    """Return the tools that the `ext:` selectors leave; None without selectors."""
    if not selectors:
        return None
    wanted: dict[str, list[str]] = {}
    for selector in selectors:
        extension, _, tool = selector.removeprefix("ext:").partition("/")
        if extension.strip():
            wanted.setdefault(extension.strip().lower(), []).extend(filter(None, [tool.strip()]))
    found: list[str] = []
    for name, only in wanted.items():
        matching = [each for each in loaded if name in each.names]
        if not matching and not names.is_other(name):
            names.warn(f"ext:{name} selects from an extension that is not loaded")
        tools = _by_name(matching)
        for tool in only:
            if matching and tool not in tools and not any(each.serves for each in matching):
                names.warn(f'ext:{name}/{tool}: extension "{matching[0].title}" has no tool of that name')
        found += [tool for tool in tools if tool in only or not only]
    return list(dict.fromkeys(found))


def _by_name(extensions: Sequence[Extension]) -> Mapping[str, Extension]:
    return {tool: each for each in extensions for tool in each.tools}
