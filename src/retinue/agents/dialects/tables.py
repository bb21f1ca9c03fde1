"""Every dialect that Retinue reads, one table each, and what each calls the tools.

`LIMITING` are the rows that count in every dialect because they limit an agent. `UNION` are the fields of all dialects
in snake_case, every other spelling accepted: Retinue's own files, and agent files of no known home (`.agents`,
`.kiro/agents`, `.qwen/agents` …). `agents/folders.py` says where the files of each dialect are.
"""

from __future__ import annotations

from collections.abc import Mapping

from retinue.agents.dialects.table import Dialect, FieldRow
from retinue.agents.dialects.tools import DENY, ONLY, PI_TOOLS, RULES, SPACED_TOOLS, TOOL_LIST_KIND
from retinue.agents.dialects.values import (
    ALL_OR_NAMES,
    ANY_VALUE,
    BUDGET,
    DEVKIT_READONLY,
    DISABLED,
    DURATION_SECONDS,
    ENABLED,
    EXACT_ISOLATED,
    EXACT_TRUE,
    EXCLUDED,
    HIDDEN_SWITCH,
    HOOKS,
    ISOLATED,
    ISOLATION,
    LABEL,
    MEMORY,
    MINUTES,
    MODE,
    MODEL,
    NAME_LIST,
    PLACEMENT,
    PRIMARY,
    PROMPT_MODE,
    READONLY,
    ROLE,
    ROLLBACK,
    SANDBOX,
    SCHEMA,
    SERVERS,
    STEPS,
    SUBAGENTS,
    SWITCH,
    SWITCHED_ON,
    TEMPERATURE,
    TEXT,
    THINKING,
    TIMEOUT,
    TURNS,
    WORKTREE,
)
from retinue.core.spec import DialectName
from retinue.core.tool_names import TOOL_EFFECTS, canonical

NAME_ROW = FieldRow("name", LABEL, "name")
DESCRIPTION = FieldRow("description", LABEL, "description")
TOOL_LIST = FieldRow("tools", TOOL_LIST_KIND, "tools.allow")

SLIP = "not a key of this dialect; read as what it obviously limits"

LIMITING: tuple[FieldRow, ...] = (
    FieldRow("enabled", SWITCHED_ON, "enabled", note="a key of Retinue and pi, honoured in every dialect"),
    FieldRow("disabled", DISABLED, "enabled", ("disable",), note="a key of CodingCode, honoured in every dialect"),
    FieldRow("readonly", READONLY, "readonly", ("read_only", "readOnly"), note="enforced by Retinue in every dialect"),
    FieldRow(
        "tools",
        TOOL_LIST_KIND,
        "tools.allow",
        ("allowed_tools", "allowedTools", "allow_tools", "allow-tools"),
        note=SLIP,
    ),
    FieldRow("allowed-tools", SPACED_TOOLS, "tools.allow", note=SLIP),
    FieldRow(
        "disallowed_tools",
        DENY,
        "tools.deny",
        (
            "disallowedTools",
            "disallowed-tools",
            "deny",
            "denied_tools",
            "deny_tools",
            "deny-tools",
            "exclude_tools",
            "excluded_tools",
            "forbidden_tools",
            "blocked_tools",
        ),
        note=SLIP,
    ),
    FieldRow("max_turns", TURNS, "max_turns", ("maxTurns", "max-turns"), note=SLIP),
    FieldRow("max_steps", STEPS, "max_turns", ("maxSteps", "steps"), note=SLIP),
    FieldRow(
        "timeout_seconds", DURATION_SECONDS, "timeout_seconds", note="a key of Retinue, honoured in every dialect"
    ),
    FieldRow("timeout", TIMEOUT, "timeout_seconds", note=SLIP),
    FieldRow("timeout_mins", MINUTES, "timeout_seconds", note=SLIP),
    FieldRow("extensions", ALL_OR_NAMES, "tools.extensions", note="a key of pi, honoured in every dialect"),
    FieldRow("exclude_extensions", EXCLUDED, "tools.exclude_extensions", note="a key of pi, honoured in every dialect"),
    FieldRow("worktree", WORKTREE, "isolation", note=SLIP),
    FieldRow("budget", BUDGET, "budget", note="a key of Retinue, honoured in every dialect"),
    FieldRow("permission_mode", MODE, "permission_mode", ("permissionMode",), note=SLIP),
    FieldRow("isolation", ISOLATION, "isolation", note=SLIP),
    FieldRow("placement", PLACEMENT, "placement", note="a key of Retinue, honoured in every dialect"),
    FieldRow("isolated", ISOLATED, "isolated", note="a key of pi, honoured in every dialect"),
    FieldRow("permission", RULES, "tools.rules", note="a key of opencode, honoured in every dialect"),
    FieldRow("output_schema", SCHEMA, "output_schema", note="a key of Retinue, honoured in every dialect"),
    FieldRow("sandbox", SANDBOX, "readonly", ("sandbox_mode",), note="a key of Codex: read-only is enforced"),
    FieldRow("allowed_subagents", SUBAGENTS, "subagents", ("allowedSubagents",), note=SLIP),
)
"""Keys that a file of any dialect may have. Those whose note is SLIP are reported: their own loader ignores them, and
the author most likely does not know."""


