"""One rule, `Tool` or `Tool(specifier)`, and patterns against texts that are only partly known.

Parsing does not interpret specifiers: their meaning depends on the tool and is decided when a call is matched. For a
text that is not a rule, parsing returns a sentence with the reason.

Before the shell runs, a part of a word such as `build/$NAME` is unknown. A mark replaces that part: `HOLE` can become
anything, and `GLOB` is a file name pattern, which stays in its folder. A pattern with the wildcard `*` matches such a
text always, perhaps, or never.

The `permission` map of an agent's file is an ordered list in which the last matching entry decides.
Our rules have no order, so each entry that restricts becomes a rule whose exceptions are the later,
weaker entries. An entry that cannot become a rule restricts every call of its tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.permission import READ_ONLY, EffectKind
from retinue.core.spec import PermissionRule
from retinue.core.tool_names import (
    RULE_EFFECTS,
    STARTING_TOOLS,
    TOOL_EFFECTS,
    canonical,
    form_problem,
    matching_tools,
    misspelt_tool,
    shape_problem,
    split_entry,
)

HOLE = "\0"
GLOB = "\1"
_MARK = re.compile("[\0\1]")

NO: Literal[0] = 0
MAYBE: Literal[1] = 1
YES: Literal[2] = 2
Match = Literal[0, 1, 2]


def is_known(text: str) -> bool:
    return HOLE not in text and GLOB not in text


def shown(text: str) -> str:
    """Return a text with marks for people to read."""
    return text.replace(HOLE, "…").replace(GLOB, "*")


def match(pattern: str, text: str) -> Match:
    """Return whether `pattern` (in which only `*` is special, and spans everything) matches `text`."""
    if _fits(pattern, text):
        return YES
    if is_known(text):
        return NO
    # The text of a mark is unknown: the parts before the first and after the last mark must not contradict the pattern.
    fixed, parts = _MARK.split(text), pattern.split("*")
    begins = fixed[0].startswith(parts[0]) or parts[0].startswith(fixed[0])
    ends = fixed[-1].endswith(parts[-1]) or parts[-1].endswith(fixed[-1])
    # A file name pattern stays in its folder.
    deeper = HOLE not in text and pattern.count("/") > text.count("/")
    if begins and ends and not deeper:
        return MAYBE
    return NO


def _fits(pattern: str, text: str) -> bool:
    """Return whether the parts between the stars occur in the text in their order."""
    first, *parts = pattern.split("*")
    if not parts:
        return pattern == text
    last = parts.pop()
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for piece in parts:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


Kind = Literal["deny", "ask", "allow"]

SHELL = frozenset({"bash"})
READING = frozenset(tool for tool, effects in TOOL_EFFECTS.items() if "read" in effects and effects <= READ_ONLY)
WRITING = frozenset(tool for tool, effects in TOOL_EFFECTS.items() if "write" in effects and "execute" not in effects)
FETCHING = frozenset(tool for tool, effects in TOOL_EFFECTS.items() if "network" in effects and effects <= READ_ONLY)
"""Retinue's own tools by what they do: an allow rule covers no others."""


class Rule(Struct, frozen=True):
    """`tools` are the canonical names it covers; `glob` is set instead for MCP servers and
    patterns of names. `base` is the folder that patterns with a leading slash start from."""

    kind: Kind
    text: str
    tools: frozenset[str]
    glob: str | None = None
    specifier: str | None = None
    source: str = ""
    base: str = "/"
    unless: tuple[Rule, ...] = ()
    """Exceptions of a rule that forbids or asks: it does not apply to calls that these rules cover."""
    effect: EffectKind | None = None
    """The effect that it is about, in tools of any name; None for a rule about its tool alone (`Grep`, `mcp__a__b`)."""

    @property
    def bare(self) -> bool:
        """Whether the rule covers the tool with any arguments."""
        return self.specifier is None

    def __str__(self) -> str:
        return f"{self.kind} {self.text}"


def parse_rule(text: object, kind: Kind, *, source: str = "", base: str = "/") -> Rule | str:
    """Return the rule, or the problem with the text."""
    if not isinstance(text, str):
        return "is not a text"
    written = text.strip()
    wrong = shape_problem(written) if kind == "allow" else form_problem(written)
    if wrong is not None:
        return wrong.why
    name, specifier = split_entry(written)
    names = _names(name, kind, specifier)
    if isinstance(names, str):
        return names
    tools, glob = names
    effect = next((RULE_EFFECTS[tool] for tool in canonical(name) if tool in RULE_EFFECTS), None)
    if specifier == "*":
        specifier = None
    problem = _senseless(tools, glob, kind, specifier)
    return problem or Rule(kind, written, tools, glob, specifier, source, base, (), effect)


