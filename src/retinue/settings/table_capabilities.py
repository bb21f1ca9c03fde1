"""The sections of the table about the terminal app and about what a run can do besides its own work."""

from __future__ import annotations

from typing import Literal

from retinue.settings.field import (
    FLAG,
    Alias,
    Anything,
    Choice,
    Either,
    Field,
    Items,
    Number,
    Record,
    Table,
    Texts,
    TextValue,
    Values,
    Whole,
)

_MEGABYTES = Whole(0, 10**9, zero_is_none=True)
_SERVER = Record(
    command=Items(TextValue("a program or an argument")),
    languages=Table(TextValue("a language id"), "endings of file names"),
    rootMarkers=Texts(),
    initializationOptions=Table(Anything(), "names"),
    settings=Table(Anything(), "sections"),
    env=Table(TextValue(), "variable names"),
    disabled=FLAG,
)
SEARCHERS = ("brave", "tavily", "exa", "searxng", "ddgs", "native")
"""Who can search, those with a key of their own first."""


# fmt: off
class ContextSettings(Values, section="context", groups=("instructions", "memory", "skills"), applies="next run"):
    instructions_enabled = Field(
        True, FLAG,
        "Tell the main agent, and agents that are twins of it, what AGENTS.md and CLAUDE.md say.",
        limits=False,
    )
    memory_enabled = Field(
        True, FLAG,
        "Give agents whose files ask for it a memory that lasts from one run to the next.",
        limits=True,
    )
    skills_paths = Field(
        (), Texts(),
        "Further folders with skills. In a project's files only folders of the project count.",
        limits=False,
    )


class LanguageSettings(Values, section="language servers", groups=("lsp",), applies="next session"):
    lsp_enabled = Field(
        True, FLAG,
        "Offer the tool that asks language servers. What sub-agents have of it: allowLspTools, allowedLspActions.",
        limits=True, aliases=(Alias("lsp.tool.enabled"),),
    )
    lsp_servers = Field(
        {}, Table(_SERVER, "server names"),
        "Language servers by name, over the known ones or besides them: command (a list), languages (file ending "
        "to language id), rootMarkers, initializationOptions, settings, env, disabled. In a project's files they "
        "need your consent: retinue trust.",
        limits=True, merges=True,
    )
    lsp_sandbox: Field[Literal["on", "off"]] = Field(
        "on", Choice("on", "off"),
        "Start language servers in a sandbox where they can change nothing and reach nobody. `off` counts only in "
        "your own settings. Without a sandbox, servers that run a project's own programs are started only with "
        "`off`.",
        limits=True, personal_when="off".__eq__,
    )
    lsp_allow_mutating_actions = Field(
        False, FLAG,
        "Let agents that no other agent started propose renames and code actions and restart language servers.",
        limits=True, aliases=(Alias("lsp.tool.allowMutatingActions"),),
    )
    lsp_diagnostics_after_edit: Field[Literal["off", "main", "all"]] = Field(
        "main", Choice("off", "main", "all"),
        "Whose edits are followed by what language servers find wrong with the file: nobody's, those of agents "
        "that no other agent started, or those of all agents that may ask language servers.",
        limits=False, applies="next run",
        aliases=(Alias("lsp.hook.enabled", {True: "main", False: "off"}.get, FLAG),),
    )
    lsp_diagnostics_seconds = Field(
        2.0, Number(0.1, 60, unit="seconds"),
        "How long the result of an edit waits for them at most.",
        limits=False, applies="next run",
    )


class DocumentSettings(Values, section="documents", groups=("convert",)):
    convert_enabled = Field(
        True, FLAG,
        "Offer the tool that turns documents into Markdown.",
        limits=True, applies="next session", aliases=(Alias("convertContent.enabled"),),
    )


class PluginSettings(Values, section="plugins", applies="next run"):
    plugins = Field(
        (), Texts(),
        "Further plugins by path, each a folder or a Python file, beside those in .retinue/plugins and in your "
        "own plugins folder. The lists of all settings files add up. Code, hooks and servers of plugins that a "
        "project brings need your consent: retinue trust.",
        limits=False,
    )
    disabled_plugins = Field(
        (), Texts(),
        "Plugins to leave out, by name. A project's settings switch off only plugins that a project brings.",
        limits=True,
    )