def unused(*keys: str, note: str = "not used by Retinue", misses: bool = False) -> tuple[FieldRow, ...]:
    """Return rows for keys that the dialect knows and Retinue does not use: they are kept and reported."""
    return tuple(FieldRow(key, ANY_VALUE, None, note=note, misses=misses) for key in keys)


OUR_TOOLS: Mapping[str, str] = dict(zip(TOOL_EFFECTS, TOOL_EFFECTS, strict=True))

UNION: tuple[FieldRow, ...] = (
    NAME_ROW,
    FieldRow("display_name", TEXT, "display_name", ("displayName",)),
    DESCRIPTION,
    FieldRow("color", TEXT, "color"),
    FieldRow("tools", TOOL_LIST_KIND, "tools.allow"),
    FieldRow("disallowed_tools", DENY, "tools.deny", ("disallowedTools",)),
    FieldRow("permission", RULES, "tools.rules", note="tools to allow, ask or deny, as opencode has it"),
    FieldRow("extensions", ALL_OR_NAMES, "tools.extensions", ("inherit_extensions",)),
    FieldRow("exclude_extensions", EXCLUDED, "tools.exclude_extensions"),
    FieldRow("isolated", ISOLATED, "isolated", note="no extensions, no skills, built-in tools only"),
    FieldRow("skills", ALL_OR_NAMES, "skills", ("inherit_skills",)),
    FieldRow("memory", MEMORY, "memory"),
    FieldRow("isolation", ISOLATION, "isolation"),
    FieldRow("placement", PLACEMENT, "placement", note="where its runs work"),
    FieldRow("model", MODEL, "model.name"),
    FieldRow("fallback_models", NAME_LIST, "model.fallbacks", ("fallbackModels",)),
    FieldRow("thinking", THINKING, "model.thinking", ("effort", "thinkingLevel", "reasoningEffort")),
    FieldRow("temperature", TEMPERATURE, "model.temperature"),
    FieldRow("max_turns", TURNS, "max_turns", ("maxTurns", "maxSteps", "steps")),
    FieldRow("timeout_seconds", DURATION_SECONDS, "timeout_seconds", ("timeout",)),
    FieldRow("budget", BUDGET, "budget", note="what a run of it and all below it may spend"),
    FieldRow("prompt_mode", PROMPT_MODE, "prompt_mode"),
    FieldRow("initial_prompt", TEXT, "initial_prompt", ("initialPrompt",)),
    FieldRow("inherit_context", SWITCH, "inherit_context"),
    FieldRow("omit_instructions", SWITCH, "omit_instructions", ("omitClaudeMd",), "counts as a sub-agent"),
    FieldRow("compact_at_tokens", STEPS, "compact_at_tokens", ("autoCompactWindow",), "only lowers the setting"),
    FieldRow("background", SWITCH, "background", ("run_in_background", "is_background")),
    FieldRow("permission_mode", MODE, "permission_mode", ("permissionMode",)),
    FieldRow("readonly", READONLY, "readonly"),
    FieldRow("rollback", ROLLBACK, "rollback", note="files it changed are put back when it fails"),
    FieldRow("mcp_servers", SERVERS, "servers", ("mcpServers", "mcp-servers")),
    FieldRow("required_mcp_servers", NAME_LIST, "required_servers", ("requiredMcpServers",)),
    FieldRow("hooks", HOOKS, "hooks"),
    FieldRow("allowed_subagents", SUBAGENTS, "subagents"),
    FieldRow("output_schema", SCHEMA, "output_schema", ("outputSchema",)),
    FieldRow("persist_session", SWITCH, "session.persist"),
    FieldRow("session_dir", TEXT, "session.directory"),
    FieldRow("output_transcript", SWITCH, "session.transcript"),
    FieldRow("enabled", ENABLED, "enabled"),
    FieldRow("disabled", DISABLED, "enabled"),
    FieldRow("hidden", HIDDEN_SWITCH, "offered", note="not offered to other agents"),
    FieldRow("prompt", TEXT, "prompt", ("systemPrompt",), "used when there is no text below the frontmatter"),
)

