"""An agent definition after translation: frozen, hashed, with its origin.

Tri-state fields (`bool | None`) keep "not said" apart from "no": only what a file says locks
out the caller. A value the file got wrong is None here and a problem in the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, assert_never

from msgspec import UNSET, Struct, UnsetType

from retinue.core.foreign import Provenance
from retinue.core.usage import Budget

Source = Literal["policy", "flag", "project", "user", "plugin", "builtin"]


class AgentIdentity(NamedTuple):
    """What tells one agent from another: an agent of the same name from elsewhere, or with another content, is another
    one."""

    name: str
    source: Source
    digest: str


DialectName = Literal[
    "claude", "pi", "devkit", "codingcode", "retinue", "opencode", "gemini", "copilot", "cursor", "generic", "kimi"
]
PermissionMode = Literal["default", "acceptEdits", "plan", "dontAsk", "auto", "bypassPermissions"]
MemoryScope = Literal["user", "project", "local"]
ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
FateKind = Literal["honoured", "translated", "ignored"]
Severity = Literal["error", "warning", "info"]


def provenance_of(source: Source) -> Provenance:
    """Return whose files a source holds."""
    match source:
        case "policy" | "flag" | "user" | "builtin":
            return "person"
        case "project" | "plugin":
            return source
        case _:
            assert_never(source)


class Fate(Struct, frozen=True):
    """What became of one key of a file. `to` names the field of the spec, `why` the reason."""

    fate: FateKind
    to: str | None = None
    why: str | None = None


class Problem(Struct, frozen=True):
    """One thing to fix. `line` and `column` are 1-based and count in the file as it is."""

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
    """What a file says about calls of a tool that match `pattern`; `*` is every tool, every call."""

    tool: str
    pattern: str
    verdict: Literal["allow", "ask", "deny"]


class ToolPolicy(Struct, frozen=True):
    """`allow` None means every tool the run may have; an empty tuple means none at all.
    Names stay as written: aliases are resolved where the tools are."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    selectors: tuple[str, ...] = ()
    extensions: bool | tuple[str, ...] | None = None
    exclude_extensions: tuple[str, ...] = ()
    rules: tuple[PermissionRule, ...] = ()
    """In the order of the file: of those that match a call, the last one counts."""


class ModelPolicy(Struct, frozen=True):
    """`name` None inherits the parent's model. `fallbacks` are tried in order."""

    name: str | None = None
    fallbacks: tuple[str, ...] = ()
    thinking: str | None = None
    temperature: float | None = None


class ServerRef(Struct, frozen=True):
    """An MCP server: shared by `name`, or with `config` for this run only."""

    name: str
    config: Mapping[str, Any] | None = None


class HookSpec(Struct, frozen=True):
    """One handler of one event, whichever of the two shapes the file used."""

    event: str
    handler: Mapping[str, Any]
    matcher: str | None = None
    timeout_seconds: float | None = None


class SessionPolicy(Struct, frozen=True):
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
    """Whether other agents are told of it; people can start it in any case."""
    tools: ToolPolicy = ToolPolicy()
    model: ModelPolicy = ModelPolicy()
    max_turns: int | None = None
    """0 means explicitly unlimited, None means not said."""
    timeout_seconds: float | None = None
    budget: Budget | None = None
    """What a run of it and all below it may spend."""
    prompt_mode: Literal["replace", "append"] = "replace"
    initial_prompt: str | None = None
    inherit_context: bool | None = None
    omit_instructions: bool | None = None
    """As a sub-agent it is not told what AGENTS.md, CLAUDE.md and their like say."""
    compact_at_tokens: int | None = None
    """Its conversation is shortened at this size; it only lowers what holds anyway."""
    background: bool | None = None
    isolated: bool | None = None
    isolation: Literal["worktree", "off"] | None = None
    placement: str | None = None
    """Where its runs work: local, cluster, or cluster:LABEL,LABEL."""
    memory: MemoryScope | None = None
    skills: bool | tuple[str, ...] | None = None
    """None: as the dialect does; a bool: inherit all or none; names: preload exactly these."""
    servers: tuple[ServerRef, ...] | None = None
    required_servers: tuple[str, ...] = ()
    hooks: tuple[HookSpec, ...] = ()
    permission_mode: PermissionMode | None = None
    readonly: bool | None = None
    rollback: Literal["on-failure"] | None = None
    """Files it changed go back to how they were when it does not succeed."""
    subagents: bool | tuple[str, ...] | None = None
    """Which agents it may start: any, none, these; None leaves it to its tools."""
    output_schema: Mapping[str, Any] | None = None
    session: SessionPolicy = SessionPolicy()
    extra: Mapping[str, Any] = {}
    """Keys without effect, kept so that converting and writing back lose nothing."""

    source: Source = "project"
    path: str | None = None
    dialect: DialectName = "retinue"
    fates: Mapping[str, Fate] = {}
    problems: tuple[Problem, ...] = ()
    """What reading its file found wrong; said at every run."""
    hash: str = ""
    foreign: bool | UnsetType = UNSET
    """It was read from a record that other machines write, whatever `source` says of the file there."""

    @property
    def provenance(self) -> Provenance:
        if self.foreign:
            return "machine"
        return provenance_of(self.source)

    @property
    def refusal(self) -> Problem | None:
        """Why the agent must not be started: a key that restricts it could not be read."""
        return next((problem for problem in self.problems if problem.refuses), None)
