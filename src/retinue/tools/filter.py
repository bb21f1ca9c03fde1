"""The tools of a run: those that its file allows, without those that the file denies or the run may not have.

Names are resolved here (aliases of every dialect, patterns of MCP servers). Rights depend on the effects that a tool
declares, never on its name. The result reports how each name in the file was resolved. A list that resolves to no
tool is refused, because an agent without the tools that its author expected invents its answers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from fnmatch import fnmatchcase
from types import MappingProxyType

from msgspec import Struct, field

from retinue.core.permission import READ_ONLY
from retinue.core.spec import AgentSpec, ToolPolicy
from retinue.core.tool import Tool, ToolSpec
from retinue.core.tool_names import (
    RULE_EFFECTS,
    TOOL_EFFECTS,
    base_name,
    canonical,
    entry_problem,
    form_problem,
    matching_tools,
    served_alias,
    split_entry,
    split_selector,
)

_ALL_TOOLS = frozenset({"*", "all"})
_MAX_NAMED = 5
_NOT_FOR_SUBAGENTS = frozenset(
    "askuserquestion endconversation enterplanmode exitplanmode schedulewakeup taskoutput waitformcpservers"
    " workflow".split()
)


class ToolSelection(Struct, frozen=True):
    """`refusal`, if set, completes "Agent 'x' …"; the run must not start then.

    `unrecognised` names are unknown, `unavailable` ones are not for this run, and
    `unmatched` ones are known but no such tool is in this session; `missing` are the notes about
    them, which are among `notes`. `allowed_patterns` and
    `denied_patterns` hold what stood in parentheses (`Bash(git *)`), by tool, for the guard.
    """

    tools: Mapping[str, Tool]
    unrecognised: tuple[str, ...] = ()
    unavailable: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    allowed_patterns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    denied_patterns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refusal: str | None = None
    denies_unreadably: bool = False
    """Whether the reason for the refusal is an unreadable entry that denies, not an empty list of tools."""


EVERY_EXTENSION = "*"
SERVER_EXTENSION = "mcp"
"""The name under which all MCP servers together are one extension."""
_LISTS_BUILTINS = frozenset({"pi"})
"""Dialects in which the list of tools covers built-in tools only, not tools of extensions."""


class ExtensionScope:
    """The extensions (plugins and MCP servers) that an agent's file selects. The keys are those of pi:

        extensions: false             none            isolated: true      none, whatever else is said
        extensions: [git, ./own.py]   only these      extensions: [*, …]  all, and these
        exclude_extensions: [web]     all but these; exclude wins
        tools: read, ext:git          of extensions only the tools of git
        tools: ext:git/status         only this one; several add up, and narrow `ext:git`

    Names of extensions match in any case, names of tools exactly. A name that matches nothing stops no run."""

    def __init__(self, spec: AgentSpec) -> None:
        tools = spec.tools
        self.off = bool(spec.isolated) or tools.extensions is False
        self.listed: tuple[str, ...] = ()
        self._only: frozenset[str] | None = None
        if isinstance(tools.extensions, tuple):
            self.listed = tuple(map(str.strip, tools.extensions))
            if EVERY_EXTENSION not in self.listed:
                self._only = frozenset(map(str.lower, self.listed))
        self.excluded = {name.strip().lower(): name for name in tools.exclude_extensions}
        self.selectors = tuple(map(split_selector, tools.selectors))
        self.lists_builtins = spec.dialect in _LISTS_BUILTINS
        self.adds_to_list = self.lists_builtins or bool(self.selectors)
        """Whether tools of extensions are added to the tools that the list names."""

    def loads(self, names: Set[str]) -> bool:
        """Return whether the agent has the extension with these `names`."""
        if self.off or not names.isdisjoint(self.excluded):
            return False
        return self._only is None or not names.isdisjoint(self._only)

    def selects(self, names: Set[str], tool: Set[str] = frozenset()) -> bool:
        """Return whether the selectors, if there are any, select a tool of that extension with the names `tool`.
        Without a tool, return whether they select anything of the extension."""
        if not self.selectors:
            return True
        chosen = [selected for extension, selected in self.selectors if extension in names]
        narrowed = set(filter(None, chosen))
        return bool(chosen) and (not tool or not narrowed or not narrowed.isdisjoint(tool))


def select_tools(
    policy: ToolPolicy,
    available: Mapping[str, Tool],
    *,
    readonly: bool = False,
    denied_above: Sequence[str] = (),
    shell_sandbox: bool = False,
    allow_spawn: bool = True,
    agent: str = "",
    absent: Mapping[str, str] = MappingProxyType({}),
) -> ToolSelection:
    """Select the tools of a run. `denied_above` are the tools that the files of agents above the run deny by name.
    `shell_sandbox` tells that this host can keep a shell from writing; without it a read-only run has none.
    `allow_spawn` is False at the depth limit or where the file does not let the agent delegate. Selectors of extensions
    (`ext:`) are resolved before: those left here matched nothing. `absent` has the reasons why tools that exist cannot
    work here."""
    asked = _Asked(policy.allow, available)
    above = _denied(denied_above, available)[0]
    denied, denied_patterns = _denied(policy.deny, available, _named(policy, asked, available))
    permitted: dict[str, Tool] = {}
    notes: list[str] = []
    withheld: list[str] = []
    unlisted: dict[str, list[str]] = {}
    for name in asked.names:
        spec = available[name].spec
        if spec.name in above:
            reason: str | None = _DENIED_ABOVE
        elif "spawn" in spec.effects and not allow_spawn:
            reason = "this run may not start agents"
        else:
            reason = _why_not(spec, readonly=readonly, shell_sandbox=shell_sandbox)
        if reason is None:
            permitted[name] = available[name]
        elif name not in denied and not asked.listed and (name not in TOOL_EFFECTS or reason == _DENIED_ABOVE):
            unlisted.setdefault(reason, []).append(name)
        elif name not in denied and (asked.listed or reason == _NO_SANDBOX):
            withheld.append(name)
            notes.append(f"{name} is withheld: {reason}")
    for reason, names in unlisted.items():
        notes.append(f"{_some(names)} withheld: {reason}")
    missing = asked.notes(agent, absent)
    missing += [f"{selector} matched no extension in this session" for selector in policy.selectors]
    refusal = None
    if asked.listed and not permitted and not policy.selectors:
        refusal = _refusal(asked, notes)
    problems = (_unreadable_denial(entry, available) for entry in (*policy.deny, *denied_above))
    unreadable = next(filter(None, problems), None)
    denies_unreadably = refusal is None and unreadable is not None
    refusal = refusal or unreadable
    if refusal is not None:
        permitted = {}
    for name in denied & permitted.keys():
        del permitted[name]
    return ToolSelection(
        tools=permitted,
        unrecognised=tuple(asked.unrecognised),
        unavailable=tuple(asked.unavailable + withheld),
        unmatched=tuple(asked.unmatched),
        missing=tuple(missing),
        allowed_patterns=asked.patterns,
        denied_patterns=denied_patterns,
        notes=tuple(missing + notes),
        refusal=refusal,
        denies_unreadably=denies_unreadably,
    )


def _some(names: Sequence[str]) -> str:
    """Return the first names as the beginning of a sentence, because a server may have hundreds of tools."""
    shown = ", ".join(names[:_MAX_NAMED])
    if len(names) > _MAX_NAMED:
        return f"{shown} and {len(names) - _MAX_NAMED} more tools are"
    return f"{shown} {'is' if len(names) == 1 else 'are'}"


def memory_tools(present: Collection[str], *, readonly: bool) -> tuple[str, ...]:
    """Return the tools that an agent with a memory folder lacks to read it and, unless it is read-only, to write it."""
    return tuple(name for name in ("read", "write", "edit")[: 1 if readonly else 3] if name not in present)


class _Asked:
    """The entries of an allow list, sorted into the tools they name and the reasons why a tool is missing.
    `listed` is True if the list names tools one by one."""

    def __init__(self, allow: Sequence[str] | None, available: Mapping[str, Tool]) -> None:
        self.names: list[str] = []
        self.unrecognised: list[str] = []
        self.unavailable: list[str] = []
        self.unmatched: list[str] = []
        self.patterns: dict[str, tuple[str, ...]] = {}
        self.named: set[str] = set()
        if allow is None:
            self.listed = False
            self.names = list(available)
            return
        entries = list(filter(None, map(str.strip, allow)))
        words = set(map(str.lower, entries))
        everything = not words.isdisjoint(_ALL_TOOLS)
        nothing = words <= {"none"}
        self.listed = not everything and not nothing
        if everything:
            self.names = list(available)
        for entry in dict.fromkeys(entries):
            if entry.lower() not in _ALL_TOOLS and not nothing:
                self._add(entry, available)

    def _add(self, entry: str, available: Mapping[str, Tool]) -> None:
        name, pattern = split_entry(entry)
        tools: tuple[str, ...] = ()
        # A pattern over all servers would allow tools that the author of the file has not seen.
        if not name.startswith("mcp__*"):
            tools = resolve(name, available)
        self.named.update(tools)
        for tool in tools:
            if tool not in self.names:
                self.names.append(tool)
            if pattern is not None:
                self.patterns[tool] = (*self.patterns.get(tool, ()), pattern)
        if tools:
            return
        if base_name(name).lower() in _NOT_FOR_SUBAGENTS:
            self.unavailable.append(name)
        elif canonical(name) or (name.startswith("mcp__") and not name.startswith("mcp__*")):
            self.unmatched.append(name)
        else:
            self.unrecognised.append(name)

    def notes(self, agent: str, absent: Mapping[str, str]) -> list[str]:
        by = f' requested by agent "{agent}"' if agent else ""
        asker = f', which the agent "{agent}" asks for' if agent else ""
        notes = [f'There is no tool "{name}"{asker}: correct the name' for name in self.unrecognised]
        notes += [f"{name} is not available to subagents" for name in self.unavailable]
        missing: list[str] = []
        for name in self.unmatched:
            reasons = list(filter(None, map(absent.get, canonical(name))))
            if reasons:
                missing.append(f"{name}{by} is missing: {reasons[-1]} `retinue doctor` says what to install.")
            elif canonical(name) not in _OPTIONAL_TOOLS:
                notes.append(f"{name} matched no tools in this session")
        return [*notes, *missing]


_OPTIONAL_TOOLS = (("tool_search",),)
"""Tools that Retinue adds when they are useful. If one is absent, no note reports it as missing."""
_DENIED_ABOVE = "denied by the file of an agent above it"
_NO_SANDBOX = "the agent is read-only, and no sandbox here can keep a shell from writing"


def _why_not(spec: ToolSpec, *, readonly: bool, shell_sandbox: bool) -> str | None:
    """Return why a run may not have a tool; None if it may."""
    # A tool of ours that only starts agents makes those of a read-only run read-only.
    starts_readonly = spec.name in TOOL_EFFECTS and spec.effects <= READ_ONLY | {"spawn"}
    if not readonly or spec.effects <= READ_ONLY or starts_readonly:
        return None
    # Only a shell can be confined; a tool that writes is simply not for this run.
    if "execute" not in spec.effects:
        return "the agent is read-only"
    if not spec.confinable or "spawn" in spec.effects:
        return "the agent is read-only, and this tool starts programs outside of any sandbox"
    return None if shell_sandbox else _NO_SANDBOX


def resolve(name: str, available: Mapping[str, Tool]) -> tuple[str, ...]:
    """Return the available tools that `name` stands for: itself, an alias, or a pattern."""
    if name in available:
        return (name,)
    if name.startswith("mcp__"):
        return _served(name, available)
    builtins = tuple(filter(available.__contains__, canonical(name)))
    if builtins:
        return builtins
    # A tool of a program or a server may be written in another case.
    plain = base_name(name).lower()
    same_name = tuple(tool for tool in available if tool.lower() == plain)
    if same_name:
        return same_name
    alias = served_alias(name)
    if alias is not None:
        return _served(alias, available)
    return _served_with_one_mark(name, available)


def _served_with_one_mark(name: str, available: Mapping[str, Tool]) -> tuple[str, ...]:
    """Return the tools of MCP servers that opencode's `server_tool`, which may contain `*`, names."""
    if "_" not in name:
        return ()
    served = {tool: tool.removeprefix("mcp__").replace("__", "_") for tool in available if tool.startswith("mcp__")}
    return tuple(tool for tool, plain in served.items() if fnmatchcase(plain, name))