RETINUE = Dialect(
    name="retinue",
    title="Retinue",
    tool_names=OUR_TOOLS,
    folders=(".retinue/agents/**/*.md in every folder up to the repository root", "$RETINUE_HOME/agents/**/*.md"),
    name_rule="file",
    forbidden_in_name=":",
    foreign=LIMITING,
    fields=UNION,
)


GENERIC = Dialect(
    name="generic",
    title="other agent files",
    folders=("any other place, when a file is named to `retinue agents parse` or `lint`",),
    name_rule="file",
    foreign=LIMITING,
    fields=(
        *UNION,
        FieldRow("allowed_tools", TOOL_LIST_KIND, "tools.allow", ("allowedTools",)),
        FieldRow("allowed-tools", SPACED_TOOLS, "tools.allow"),
    ),
)


_CLAUDE_TOOLS = {
    "read": "Read", "write": "Write", "edit": "Edit", "bash": "Bash", "bash_output": "BashOutput", "grep": "Grep",
    "find": "Glob", "ls": "LS", "lsp": "LSP", "web_search": "WebSearch", "fetch_content": "WebFetch",
    "tool_search": "ToolSearch", "todo": "TodoWrite", "skill": "Skill", "ask_user": "AskUserQuestion", "Agent": "Agent",
}  # fmt: skip

CLAUDE = Dialect(
    name="claude",
    title="Claude Code",
    tool_names=_CLAUDE_TOOLS,
    one_model=True,
    folders=(".claude/agents/**/*.md in every folder up to the repository root", "~/.claude/agents/**/*.md"),
    description_required=True,
    frontmatter_required=True,
    forbidden_in_name=":",
    foreign=LIMITING,
    fields=(
        NAME_ROW,
        DESCRIPTION,
        TOOL_LIST,
        FieldRow("disallowedTools", DENY, "tools.deny"),
        FieldRow("model", MODEL, "model.name", note="only the lower-case word inherit means the parent's model"),
        FieldRow("effort", THINKING, "model.thinking"),
        FieldRow("maxTurns", STEPS, "max_turns"),
        FieldRow("permissionMode", MODE, "permission_mode"),
        FieldRow("background", SWITCH, "background"),
        FieldRow(
            "initialPrompt", TEXT, "initial_prompt", note="/name arguments at the start is the skill of that name"
        ),
        FieldRow("isolation", ISOLATION, "isolation"),
        FieldRow("memory", MEMORY, "memory"),
        FieldRow("skills", NAME_LIST, "skills", note="preloads these; other skills stay available"),
        FieldRow("mcpServers", SERVERS, "servers"),
        FieldRow("requiredMcpServers", NAME_LIST, "required_servers"),
        FieldRow("hooks", HOOKS, "hooks"),
        FieldRow("color", TEXT, "color"),
        FieldRow("omitClaudeMd", SWITCH, "omit_instructions", note="counts for runs that another agent starts"),
        FieldRow("autoCompactWindow", STEPS, "compact_at_tokens", note="tokens; only lowers the setting compaction.at"),
        *unused("observer", "observerMessage", note="not supported: no agent watches another one"),
        *unused("criticalSystemReminder_EXPERIMENTAL", note="not supported: the prompt is said once"),
    ),
    notes=(
        "A file without frontmatter is documentation, not an agent.",
        "A name with ':' or a leading '-' is refused.",
        "In a plugin, hooks, mcpServers and permissionMode are ignored, and a missing name is the file's name.",
    ),
)


_CODINGCODE_TOOLS = {
    "read": "read_file", "write": "write_file", "edit": "edit_file", "bash": "execute_command", "grep": "search_code",
    "find": "search_files", "ls": "list_dir", "fetch_content": "fetch_url", "web_search": "web_search",
    "tool_search": "tool_search", "Agent": "dispatch_agent", "dispatch_agent": "dispatch_agent",
}  # fmt: skip

