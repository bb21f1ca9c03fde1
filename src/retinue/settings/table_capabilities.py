"""The part of the table about what a run can do besides its own work: context, plugins and questions,
MCP servers, schedules, worktrees, the sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from retinue.settings.field import Values, setting
from retinue.settings.kinds import Anything, Choice, Either, Flag, Number, Table, Text, Texts, Whole

_FLAG = Flag()


# fmt: off
class ContextSettings(Values):
    instructions_enabled: bool = setting(
        True, _FLAG, name="instructions.enabled", section="context", applies="next run",
        doc="Tell the main agent, and agents that are twins of it, what AGENTS.md and CLAUDE.md say.",
    )
    memory_enabled: bool = setting(
        True, _FLAG, name="memory.enabled", section="context", applies="next run",
        doc="Give agents whose files ask for it a memory that lasts from one run to the next.",
    )
    skills_paths: tuple[str, ...] = setting(
        (), Texts(), name="skills.paths", section="context", applies="next run",
        doc="Further folders with skills. In a project's files only folders of the project count.",
    )


class PluginSettings(Values):
    plugins: tuple[str, ...] = setting(
        (), Texts(), section="plugins", applies="next run",
        doc="Further plugins by path, each a folder or a Python file, beside those in .retinue/plugins and in your "
        "own plugins folder. The lists of all settings files add up. Code, hooks and servers of plugins that a "
        "project brings need your consent: retinue trust.",
    )
    disabled_plugins: tuple[str, ...] = setting(
        (), Texts(), section="plugins", applies="next run",
        doc="Plugins to leave out, by name. A project's settings switch off only plugins that a project brings.",
    )

    questions: Literal["wait", "continue"] = setting(
        "wait", Choice("wait", "continue"), section="sub-agents",
        doc="Whether an agent that asks something (ask_parent) waits for the answer, or goes on and hears it later.",
    )


class ServerSettings(Values):
    mcp_servers: Mapping[str, Any] = setting(
        {}, Table(Anything(), "server names"), section="servers", applies="next run", merges=True,
        aliases=("mcp_servers",),
        doc="MCP servers by name: command, args, env and cwd for a program, or url and headers (type: http or sse); "
        "also timeout, concurrency, autoReconnect, disabled and, in your own settings only, trustAnnotations. "
        "${VAR} and ${VAR:-default} are filled in.",
    )
    mcp_start_timeout_seconds: float = setting(
        10.0, Number(0.1, 600, unit="seconds"), name="mcp.startTimeoutSeconds", section="servers", applies="next run",
        doc="How long a launch waits for the servers of its agent; three times as long for required ones. Tools of a "
        "server that is ready later are admitted then.",
    )
    mcp_claude_servers: bool = setting(
        True, Flag(), name="mcp.claudeServers", section="servers", applies="next run",
        doc="Use the servers of your ~/.claude.json, too.",
    )
    tool_search_mode: Literal["auto", "always", "never"] = setting(
        "auto", Choice("auto", "always", "never"), name="toolSearch.mode", section="servers", applies="next run",
        doc="Whether tools of servers are told to the model by name only, and loaded when it searches for them.",
    )


class ScheduleSettings(Values):
    scheduling_enabled: bool = setting(
        True, _FLAG, section="schedules", applies="next session",
        doc="Let agents be started on a schedule; switching it off stops all timers at once.",
    )


class WorktreeSettings(Values):
    worktree_isolation: bool = setting(
        True, _FLAG, section="worktrees", applies="next session",
        doc="Let agents and callers ask for a git worktree of their own.",
    )
    worktree_from_dirty: bool = setting(
        False, _FLAG, name="worktree.fromDirty", section="worktrees", applies="next run",
        doc="Begin worktrees with the uncommitted changes of the main checkout, as one commit.",
    )
    worktree_base_ref: Literal["head", "fresh"] = setting(
        "head", Choice("head", "fresh"), name="worktree.baseRef", section="worktrees", applies="next run",
        doc="Where worktrees begin: at HEAD, or at the remote's default branch, fetched once a day.",
    )
    worktree_shell: Literal["confined", "checked"] = setting(
        "confined", Choice("confined", "checked"), name="worktree.shell", section="worktrees", applies="next run",
        personal_when="checked".__eq__,
        doc="What becomes of the shell of an isolated agent on a host without a sandbox: it is withheld, or every "
        "command is checked, which stops accidents but not programs. `checked` counts only in your own settings.",
    )
    integrate_check: str | None = setting(
        None, Text("a command for the shell"), name="integrate.check", section="worktrees",
        doc="What must succeed before `retinue integrate` merges a branch; it runs in a copy with the branch in "
        "it. In a project's files it needs your consent.",
    )
# fmt: on


_MEGABYTES = Whole(0, 10**9, zero_is_none=True)


# fmt: off
class SandboxSettings(Values):
    sandbox_mode: Literal["off", "readonly-only", "workspace"] = setting(
        "readonly-only", Choice("off", "readonly-only", "workspace"), name="sandbox.mode",
        section="sandbox", applies="next run",
        doc="What may run outside of the sandbox. `readonly-only`: commands that you, a rule or the mode allowed; "
        "those nobody was asked about, and those of read-only agents, run inside read-only walls. `workspace`: "
        "nothing; allowed commands change nothing outside their workspace. `off`: everything; then only plain commands "
        "that read run unasked, and read-only agents have no shell.",
    )
    sandbox_network: str | tuple[str, ...] = setting(
        "off", Either(Choice("off", "on"), Texts()), name="sandbox.network", section="sandbox", applies="next run",
        personal_when=lambda value: bool(value) and value != "off",
        doc="What sandboxed shells reach: nobody (off), everybody (on), or the listed hosts (`pypi.org`, "
        "`*.example.com`) through a proxy that lets only them pass. More than `off` counts only in your own settings.",
    )
    sandbox_hidden: tuple[str, ...] = setting(
        (), Texts(), name="sandbox.hidden", section="sandbox", applies="next run",
        doc="Files and folders that sandboxed shells cannot see, besides those where keys are usually kept.",
    )
    sandbox_shown: tuple[str, ...] = setting(
        (), Texts(), name="sandbox.shown", section="sandbox", applies="next run",
        personal_when=bool,
        doc="Folders outside of the workspace that commands nobody was asked about may read, besides the system and "
        "its tools. Counts only in your own settings.",
    )
    sandbox_pass_environment: tuple[str, ...] = setting(
        (), Texts(), name="sandbox.passEnvironment", section="sandbox", applies="next run",
        personal_when=bool,
        doc="Names of environment variables that shells and hooks get although they look like secrets or are keys of "
        "model servers. Counts only in your own settings.",
    )
    sandbox_memory_mb: int | None = setting(
        8192, _MEGABYTES, name="sandbox.memoryMb", section="sandbox", applies="next run",
        doc="Megabytes of memory that one process of a sandboxed command may use.",
    )
    sandbox_scratch_mb: int | None = setting(
        1024, _MEGABYTES, name="sandbox.scratchMb", section="sandbox", applies="next run",
        doc="Megabytes that the scratch folder ($TMPDIR) of one run may hold. A sandboxed command that writes more is "
        "stopped; later ones can only remove files until there is room.",
    )
# fmt: on