class SandboxSettings(Values, section="sandbox", groups=("sandbox",), applies="next run"):
    sandbox_mode: Field[Literal["off", "readonly-only", "workspace"]] = Field(
        "readonly-only", Choice("off", "readonly-only", "workspace"),
        "What may run outside of the sandbox. `readonly-only`: commands that you, a rule or the mode allowed; "
        "those nobody was asked about, and those of read-only agents, run inside read-only walls. `workspace`: "
        "nothing; allowed commands change nothing outside their workspace. `off`: everything; then only plain "
        "commands that read run unasked, and read-only agents have no shell.",
        limits=True,
    )
    sandbox_network = Field(
        "off", Either(Choice("off", "on"), Texts()),
        "What sandboxed shells reach: nobody (off), everybody (on), or the listed hosts (`pypi.org`, "
        "`*.example.com`) through a proxy that lets only them pass. More than `off` counts only in your own "
        "settings.",
        limits=True,
        personal_when=lambda value: bool(value) and value != "off",
    )
    sandbox_hidden = Field(
        (), Texts(),
        "Files and folders that sandboxed shells cannot see, besides those where keys are usually kept.",
        limits=True,
    )
    sandbox_shown = Field(
        (), Texts(),
        "Folders outside of the workspace that commands nobody was asked about may read, besides the system and "
        "its tools. Counts only in your own settings.",
        limits=True, personal_when=bool,
    )
    sandbox_pass_environment = Field(
        (), Texts(),
        "Names of environment variables that shells and hooks get although they look like secrets or are keys of "
        "model servers. Counts only in your own settings.",
        limits=True, personal_when=bool,
    )
    sandbox_memory_mb = Field(
        8192, _MEGABYTES,
        "Megabytes of memory that a sandboxed command may use, with all processes that it starts. One that uses "
        "more is stopped.",
        limits=True,
    )
    sandbox_scratch_mb = Field(
        1024, _MEGABYTES,
        "Megabytes that the scratch folder ($TMPDIR) of one run may hold. It is kept in memory, if this is at "
        "most half of the memory and namespaces are available; otherwise a sandboxed command that writes more is "
        "stopped, and later ones can only remove files until there is room.",
        limits=True,
    )


class ScheduleSettings(Values, section="schedules"):
    scheduling_enabled = Field(
        True, FLAG,
        "Let agents be started on a schedule; switching it off stops all timers at once.",
        limits=True, applies="next session",
    )


class ServerSettings(Values, section="servers", groups=("mcp", "toolSearch"), applies="next run"):
    mcp_servers = Field(
        {}, Table(Anything(), "server names"),
        "MCP servers by name: command, args, env and cwd for a program, or url and headers (type: http or sse); "
        "also timeout, concurrency, autoReconnect, disabled and, in your own settings only, trustAnnotations. "
        "${VAR} and ${VAR:-default} are filled in.",
        name="mcpServers", limits=True, merges=True,
        aliases=(Alias("mcp_servers"),),
    )
    mcp_start_timeout_seconds = Field(
        10.0, Number(0.1, 600, unit="seconds"),
        "How long a launch waits for the servers of its agent; three times as long for required ones. Tools of a "
        "server that is ready later are admitted then.",
        limits=False,
    )
    mcp_claude_servers = Field(
        True, FLAG,
        "Also use the servers of your ~/.claude.json.",
        limits=True,
    )
    tool_search_mode: Field[Literal["auto", "always", "never"]] = Field(
        "auto", Choice("auto", "always", "never"),
        "Whether tools of servers are told to the model by name only, and loaded when it searches for them.",
        limits=False,
    )


class TelemetrySettings(Values, section="telemetry"):
    telemetry: Field[Literal["off", "on", "content"]] = Field(
        "off", Choice("off", "on", "content", also={False: "off", True: "on"}),
        "Send traces and metrics by OTLP to where OTEL_EXPORTER_OTLP_ENDPOINT says. on: names, times, tokens and "
        "cost; content: also tasks, answers, arguments and results, redacted. More than `off` counts only in your "
        "own settings.",
        limits=True, applies="next session",
        personal_when=lambda value: value != "off",
    )
    telemetry_model_header = Field(
        False, FLAG,
        "Name the span of a request in the header traceparent that goes to the provider of the model. Counts only "
        "in your own settings, and while `telemetry` is on.",
        limits=True, applies="next run", personal_when=lambda value: value is not False,
    )