CODINGCODE = Dialect(
    name="codingcode",
    title="CodingCode",
    tool_names=_CODINGCODE_TOOLS,
    one_model=True,
    lists_names=True,
    folders=(".codingcode/agents/*.md", "~/.codingcode/agents/*.md"),
    description_required=True,
    frontmatter_required=True,
    foreign=LIMITING,
    inherited_limits=("max_turns",),
    fields=(
        NAME_ROW,
        DESCRIPTION,
        FieldRow(
            "tools", TOOL_LIST.kind, "tools.allow", note="a comma text is the list it looks like, never all tools"
        ),
        FieldRow(
            "mcpServers", SERVERS, "servers", note="without it no server, but those that tools names (server:tool)"
        ),
        FieldRow("readonly", READONLY, "readonly"),
        FieldRow("maxSteps", STEPS, "max_turns"),
        FieldRow("model", MODEL, "model.name"),
        FieldRow("permissionMode", MODE, "permission_mode"),
        FieldRow("hooks", HOOKS, "hooks"),
        FieldRow("disabled", DISABLED, "enabled"),
        FieldRow("systemPrompt", TEXT, "prompt", note="used when there is no text below the frontmatter"),
    ),
)


_COPILOT_TOOLS = {
    "read": "read", "write": "edit/createFile", "edit": "edit", "bash": "execute",
    "bash_output": "execute/getTerminalOutput", "grep": "search/textSearch", "find": "search/fileSearch",
    "ls": "search/listDirectory", "lsp": "read/problems", "fetch_content": "web/fetch", "todo": "todo",
    "Agent": "agent",
}  # fmt: skip

COPILOT = Dialect(
    name="copilot",
    title="GitHub Copilot",
    tool_names=_COPILOT_TOOLS,
    lists_names=True,
    maps_servers=True,
    folders=(".github/agents/**/*.agent.md",),
    name_rule="file",
    suffixes=(".agent.md", ".md"),
    foreign=LIMITING,
    fields=(
        NAME_ROW,
        DESCRIPTION,
        FieldRow("tools", TOOL_LIST.kind, "tools.allow", note="set names (search), set/tool and server/* are kept"),
        FieldRow("model", MODEL, "model.name", note="a list is tried in order"),
        FieldRow("mcp-servers", SERVERS, "servers"),
        FieldRow("agents", SUBAGENTS, "subagents"),
        FieldRow("disable-model-invocation", HIDDEN_SWITCH, "offered", note="not offered to other agents"),
        *unused("argument-hint", "user-invocable", "handoffs", "handoff"),
        *unused("target", "infer", "mode", "hidden", "metadata"),
    ),
)


CURSOR = Dialect(
    name="cursor",
    title="Cursor",
    tool_names={**_CLAUDE_TOOLS, "edit": "StrReplace", "bash": "Shell", "lsp": "ReadLints", "Agent": "Task"},
    one_model=True,
    folders=(".cursor/agents/*.md", "~/.cursor/agents/*.md"),
    name_rule="file",
    foreign=LIMITING,
    fields=(
        NAME_ROW,
        DESCRIPTION,
        TOOL_LIST,
        FieldRow("model", MODEL, "model.name"),
        FieldRow("readonly", READONLY, "readonly"),
        FieldRow("is_background", SWITCH, "background"),
    ),
)


DEVKIT = Dialect(
    name="devkit",
    title="devkit-pi",
    tool_names=OUR_TOOLS,
    one_model=True,
    folders=("the nearest .pi/agents or .agents upward: *.md, *.markdown", "~/.pi/agent/agents"),
    frontmatter_required=True,
    suffixes=(".md", ".markdown"),
    simple=True,
    foreign=LIMITING,
    limits={"seconds": 900.0, "idle_seconds": 180.0},
    fields=(
        NAME_ROW,
        DESCRIPTION,
        FieldRow("readonly", DEVKIT_READONLY, "readonly"),
        TOOL_LIST,
        FieldRow("model", MODEL, "model.name"),
    ),
    notes=(
        "Every line is 'key: value', all text; a pair of quotes around a value is removed. "
        "A block with lists or nested values is read as YAML instead.",
        "In a shared folder a file is devkit-pi's if it has a name, a readonly key and no key that only pi knows. "
        "One without readonly is read as pi's, and writes only with allowWrite, as if it were devkit-pi's.",
    ),
)


_GEMINI_TOOLS = {
    "read": "read_file", "write": "write_file", "edit": "replace", "bash": "run_shell_command", "grep": "grep_search",
    "find": "glob", "ls": "list_directory", "fetch_content": "web_fetch", "web_search": "google_web_search",
    "skill": "activate_skill", "ask_user": "ask_user",
}  # fmt: skip

