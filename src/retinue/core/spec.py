"""The definition of an agent after translation: frozen, hashed, with its origin.

A field of type `bool | None` is None if the file does not set it: a caller can only set what the file leaves open. A
wrong value in the file is None here and a problem in the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, assert_never, get_args

from msgspec import UNSET, Struct, UnsetType

from retinue.core.foreign import Provenance
from retinue.core.usage import Budget

Source = Literal["policy", "flag", "project", "user", "plugin", "builtin"]


class AgentIdentity(NamedTuple):
    """The identity of an agent: one of the same name from another source, or with other content, is a different
    agent."""

    name: str
    source: Source
    digest: str


DialectName = Literal[
    "claude", "pi", "devkit", "codingcode", "retinue", "opencode", "gemini", "copilot", "cursor", "generic", "kimi"
]
PermissionMode = Literal["default", "acceptEdits", "plan", "dontAsk", "auto", "bypassPermissions"]
MemoryScope = Literal["user", "project", "local"]
ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
THINKING_LEVELS: tuple[ThinkingLevel, ...] = get_args(ThinkingLevel)
FateKind = Literal["honoured", "translated", "ignored"]
Severity = Literal["error", "warning", "info"]


def provenance_of(source: Source) -> Provenance:
    """Return the provenance of the files of a source."""
    match source:
        case "policy" | "flag" | "user" | "builtin":
            return "person"
        case "project" | "plugin":
            return source
        case _:
            assert_never(source)


class Fate(Struct, frozen=True):
    """How a key of a file was handled. `to` names the field of the spec, `why` the reason."""

    fate: FateKind
    to: str | None = None
    why: str | None = None


class Problem(Struct, frozen=True):
    """A problem of a file. `line` and `column` begin at 1."""

    code: str
    severity: Severity
    message: str
    remedy: str = ""
    key: str | None = None
    line: int | None = None
    column: int | None = None
    refuses: bool = False
    """The agent is not started until this is corrected."""


class PermissionRule(Struct, frozen=True):
    """A rule of a file about calls of a tool that match `pattern`. `*` is every tool or every call."""

    tool: str
    pattern: str
    verdict: Literal["allow", "ask", "deny"]


class ToolPolicy(Struct, frozen=True):
    """The tools of an agent. `allow` None means every tool that the run may have, an empty tuple means none. Names are
    as written in the file: aliases are resolved later."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    selectors: tuple[str, ...] = ()
    extensions: bool | tuple[str, ...] | None = None
    exclude_extensions: tuple[str, ...] = ()
    rules: tuple[PermissionRule, ...] = ()
    """In the order of the file: the last rule that matches a call is applied."""


class ModelPolicy(Struct, frozen=True):
    """The model of an agent. `name` None means that of its parent. `fallbacks` are tried in order."""

    name: str | None = None
    fallbacks: tuple[str, ...] = ()
    thinking: str | None = None
    temperature: float | None = None


class ServerRef(Struct, frozen=True):
    """An MCP server: the shared one called `name`, or one with `config` for this run only."""

    name: str
    config: Mapping[str, Any] | None = None


class HookSpec(Struct, frozen=True):
    """A handler of one event."""

    event: str
    handler: Mapping[str, Any]
    matcher: str | None = None
    timeout_seconds: float | None = None


class SessionPolicy(Struct, frozen=True):
    """What is kept of the runs of an agent, and where."""

    persist: bool | None = None
    directory: str | None = None
    transcript: bool | None = None


class AgentSpec(Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    prompt: str = ""
    display_name: str | None = None
    color: str | None = None
    enabled: bool = True
    offered: bool = True
    """Whether it is listed for other agents. People can always start it."""
    tools: ToolPolicy = ToolPolicy()
    model: ModelPolicy = ModelPolicy()
    max_turns: int | None = None
    """0 means explicitly unlimited, None that the file does not set it."""
    timeout_seconds: float | None = None
    budget: Budget | None = None
    """The budget of a run with all its descendants."""
    prompt_mode: Literal["replace", "append"] = "replace"
    initial_prompt: str | None = None
    inherit_context: bool | None = None
    omit_instructions: bool | None = None
    """As a sub-agent it does not get the instructions of AGENTS.md, CLAUDE.md and similar files."""
    compact_at_tokens: int | None = None
    """Its conversation is shortened at this size, if the usual limit is not lower."""
    background: bool | None = None
    isolated: bool | None = None
    isolation: Literal["worktree", "off"] | None = None
    placement: str | None = None
    """Where its runs execute: local, cluster, or cluster:LABEL,LABEL."""
    memory: MemoryScope | None = None
    skills: bool | tuple[str, ...] | None = None
    """None: as the dialect does; a bool: inherit all or none; names: preload exactly these."""
    servers: tuple[ServerRef, ...] | None = None
    required_servers: tuple[str, ...] = ()
    hooks: tuple[HookSpec, ...] = ()
    permission_mode: PermissionMode | None = None
    readonly: bool | None = None
    rollback: Literal["on-failure"] | None = None
    """The files that it changed are restored if it does not succeed."""
    subagents: bool | tuple[str, ...] | None = None
    """The agents it may start: any, none, or these. None: its tools decide."""
    output_schema: Mapping[str, Any] | None = None
    session: SessionPolicy = SessionPolicy()
    extra: Mapping[str, Any] = {}
    """Keys without effect, kept so that conversion loses nothing."""

    source: Source = "project"
    path: str | None = None
    dialect: DialectName = "retinue"
    fates: Mapping[str, Fate] = {}
    problems: tuple[Problem, ...] = ()
    """The problems of its file, which every run reports."""
    hash: str = ""
    foreign: bool | UnsetType = UNSET
    """It comes from a record that other machines write, whatever its `source` is there."""

    @property
    def provenance(self) -> Provenance:
        if self.foreign:
            return "machine"
        return provenance_of(self.source)

    @property
    def refusal(self) -> Problem | None:
        """The reason why the agent must not be started: a restricting key could not be read."""
        return next((problem for problem in self.problems if problem.refuses), None)
