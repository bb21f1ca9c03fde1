"""Every setting, once: its type, range, default and meaning. The reference page, validation, `retinue settings` and the
typed values all come from here and from `table_capabilities.py`. Ranges and names are those of pi-subagents where it
has the setting; devkit-pi's names are aliases.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

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
from retinue.settings.table_capabilities import (
    ContextSettings,
    DocumentSettings,
    LanguageSettings,
    PluginSettings,
    SandboxSettings,
    ScheduleSettings,
    ServerSettings,
    TelemetrySettings,
    TerminalSettings,
    WebSettings,
    WorktreeSettings,
)

if TYPE_CHECKING:
    from retinue.core.spec import PermissionMode

SMALL_MODEL = "small"
"""Of `exploreModel`: the small model of the provider in use."""
LSP_ACTIONS = (
    "definition",
    "references",
    "hover",
    "signature",
    "symbols",
    "diagnostics",
    "workspace-diagnostics",
    "servers",
)
PERMISSION_MODES = ("default", "acceptEdits", "plan", "dontAsk", "auto", "bypassPermissions")
APIS = ("openai", "openai-responses", "anthropic", "gemini")

_YEAR = 366 * 86_400
_TOKENS = Whole(1, 1_000_000_000)
_PRICE = Number(0, 1_000_000)
_PRICES = Record(input=_PRICE, output=_PRICE, cacheRead=_PRICE, cacheWrite=_PRICE)
_MODEL = Record(
    name=TextValue(), window=_TOKENS, maxOutput=_TOKENS, thinking=FLAG, images=FLAG, documents=FLAG, prices=_PRICES
)
_LISTED = Record(id=TextValue("a model id"), **_MODEL.fields)
_PROVIDER = Record(
    baseUrl=TextValue("a URL"),
    api=Choice(*APIS),
    apiKey=TextValue("$VARIABLE, or the key itself"),
    apiKeyEnv=TextValue("the name of an environment variable"),
    apiKeyHelper=Items(TextValue("a word of a command")),
    apiKeyKeyring=TextValue("SERVICE/ACCOUNT"),
    apiVersion=TextValue(),
    headers=Table(TextValue(), "header names"),
    query=Table(TextValue(), "parameter names"),
    quirks=Table(Anything(), "quirk names"),
    models=Items(Either(TextValue("a model id"), _LISTED)),
)


def _seconds(milliseconds: Any) -> Any:
    return milliseconds / 1000


def _calls(limit: Any) -> Any:
    """`maxToolCalls` meant no limit by 0; a budget means none at all."""
    return limit or _UNLIMITED_CALLS


_MS = Whole(1, _YEAR * 1000)
_UNLIMITED_CALLS = 10**9


# fmt: off
class ModelSettings(Values, section="models", applies="next run"):
    model = Field(
        None, TextValue("a model name"),
        "The model of runs for which neither the agent's file, the call nor RETINUE_MODEL names one.",
        limits=False,
    )
    providers = Field(
        {}, Table(_PROVIDER, "provider ids", without="/"),
        "Further model servers by id; {} is enough for the well-known ones, such as ollama. In a project's files "
        "a server that is not on this machine needs your consent.",
        limits=True, merges=True,
    )
    models = Field(
        {}, Table(_MODEL, "model names"),
        "What is true of a model, over the built-in table: window, output limit, prices in USD per million "
        "tokens.",
        limits=False, merges=True,
    )
    enabled_models = Field(
        None, Texts(),
        "The models that may be used when scopeModels is on, each exactly as provider/id.",
        limits=True, applies="live",
    )
    fallback_models = Field(
        (), Texts(),
        "Models that take over, in order, when the one in use is overloaded, refuses, is out of credit or is "
        "gone; after those of the agent's file.",
        limits=False,
    )
    explore_model = Field(
        SMALL_MODEL, TextValue("small, inherit or a model name"),
        "The model of the shipped agent Explore where the call names none: `small` is the small model of the "
        "provider in use (haiku, mini, flash) and falls back to the model in use; `inherit` is the model in use.",
        limits=False,
    )
    scope_models = Field(
        False, FLAG,
        "Refuse a model that a caller asks for outside enabledModels; warn where a file or a parent uses one.",
        limits=True, applies="live",
    )


class RunSettings(Values, section="runs", groups=("retry", "compaction"), applies="next run"):
    max_concurrent = Field(
        4, Whole(1, 1024),
        "How many background runs work at the same time; the others wait in a queue.",
        limits=True, applies="live",
    )
    default_max_turns: Field[int | None] = Field(
        None, Whole(0, 10_000, zero_is_none=True),
        "Turns after which a run is asked to wrap up, unless its file or the call says otherwise.",
        limits=True,
    )
    grace_turns = Field(
        5, Whole(1, 1_000),
        "Turns a run may still use after it was asked to wrap up, before it is aborted.",
        limits=True,
    )
    timeout_seconds: Field[float | None] = Field(
        None, Number(0, _YEAR, unit="seconds", zero_is_none=True),
        "How long a run may take in all.",
        limits=True,
        aliases=(Alias("timeoutMs", _seconds, _MS), Alias("subagents.timeoutMs", _seconds, _MS)),
    )
    idle_timeout_seconds: Field[float | None] = Field(
        180.0, Number(0, _YEAR, unit="seconds", zero_is_none=True),
        "How long a run may go without a sign of life from its model or a tool.",
        limits=True,
        aliases=(Alias("idleTimeoutMs", _seconds, _MS), Alias("subagents.idleTimeoutMs", _seconds, _MS)),
    )
    tool_timeout_seconds: Field[float | None] = Field(
        600.0, Number(0, _YEAR, unit="seconds", zero_is_none=True),
        "How long one tool call may take.",
        limits=True,
    )
    retry_enabled = Field(
        True, FLAG,
        "Repeat model requests that failed for a passing reason.",
        limits=False, aliases=(Alias("subagents.retry.enabled"),),
    )
    retry_max_attempts = Field(
        15, Whole(1, 20),
        "How often one model request is sent at most, the first time included; the waits between grow to 100 "
        "seconds, so that 15 survive ten minutes.",
        limits=False, aliases=(Alias("subagents.retry.maxAttempts"),),
    )
    compaction_at: Field[float | None] = Field(
        0.85, Number(0, 0.98, zero_is_none=True),
        "The share of the model's window that may be full before the conversation is shortened.",
        limits=False,
    )


class BudgetSettings(Values, section="budgets", groups=("budget",), applies="next run"):
    budget_tokens = Field(
        None, Whole(0, 10**12),
        "Tokens that a run and all agents below it may use together; 0 allows none.",
        limits=True,
    )
    budget_usd = Field(
        None, Number(0, 10**6, unit="US dollars"),
        "What a run and all agents below it may cost together; 0 allows nothing.",
        limits=True,
    )
    budget_tool_calls = Field(
        None, Whole(0, _UNLIMITED_CALLS),
        "Tool calls that a run and all agents below it may make together.",
        limits=True,
        aliases=(Alias("maxToolCalls", _calls, Whole(0, 1_000_000)),), variables=("RETINUE_MAX_TOOL_CALLS",),
    )
    budget_spawns = Field(
        None, Whole(0, 10**6),
        "Agents that may be started below a run, at any depth; 0 allows none.",
        limits=True,
    )
    budget_allow_unpriced = Field(
        False, FLAG,
        "Under a budget in dollars, use models whose price is not known, as if they cost nothing. Counts only in "
        "your own settings.",
        limits=True, personal_when=bool,
    )
    quote_above: Field[int | None] = Field(
        1_000, Whole(0, 10**6, zero_is_none=True),
        "When one run wants to start more agents than this, what they will cost is estimated and consent is "
        "asked. Unless you set it: 32 where a person can be asked. A repository can only lower it.",
        limits=True,
    )


class SubagentSettings(Values, section="sub-agents", groups=("subagents",)):
    subagents_enabled = Field(
        True, FLAG,
        "Offer the tools that start other agents.",
        limits=True, applies="next session",
    )
    max_subagent_depth = Field(
        3, Whole(0, 16),
        "How deep agents may start agents; 1 allows the first level, 0 none.",
        limits=True, aliases=(Alias("subagents.maxDepth"), Alias("maxDepth")),
        variables=("PI_SUBAGENT_MAX_DEPTH",),
    )
    background_by_default = Field(
        True, FLAG,
        "Agents started by the Agent tool work in the background unless the call or the file says otherwise.",
        limits=False,
    )
    default_join_mode: Field[Literal["async", "group", "smart"]] = Field(
        "async", Choice("async", "group", "smart"),
        "How completions of background agents are announced: each at once, or together.",
        limits=False,
    )
    wake_main = Field(
        True, FLAG,
        "An idle main agent hears at once when an agent or schedule of its own ends; false: with your next words.",
        limits=False,
    )
    fallback_subagent: Field[str | Literal[False] | None] = Field(
        None, TextValue("the name of an agent, none or false", false_words=("none",)),
        "The agent to use for an unknown type: a name; false refuses; unset means general-purpose.",
        limits=True,
    )
    wait_timeout_seconds = Field(
        270, Whole(30, 3_600),
        "How long waiting for a background result lasts before it returns without one.",
        limits=False,
    )
    tool_description_mode: Field[Literal["full", "compact", "custom"]] = Field(
        "full", Choice("full", "compact", "custom"),
        "Which description of the Agent tool the model sees.",
        limits=False, applies="next session",
    )
    delegation_vocabulary: Field[Literal["claude", "devkit", "codingcode"]] = Field(
        "claude", Choice("claude", "devkit", "codingcode"),
        "Whose tools for starting agents the model gets: Agent and its four helpers, subagent, or dispatch_agent.",
        limits=False, applies="next run",
    )
    inject_delegation_policy = Field(
        True, FLAG,
        "Tell the main agent when to delegate and to whom.",
        limits=False, applies="next session", aliases=(Alias("subagents.injectDelegationPolicy"),),
    )
    questions: Field[Literal["wait", "continue"]] = Field(
        "wait", Choice("wait", "continue"),
        "Whether an agent that asks something (ask_parent) waits for the answer, or goes on and hears it later.",
        limits=False,
    )


class AgentSettings(Values, section="agents", applies="next session"):
    disable_default_agents = Field(
        False, FLAG,
        "Leave out the built-in agents; agents of your own are not affected.",
        limits=True,
    )
    strict_agent_files = Field(
        False, FLAG,
        "Refuse to start while an agent file cannot be loaded, instead of skipping it with a warning.",
        limits=True,
    )


class ToolSettings(Values, section="tools", applies="next run"):
    extra_roots = Field(
        (), Texts(),
        "Folders besides the working directory that tools may touch.",
        limits=True,
    )
    allow_write = Field(
        False, FLAG,
        "Let agents written for devkit-pi that are not read-only have tools that write.",
        limits=True, aliases=(Alias("subagents.allowWrite"),),
    )
    allow_lsp_tools = Field(
        True, FLAG,
        "Let sub-agents, and agents of devkit-pi however they are started, ask language servers.",
        limits=True, aliases=(Alias("subagents.allowLspTools"),),
    )
    allowed_lsp_actions = Field(
        LSP_ACTIONS, Texts(LSP_ACTIONS),
        "What those may ask language servers; an empty list takes the tool away from them.",
        limits=True,
        aliases=(Alias("subagents.allowedLspActions"),),
    )


class PermissionSettings(Values, section="permissions", groups=("permissions",), applies="next run"):
    permissions_allow = Field(
        (), Texts(),
        "Calls that need no question, as Tool or Tool(specifier): Bash(npm test:*), Edit(/src/**).",
        limits=False,
    )
    permissions_ask = Field(
        (), Texts(),
        "Calls that are asked about in every mode, whatever is allowed.",
        limits=True,
    )
    permissions_deny = Field(
        (), Texts(),
        "Calls that never happen, in any mode. A tool that is denied by name is not offered at all.",
        limits=True,
    )
    permissions_default_mode: Field[PermissionMode | None] = Field(
        None, Choice(*PERMISSION_MODES, also={"manual": "default"}),
        "The permission mode of runs that are given none.",
        limits=True,
    )
    permissions_additional_directories = Field(
        (), Texts(),
        "Folders that count as working directories besides the run's own.",
        limits=False,
    )
    permissions_disable_bypass = Field(
        False, FLAG,
        "Ignore the mode bypassPermissions wherever it comes from.",
        limits=True,
        aliases=(Alias("permissions.disableBypassPermissionsMode", lambda _: True, Choice("disable")),),
    )
    permissions_headless: Field[Literal["deny", "wait"]] = Field(
        "deny", Choice("deny", "wait"),
        "What becomes of a question when nobody is there: denied at once, or kept in the inbox until it expires. "
        "In a project's files `wait` needs your consent.",
        limits=True, applies="live",
    )
    permissions_expiry_seconds = Field(
        3600.0, Number(1, _YEAR, unit="seconds"),
        "How long a question waits in the inbox before it counts as denied.",
        limits=True, applies="live",
    )
    permissions_auto_model = Field(
        None, TextValue("a model name"),
        "The model that judges calls in the mode auto; without one, auto asks as default does.",
        limits=True,
    )


class HookSettings(Values, section="hooks", groups=("hooks",), applies="next session"):
    hooks = Field(
        {}, Table(Anything(), "hook events"),
        "Programs that are told what happens and may have a say: events to handlers, as Claude Code writes them. "
        "Those of all settings files run. In a project's files they need your consent: retinue trust.",
        limits=True, merges=True,
    )
    hooks_fail_open = Field(
        False, FLAG,
        "Let things happen although a hook that guards them broke. Otherwise the answer is no, with the reason.",
        limits=True,
    )
    disable_all_hooks = Field(
        False, FLAG,
        "Run no hooks of any file; functions that a program registers still run.",
        limits=True,
    )


class CheckpointSettings(Values, section="checkpoints", groups=("checkpoints",), applies="next session"):
    checkpoints_enabled = Field(
        True, FLAG,
        "Record what commands of agents change, so that it can be undone. Your own repository is not touched.",
        limits=False,
    )
    checkpoints_keep_days: Field[int | None] = Field(
        30, Whole(0, 36_500, zero_is_none=True),
        "How many days after its end a run can be undone. Older checkpoints are removed when a process that made "
        "some ends, once a day. 0 keeps them for ever.",
        limits=False,
    )


class ClusterSettings(Values, section="cluster", applies="next session"):
    database = Field(
        None, TextValue("the URL of a PostgreSQL database"),
        "Keep what runs do in this PostgreSQL database, where all machines that name it see the same projects "
        "(extra `cluster`). Without it each project has a file in RETINUE_HOME.",
        limits=True, personal_when=bool,
    )
    placement = Field(
        "local", TextValue("local, cluster or cluster:LABEL,LABEL"),
        "Where background agents work whose files do not say: here, or on any worker of the cluster (with these "
        "labels) that the database is shared with.",
        limits=True, applies="next run",
    )
    tenant = Field(
        None, TextValue("a name"),
        "In whose name runs are sent to workers, which may limit how many of one tenant they serve at once. "
        "Without it each project is a tenant.",
        limits=True, personal_when=bool,
    )
    workspace_remote = Field(
        None, TextValue("the URL of a git repository, or the name of a remote"),
        "Through which git repository files of runs travel to workers and back. A name, like origin, is that of a "
        "remote of the checkout. Without it they travel through the database.",
        limits=True, applies="next run",
        personal_when=bool,
    )


class OutputSettings(Values, section="output", groups=("log",)):
    log_keep_days: Field[int | None] = Field(
        None, Whole(0, 36_500, zero_is_none=True),
        "How many days the log keeps the events of a run after its end. Older ones are removed when a process "
        "ends, once a day; what a run cost and how it ended stays. 0 keeps all for ever.",
        limits=False, applies="next session",
    )
    output_transcript = Field(
        True, FLAG,
        "Write the transcript of every run to a file of JSON lines.",
        limits=False, applies="next run",
    )
    show_cost = Field(
        False, FLAG,
        "Show what each agent cost, where the price is known.",
        limits=False,
    )
# fmt: on


class Settings(
    ModelSettings,
    RunSettings,
    BudgetSettings,
    SubagentSettings,
    AgentSettings,
    ToolSettings,
    PermissionSettings,
    HookSettings,
    CheckpointSettings,
    ClusterSettings,
    OutputSettings,
    ContextSettings,
    LanguageSettings,
    DocumentSettings,
    PluginSettings,
    SandboxSettings,
    ScheduleSettings,
    ServerSettings,
    TelemetrySettings,
    TerminalSettings,
    WebSettings,
    WorktreeSettings,
):
    """All settings, typed. Read them as attributes; `origin(attribute)` says where one is from."""


@cache
def fields() -> Mapping[str, Field]:
    """Return every setting by its name in files, in the order of the table."""
    return {field.name: field for field in Settings.table()}


@cache
def spellings() -> Mapping[str, tuple[Field, Alias | None]]:
    """Return every accepted name in files: the settings' own, and their aliases."""
    names: dict[str, tuple[Field, Alias | None]] = {name: (field, None) for name, field in fields().items()}
    for field in fields().values():
        names.update({alias.name: (field, alias) for alias in field.aliases})
    return names


@cache
def groups() -> frozenset[str]:
    """Return the objects that settings stand in: `retry` and `lsp.hook` of `retry.enabled`, `lsp.hook.enabled`."""
    inner = {name.rpartition(".")[0] for name in spellings() if "." in name}
    return frozenset(inner | {name.partition(".")[0] for name in inner})


def find(name: str) -> Field | None:
    """Return the setting of that name, alias or attribute."""
    if name in spellings():
        return spellings()[name][0]
    for field in fields().values():
        if field.attribute == name:
            return field
    return None