def _served(name: str, available: Mapping[str, Tool]) -> tuple[str, ...]:
    """Return the tools of MCP servers that `mcp__server`, `mcp__server__tool` or a pattern stands for."""
    if name in available:
        return (name,)
    if "*" not in name:
        name = f"{name}__*"
    return tuple(tool for tool in available if fnmatchcase(tool, name))


def _denied(
    deny: Sequence[str], available: Mapping[str, Tool], named: Collection[str] = ()
) -> tuple[frozenset[str], dict[str, tuple[str, ...]]]:
    """Return the tools that are denied altogether, and patterns of denied calls. Globs may deny any tool. A pattern
    stays where the run lacks its tool: others have the same effect, and runs below may have the tool. `named` are
    tools that no denial of another tool removes."""
    names: set[str] = set()
    patterns: dict[str, tuple[str, ...]] = {}
    for entry in deny:
        name, pattern = split_entry(entry)
        own: Collection[str] = matching_tools(name) if "*" in name else canonical(name)
        if name.lower() in _ALL_TOOLS:
            denied: tuple[str, ...] = tuple(available)
        elif "*" in name or name.startswith("mcp__"):
            # A denial ignores the case of letters and applies to every name of a tool.
            pattern_of_names = name.lower() if "*" in name else f"{name.lower()}*"
            denied = tuple(
                candidate
                for candidate in available
                if candidate in own or fnmatchcase(candidate.lower(), pattern_of_names)
            )
        else:
            denied = resolve(name, available)
        if pattern is None:
            names.update(denied, _with_effect_of(own, available).difference(named))
            continue
        for tool in dict.fromkeys((*denied, *own)) or (name,):
            patterns[tool] = (*patterns.get(tool, ()), pattern)
    return frozenset(names), patterns