GEMINI = Dialect(
    name="gemini",
    title="Gemini CLI",
    tool_names=_GEMINI_TOOLS,
    one_model=True,
    lists_names=True,
    maps_servers=True,
    refuses_unknown_keys=True,
    folders=(".gemini/agents/*.md", "~/.gemini/agents/*.md"),
    name_rule="file",
    foreign=LIMITING,
    limits={"max_turns": 30, "seconds": 600.0},
    fields=(
        NAME_ROW,
        FieldRow("display_name", TEXT, "display_name"),
        DESCRIPTION,
        TOOL_LIST,
        FieldRow("mcp_servers", SERVERS, "servers", ("mcpServers",)),
        FieldRow("model", MODEL, "model.name"),
        FieldRow("temperature", TEMPERATURE, "model.temperature"),
        FieldRow("max_turns", STEPS, "max_turns"),
        FieldRow("timeout_mins", MINUTES, "timeout_seconds"),
        *unused("kind", note="only local agents are supported"),
        *unused("agent_card_url", "auth", note="remote agents are not supported"),
    ),
)


KIMI = Dialect(
    name="kimi",
    title="Kimi CLI",
    folders=("a *.yaml file named to `retinue agents parse`",),
    name_rule="file",
    suffixes=(".yaml", ".yml"),
    nested_under="agent",
    foreign=LIMITING,
    fields=(
        NAME_ROW,
        DESCRIPTION,
        FieldRow("when_to_use", TEXT, "description", ("whenToUse",), "used when there is no description"),
        TOOL_LIST,
        FieldRow("allowed_tools", ONLY, "tools.rules", ("allowedTools",), "narrows the tools further"),
        FieldRow("exclude_tools", DENY, "tools.deny", ("excludeTools",)),
        FieldRow("model", MODEL, "model.name"),
        FieldRow("thinkingLevel", THINKING, "model.thinking"),
        *unused("extend", "extends", note="the file it builds on is not read", misses=True),
        *unused("system_prompt_path", "systemPromptPath", note="the prompt's own file is not read", misses=True),
        FieldRow("system_prompt_args", ROLE, "prompt", ("promptVars",), "its role text is the prompt"),
        *unused("subagents", "version"),
    ),
)


_OPENCODE_TOOLS = {
    "read": "read", "write": "write", "edit": "edit", "bash": "bash", "grep": "grep", "find": "glob", "ls": "list",
    "lsp": "lsp", "fetch_content": "webfetch", "web_search": "websearch", "todo": "todowrite", "skill": "skill",
    "ask_user": "question", "Agent": "task",
}  # fmt: skip

OPENCODE = Dialect(
    name="opencode",
    title="opencode",
    tool_names=_OPENCODE_TOOLS,
    one_model=True,
    folders=(".opencode/agent/**/*.md", ".opencode/agents/**/*.md", "~/.config/opencode/agent/**/*.md"),
    name_rule="path",
    foreign=LIMITING,
    fields=(
        NAME_ROW,
        DESCRIPTION,
        FieldRow(
            "tools",
            TOOL_LIST.kind,
            "tools.allow",
            note="a map with any true allows only those; one with only false denies those",
        ),
        FieldRow("permission", RULES, "tools.rules", ("permissions",), "the last pattern that matches a call counts"),
        FieldRow("model", MODEL, "model.name"),
        FieldRow("reasoningEffort", THINKING, "model.thinking"),
        FieldRow("temperature", TEMPERATURE, "model.temperature"),
        FieldRow("steps", STEPS, "max_turns", ("maxSteps",)),
        FieldRow("prompt", TEXT, "prompt", note="used when there is no text below the frontmatter"),
        FieldRow("disable", DISABLED, "enabled"),
        FieldRow("color", TEXT, "color"),
        FieldRow("mode", PRIMARY, "offered", note="a primary agent is not offered to other agents"),
        FieldRow("hidden", HIDDEN_SWITCH, "offered", note="not offered to other agents"),
        *unused("top_p", "options", "variant"),
    ),
)