class TerminalSettings(Values, section="terminal app", groups=("statusLine",)):
    fleet_view = Field(
        True, FLAG,
        "Let ↓ and ← in an empty prompt go into the list of agents, to look at one.",
        limits=False,
    )
    widget_mode: Field[Literal["all", "background", "off"]] = Field(
        "all", Choice("all", "background", "off"),
        "Which agents the list below the prompt shows.",
        limits=False,
    )
    widget_display_mode: Field[Literal["auto", "rich", "compact"]] = Field(
        "auto", Choice("auto", "rich", "compact"),
        "How much room the list of agents takes.",
        limits=False,
    )
    agent_mentions: Field[Literal["model", "direct", "off"]] = Field(
        "direct", Choice("model", "direct", "off", also={True: "model", False: "off"}),
        "What @name at the start of a message does. direct: it goes to that agent, and @type starts one; model: "
        "it goes to an agent that was started before; off: nothing.",
        limits=False,
    )
    abort_resend_key = Field(
        "f9", TextValue("the name of a key"),
        "The key that stops the current turn and sends the waiting messages.",
        limits=False, variables=("PI_ABORT_RESEND_KEY",),
    )
    theme: Field[Literal["auto", "dark", "light"]] = Field(
        "auto", Choice("auto", "dark", "light"),
        "The colours of the terminal app; auto follows COLORFGBG and is dark where that is not set.",
        limits=False,
    )
    reduced_motion = Field(
        False, FLAG,
        "No spinners and no animation.",
        limits=False, applies="next session",
    )
    mouse = Field(
        True, FLAG,
        "Let the terminal app use the mouse; without it the terminal's own selection works as usual.",
        limits=False, applies="next session",
    )
    keys = Field(
        {}, Table(TextValue("the name of a key"), "names of actions"),
        "Other keys for what the terminal app does, by the names that its help (F1) shows.",
        limits=False, applies="next session", merges=True,
    )
    status_line_template = Field(
        None, TextValue("text with {facts}"),
        "The status line: {state} {model} {folder} {cwd} {branch} {mode} {context} {tokens} {cost} {agents} "
        "{inbox} {session} {version}; a part in [square brackets] is left out when a fact in it is empty.",
        limits=False,
    )
    status_line_command = Field(
        None, TextValue("a command"),
        "A shell command whose first line of output is the status line. It gets what it may show as JSON on "
        "standard input, as Claude Code's statusLine does. Counts only in your own settings.",
        limits=False, personal_when=bool,
    )


class WebSettings(Values, section="web", groups=("web",)):
    web_enabled = Field(
        True, FLAG,
        "Offer the tools that search the web and read its pages.",
        limits=True, applies="next session",
    )
    web_provider: Field[Literal["auto", "brave", "tavily", "exa", "searxng", "ddgs", "native"]] = Field(
        "auto", Choice("auto", *SEARCHERS),
        "Who searches. `auto` tries those that are set up, in this order: services with a key "
        "(BRAVE_SEARCH_API_KEY, TAVILY_API_KEY, EXA_API_KEY), your SearXNG, DuckDuckGo (extra `web`), and last "
        "the search of your model's provider, which costs tokens. A named one is asked alone.",
        limits=True,
    )
    web_searxng_url = Field(
        None, TextValue("a URL"),
        "The address of a SearXNG server that answers in JSON. In a project's files it needs your consent.",
        limits=True, variables=("SEARXNG_URL",),
    )
    web_native_model = Field(
        None, TextValue("a model name"),
        "The model, as provider/id, whose provider searches when `native` is asked; else a small one you have a "
        "key for.",
        limits=False,
    )
    web_allow_hosts = Field(
        (), Texts(),
        "Hosts outside the public internet that pages may be fetched from: a name, *.domain, an address or a "
        "network such as 10.1.0.0/16, each with :port if only that one. In a project's files it needs your "
        "consent.",
        limits=True,
    )
    web_taint: Field[Literal["off", "ask"]] = Field(
        "off", Choice("off", "ask"),
        "After a run, or an agent below it, has read text of the web: `ask` wants a person's consent for every "
        "command, every start of an agent and every call of a server's tool, in every mode. A project's files "
        "switch it off only with your consent.",
        limits=True, applies="next run",
    )


class WorktreeSettings(Values, section="worktrees", groups=("worktree", "integrate"), applies="next run"):
    worktree_isolation = Field(
        True, FLAG,
        "Let agents and callers ask for a git worktree of their own.",
        name="worktreeIsolation", limits=True, applies="next session",
    )
    worktree_from_dirty = Field(
        False, FLAG,
        "Begin worktrees with the uncommitted changes of the main checkout, as one commit.",
        limits=False,
    )
    worktree_base_ref: Field[Literal["head", "fresh"]] = Field(
        "head", Choice("head", "fresh"),
        "Where worktrees begin: at HEAD, or at the remote's default branch, fetched once a day.",
        limits=False,
    )
    worktree_shell: Field[Literal["confined", "checked"]] = Field(
        "confined", Choice("confined", "checked"),
        "What becomes of the shell of an isolated agent on a host without a sandbox: it is withheld, or every "
        "command is checked, which stops accidents but not programs. `checked` counts only in your own settings.",
        limits=True, personal_when="checked".__eq__,
    )
    integrate_check = Field(
        None, TextValue("a command for the shell"),
        "What must succeed before `retinue integrate` merges a branch; it runs in a copy with the branch in it. "
        "In a project's files it needs your consent.",
        limits=True, applies="live",
    )
# fmt: on