def _with_effect_of(own: Collection[str], available: Mapping[str, Tool]) -> set[str]:
    """Return the tools of plugins and programs that may do what these tools of Retinue are denied for: a tool that
    declares no effects may do anything. Tools of servers have names that files can use."""
    effects = {RULE_EFFECTS[tool] for tool in own if tool in RULE_EFFECTS}
    foreign = {name: tool.spec.effects for name, tool in available.items() if name not in TOOL_EFFECTS}
    return {
        name
        for name, declared in foreign.items()
        if effects and not name.startswith("mcp__") and (not declared or declared & effects)
    }


def _named(policy: ToolPolicy, asked: _Asked, available: Mapping[str, Tool]) -> set[str]:
    """Return the tools that the file itself names, in its list of tools or its `permission` map."""
    patterns = [rule.tool.lower() for rule in policy.rules if rule.tool not in _ALL_TOOLS]
    return asked.named | {name for name in available if any(fnmatchcase(name.lower(), pattern) for pattern in patterns)}


def _unreadable_denial(entry: str, available: Mapping[str, Tool]) -> str | None:
    """Return the refusal for a deny entry that cannot be understood, whichever file it is in."""
    problem = entry_problem(entry) if entry.strip() else None
    if problem is None or (form_problem(entry) is None and resolve(split_entry(entry)[0], available)):
        return None
    return f"denies '{entry}', which {problem.why}, so it is not started. {problem.remedy}".rstrip()


def _refusal(asked: _Asked, withheld: Sequence[str]) -> str:
    groups = {
        "unrecognized": asked.unrecognised,
        "not available to subagents": asked.unavailable,
        "matched no tools in this session": asked.unmatched,
    }
    reasons = [f"{label} [{', '.join(names)}]" for label, names in groups.items() if names]
    return "would be spawned with zero tools — refusing. Its tools list resolved to nothing: " + "; ".join(
        [*reasons, *withheld]
    )