def widest_rule(text: object, kind: Kind, *, source: str = "", base: str = "/") -> Rule | None:
    """Return the rule that replaces a deny or ask rule which cannot be parsed. It covers every call of the tool that
    the text begins with, or every call if that is not a tool or the text may name more tools. Return None for an allow
    rule or an empty text, which restrict nothing."""
    if kind == "allow" or (isinstance(text, str) and not text.strip()):
        return None
    beginning = re.fullmatch(r"\s*([A-Za-z_][\w-]*)\s*(?:\([^()]*\)?)?\s*", text) if isinstance(text, str) else None
    widest = "*"
    if beginning is not None and (beginning[1].startswith("mcp__") or canonical(beginning[1])):
        widest = beginning[1]
        # Every file, for every tool that reads or changes files.
        if set(canonical(widest)) & (READING | WRITING):
            widest = f"{widest}(**)"
    rule = parse_rule(widest, kind, source=source, base=base)
    return rule if isinstance(rule, Rule) else None


def with_tools(rule: Rule) -> Iterator[Rule]:
    """Yield a rule, and after one that forbids by a pattern of names the rules for the tools of ours which have such a
    name in any dialect: `Web*` is about `fetch_content` too."""
    yield rule
    if rule.glob in (None, WILDCARD) or rule.kind == "allow":
        return
    for tool in sorted(matching_tools(rule.glob or "")):
        tool_rule = parse_rule(tool, rule.kind, source=rule.source, base=rule.base)
        if isinstance(tool_rule, Rule):
            yield replace(tool_rule, text=rule.text)


def names_tool(rule: Rule, tool: str) -> bool:
    """Return whether the rule is about this tool at all."""
    if rule.kind == "allow":
        return tool in rule.tools if rule.glob is None else match(rule.glob, tool) == YES
    # A rule that forbids or asks ignores the case of letters.
    if rule.glob is None:
        served = tool.startswith("mcp__") and tool.lower() in map(str.lower, rule.tools)
        return tool in rule.tools or served
    return match(rule.glob.lower(), tool.lower()) == YES


def takes_away(rule: Rule, tool: str, effects: frozenset[EffectKind]) -> bool:
    """Return whether a rule is about every call of a tool. Our own tools and those of servers have names that rules
    can use; a tool of a plugin or program is also meant by what it does."""
    if rule.specifier is not None:
        return False
    if names_tool(rule, tool):
        return True
    return rule.effect in effects and tool not in TOOL_EFFECTS and not tool.startswith("mcp__")


def is_about_files(rule: Rule) -> bool:
    """Return whether a rule keeps files from being read or changed."""
    named = rule.specifier is None or not rule.specifier.startswith("domain:")
    return named and rule.effect in ("read", "write")


def rule_of_pattern(tool: str, pattern: str, kind: Kind, *, source: str, base: str) -> Rule | str:
    """Return the rule for `Bash(git *)` of an agent file, which arrives as tool and pattern."""
    return parse_rule(f"{tool}({pattern})", kind, source=source, base=base)


def _names(name: str, kind: Kind, specifier: str | None) -> tuple[frozenset[str], str | None] | str:
    if name.startswith("mcp__"):
        return _server_names(name, kind)
    if "*" in name:
        if kind == "allow":
            return "allows by a pattern of names, which only deny and ask rules may; name the tools"
        return frozenset(), name.lower()
    tools = frozenset(canonical(name)) or frozenset({name})
    # A rule about editing a file is a rule about writing it, whatever the tool is called.
    if "edit" in tools or (specifier is not None and kind != "allow" and tools & WRITING):
        tools |= WRITING
    if tools == {"read"} and specifier is not None:
        tools = READING if kind == "allow" else READING | WRITING
    return tools | (STARTING_TOOLS if tools & STARTING_TOOLS else frozenset()), None


def _server_names(name: str, kind: Kind) -> tuple[frozenset[str], str | None] | str:
    server, _, tool = name.removeprefix("mcp__").partition("__")
    if kind == "allow" and ("*" in server or not server):
        return "allows MCP tools without naming their server; write mcp__server or mcp__server__*"
    if not server:
        return "names no MCP server"
    if "*" not in name and tool:
        return frozenset({name}), None
    return frozenset(), name if tool or "*" in server else f"{name}__*"


def _senseless(tools: frozenset[str], glob: str | None, kind: Kind, specifier: str | None) -> str | None:
    if specifier is None:
        return None
    if glob is not None and kind == "allow":
        return "narrows an MCP server by a parameter, which only deny and ask rules may"
    if glob is not None and matching_tools(glob):
        return "narrows a pattern of names, which means something else for each tool; name the tools"
    if tools & FETCHING and not tools & READING and kind == "allow" and not specifier.startswith("domain:"):
        return "must have the form domain:host"
    own_tools = tools & (SHELL | READING | WRITING | FETCHING | STARTING_TOOLS)
    meant = None if own_tools else next(filter(None, map(misspelt_tool, tools)), None)
    if meant is not None and kind == "allow":
        return f"names no tool; '{meant}' may be meant"
    if not own_tools and ":" not in specifier:
        return "has a specifier that this tool does not understand; param:value is possible in deny and ask rules"
    if kind == "allow" and (not own_tools or (tools & STARTING_TOOLS and ":" in specifier)):
        return "allows by a parameter, which only deny and ask rules may"
    return None