PI = Dialect(
    name="pi",
    title="pi",
    tool_names=OUR_TOOLS,
    folders=(".pi/agents/*.md", ".agents/agents/*.md", "$PI_CODING_AGENT_DIR/agents/*.md (default ~/.pi/agent)"),
    name_rule="file",
    forbidden_in_name=":",
    foreign=LIMITING,
    fields=(
        NAME_ROW,
        FieldRow("display_name", TEXT, "display_name"),
        DESCRIPTION,
        FieldRow("color", TEXT, "color"),
        FieldRow("tools", PI_TOOLS, "tools.allow", note="* is pi's seven; ext:NAME selects tools of an extension"),
        FieldRow("disallowed_tools", DENY, "tools.deny"),
        FieldRow("extensions", ALL_OR_NAMES, "tools.extensions", ("inherit_extensions",)),
        FieldRow("exclude_extensions", EXCLUDED, "tools.exclude_extensions"),
        FieldRow("skills", ALL_OR_NAMES, "skills", ("inherit_skills", "inheritSkills"), "names preload exactly these"),
        FieldRow("model", MODEL, "model.name"),
        FieldRow("fallbackModels", NAME_LIST, "model.fallbacks"),
        FieldRow("thinking", THINKING, "model.thinking"),
        FieldRow("max_turns", TURNS, "max_turns"),
        FieldRow("prompt_mode", PROMPT_MODE, "prompt_mode", ("systemPromptMode",)),
        FieldRow("inherit_context", EXACT_TRUE, "inherit_context"),
        FieldRow("isolated", EXACT_ISOLATED, "isolated"),
        FieldRow("run_in_background", EXACT_TRUE, "background"),
        FieldRow("memory", MEMORY, "memory"),
        FieldRow("isolation", ISOLATION, "isolation"),
        FieldRow("allowed_subagents", SUBAGENTS, "subagents", ("allowSubagents", "subagent_agents", "spawns")),
        FieldRow("persist_session", EXACT_TRUE, "session.persist"),
        FieldRow("session_dir", TEXT, "session.directory"),
        FieldRow("output_transcript", EXACT_TRUE, "session.transcript"),
        FieldRow("enabled", ENABLED, "enabled"),
        *unused("inheritProjectContext", "defaultContext", "defaultReads", "defaultProgress", "output"),
        *unused("maxSubagentDepth", "completionGuard", "auto-exit", "spawning", "taskType", "tool_budget"),
    ),
    notes=(
        "A file without frontmatter is an agent too: the whole text is its prompt.",
        "A missing description is the agent's name.",
        "A name with ':' is refused.",
    ),
)

SKILL = Dialect(
    name="generic",
    title="Agent Skills",
    folders=("skills/NAME/SKILL.md",),
    name_rule="file",
    fields=(
        NAME_ROW,
        DESCRIPTION,
        FieldRow("allowed-tools", SPACED_TOOLS, "tools.allow", ("allowed_tools", "allowedTools", "tools")),
        FieldRow("model", MODEL, "model.name"),
        FieldRow("hooks", HOOKS, "hooks"),
        *unused("license", "compatibility", "metadata", "version", "author", "tags"),
        *unused("argument-hint", "disable-model-invocation", "user-invocable", "context", "agent", "when_to_use"),
    ),
)
"""Of `SKILL.md` files, which are not agents."""


DIALECTS: Mapping[DialectName, Dialect] = {
    table.name: table
    for table in (RETINUE, CLAUDE, PI, DEVKIT, CODINGCODE, OPENCODE, GEMINI, COPILOT, CURSOR, GENERIC, KIMI)
}

_STARTING = frozenset({"Agent", "subagent", "dispatch_agent"})


def in_dialect(name: str, dialect: DialectName) -> tuple[str, ...]:
    """Return the names that the dialect has for `name`. A set of tools becomes its members unless the
    dialect has the set; names of servers' tools and unknown ones stay as they are."""
    own = DIALECTS[dialect].tool_names
    tools = canonical(name)
    if not own or not tools or name in own.values() or (dialect == "copilot" and len(tools) > 1):
        return (name,)
    rule = name[len(name.partition("(")[0]) :]
    own_names = [_own_name(own, tool) for tool in tools]
    return tuple(f"{own_name}{rule}" if own_name else name for own_name in own_names)


def _own_name(own: Mapping[str, str], tool: str) -> str | None:
    """Return what a dialect calls one of our tools; of those that start agents each has only one."""
    if tool not in own and tool in _STARTING:
        return own.get("Agent")
    return own.get(tool)


def is_foreign(name: str, dialect: DialectName) -> bool:
    """Return whether `name` is how another dialect calls a tool, and not how this one calls any."""
    own = DIALECTS[dialect].tool_names
    if not own or name.lower() in map(str.lower, own.values()):
        return False
    # Copilot has groups such as `search`, however their letters are written; others have only the members.
    if len(canonical(name)) > 1:
        return in_dialect(name, dialect) != (name,)
    return any(name in table.tool_names.values() for table in DIALECTS.values())