class Limit(Struct, frozen=True):
    """The calls that an agent's file permits of a tool: `Bash(git *)` among its tools. Any other call is denied."""

    tool: str
    rules: tuple[Rule, ...]
    agent: str = ""
    effect: EffectKind | None = None
    """Tools of plugins and programs with this effect are limited as well, unless the file has an entry for them."""
    named: tuple[str, ...] = ()
    """The tools that the file has entries for, as patterns of names."""


WILDCARD = "*"
_URL = re.compile(r"(?:https?|\*)://([\w.*-]+)(?:[/:].*)?")


def rules_of_file(
    entries: Sequence[PermissionRule], *, source: str, base: str
) -> tuple[tuple[Rule, ...], tuple[Limit, ...]]:
    """Return the rules and limits of a file's `permission` map. Never raise."""
    rules: list[Rule] = []
    limits: list[Limit] = []
    named = tuple(dict.fromkeys(entry.tool.lower() for entry in entries if entry.tool != WILDCARD))
    for tool in _tools_of(entries):
        chain = _from_last_for_all([entry for entry in entries if _is_about(entry, tool)])
        parse = partial(_rule_of_entry, tool, source=source, base=base)
        # If the first entry denies everything, only calls that later entries name are permitted.
        if chain and chain[0].pattern == WILDCARD and chain[0].verdict == "deny":
            permitted = _permitting(chain[1:], ("allow", "ask"), parse)
            limits.append(Limit(tool, permitted, source, RULE_EFFECTS.get(tool), named))
        for index, entry in enumerate(chain):
            if entry.verdict == "allow" or (entry.verdict == "deny" and entry.pattern == WILDCARD):
                continue
            milder = ("allow", "ask") if entry.verdict == "deny" else ("allow",)
            rule = parse(entry.pattern, entry.verdict) or parse(WILDCARD, entry.verdict)
            if rule is not None:
                rules.append(replace(rule, unless=_permitting(chain[index + 1 :], milder, parse)))
    return tuple(dict.fromkeys(rules)), tuple(limits)


def _permitting(
    entries: Iterable[PermissionRule], verdicts: tuple[str, ...], parse: Callable[[str, Kind], Rule | None]
) -> tuple[Rule, ...]:
    rules = (parse(entry.pattern, "allow") for entry in entries if entry.verdict in verdicts)
    return tuple(rule for rule in rules if rule is not None)


def _rule_of_entry(tool: str, pattern: str, kind: Kind, *, source: str, base: str) -> Rule | None:
    """Return the rule for one pattern of an entry; None for one that means nothing to this tool."""
    specifier = pattern
    if pattern != WILDCARD and tool in FETCHING:
        host = _URL.fullmatch(pattern)
        if host is None:
            return None
        specifier = f"domain:{host[1]}"
    elif pattern != WILDCARD and tool in STARTING_TOOLS and WILDCARD in pattern:
        return None
    rule = parse_rule(tool if specifier == WILDCARD else f"{tool}({specifier})", kind, source=source, base=base)
    return rule if isinstance(rule, Rule) else None


def _tools_of(entries: Iterable[PermissionRule]) -> tuple[str, ...]:
    """Return the tools that the entries are about, by the names a call has. A pattern that covers none of
    our own is about tools of MCP servers."""
    tools: dict[str, None] = {}
    for entry in entries:
        own = [tool for tool in TOOL_EFFECTS if _is_about(entry, tool)]
        tools.update(dict.fromkeys(own or [_server_tool_name(entry.tool)]))
    return tuple(tools)


def _is_about(entry: PermissionRule, tool: str) -> bool:
    name = entry.tool
    if name in (WILDCARD, tool) or _server_tool_name(name) == tool:
        return True
    if name == "edit":
        return tool in WRITING
    tools = canonical(name)
    if tools:
        return tool in tools or (tool in STARTING_TOOLS and bool(STARTING_TOOLS & set(tools)))
    return WILDCARD in name and fnmatchcase(tool.lower(), name.lower())


def _server_tool_name(name: str) -> str:
    """Return opencode's `server_tool` as the name that a tool of a server has here."""
    return name if name.startswith("mcp__") else f"mcp__{name.replace('_', WILDCARD)}"


def _from_last_for_all(entries: list[PermissionRule]) -> list[PermissionRule]:
    """Return the entries without those that a later entry about every call overrides."""
    last = 0
    for index, entry in enumerate(entries):
        if entry.pattern == WILDCARD:
            last = index
    return entries[last:]
