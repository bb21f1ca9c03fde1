"""Names in a settings file or the environment that are no settings: what was probably meant, and what
became of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from retinue.settings.table import fields, groups, spellings

_NO_WEB_CACHE = "a page is fetched again each time it is asked for"
_NOTICES = "the notices of devkit-pi are given where delegationVocabulary is devkit"
RETIRED: Mapping[str, str] = {
    "checkpoints.maxFileMb": "files of more than 10 MB are left out of checkpoints",
    "compaction.keepTurns": "the newest 3 turns stay as they are",
    "convert.maxContentChars": "a model gets 50,000 characters of a document at once",
    "convert.maxFileBytes": "documents of up to 10 MB are converted",
    "convert.memoryMb": "converting may use 2 GB of memory",
    "convert.timeoutSeconds": "converting may take 30 seconds",
    "convertContent.maxContentChars": "a model gets 50,000 characters of a document at once",
    "convertContent.maxFileBytes": "documents of up to 10 MB are converted",
    "convertContent.timeoutMs": "converting may take 30 seconds",
    "guards": _NOTICES,
    "guards.notices": _NOTICES,
    "lsp.idleSeconds": "a language server that nobody has asked for 5 minutes is ended",
    "lsp.startTimeoutSeconds": "a language server may take 30 seconds to start",
    "lsp.timeoutSeconds": "a language server may take 30 seconds to answer",
    "mcp.callTimeoutSeconds": "300 seconds, or what `timeout` of the server says",
    "mcp.lingerSeconds": "a server is kept for 30 seconds after the last run that may use it",
    "mcp.outputCharacters": "a model gets 50,000 characters of one result, the rest is kept in a file",
    "pluginEntryPoints": "plugins of installed packages are used; disabledPlugins leaves single ones out",
    "pluginTimeoutSeconds": "the import of a plugin's tools may take 10 seconds",
    "questionPatienceSeconds": "a question waits 5 minutes for the agent above before a person is asked",
    "quotePolicy": "more agents than quoteAbove are refused where nobody can be asked; quoteAbove 0 sets no limit",
    "repeatedCalls": "the same failing call 5 times in a row ends a run",
    "sandbox.cpuSeconds": "a process of a sandboxed command may use an hour of processor time",
    "sandbox.fileMb": "a sandboxed command may write files of up to 4 GB",
    "sandbox.processes": "a sandboxed command may have 512 processes",
    "schedule.jitterSeconds": "each job has its own: retinue schedule add --jitter SECONDS",
    "schedule.maxJobs": "there may be 50 jobs at a time",
    "schedule.missed": "each job has its own: retinue schedule add --missed catch-up",
    "skills.enabled": "a rule in permissions.deny with the tool `skill` takes it away, and the list of skills",
    "skills.listTokens": "the list of skills may take 4,000 tokens",
    "taskFileAbove": "tasks of more than 24,000 characters are handed over as a file",
    "toolSearch.share": "tools that take more than a tenth of the model's window are loaded by search",
    "toolSearch.threshold": "more than 40 tools of servers are loaded by search; see toolSearch.mode",
    "web.hostConcurrency": "one host gets 2 requests at a time",
    "web.hostDelaySeconds": "0.2 seconds lie between two requests to one host",
    "web.maxContentChars": "a model gets 30,000 characters of a page at a time",
    "web.maxResponseBytes": "2 MB of a page are read",
    "web.maxResults": "one search gives 5 results at most",
    "web.maxStoredContentChars": "200,000 characters of a page are kept",
    "web.maxStoredResults": "a run keeps 100 answers of searches and fetches",
    "web.providerPriority": "services with a key are asked first, then your SearXNG, then the rest; see web.provider",
    "web.timeoutMs": "one page or one search may take 20 seconds",
    "web.timeoutSeconds": "one page or one search may take 20 seconds",
    "worktree.include": "the file is .worktreeinclude",
    "budget.seconds": "set timeoutSeconds, or a budget in the agent's file or the call",
    "budget.turns": "set defaultMaxTurns, or a budget in the agent's file or the call",
    "rememberAgents": "finished agents can always be addressed again",
    "reportUsage": "a calling agent is always told what its agents used",
    "rollupChildUsage": "the terminal app shows the tokens of each agent in its own line",
    "herdrReportWorking": "Retinue has no herdr to report to",
    "web.cache": _NO_WEB_CACHE,
    "web.cache.enabled": _NO_WEB_CACHE,
    "web.cache.seconds": _NO_WEB_CACHE,
    "web.cache.maxEntries": _NO_WEB_CACHE,
}
"""Settings of earlier versions or of pi that have no effect, and why."""

_IGNORED = frozenset({"$schema", "statusLine.type"})
"""Names that say nothing about Retinue, and are welcome; Claude Code writes the second beside a command."""


def explain_unknown(name: str) -> str | None:
    """Return the sentence about a name that is no setting; None for one that may stand in any file."""
    if name in _IGNORED:
        return None
    if name in RETIRED:
        return f"is no setting any more, it has no effect: {RETIRED[name]}"
    if name in groups():
        return f"is ignored; it must be an object with {', '.join(_members(name))}"
    meant = nearest_name(name)
    if meant is None:
        return "is not a setting, it has no effect. All that there are: retinue settings list --all"
    lost = " The rules in it protect nothing until it is corrected." if meant.startswith("permissions") else ""
    return f"is not a setting; did you mean {meant}?{lost}"


OTHER_VARIABLES = frozenset(
    {
        *("RETINUE_HOME", "RETINUE_DISABLE_BUILTIN_AGENTS", "RETINUE_NOTIFICATIONS"),
        *("RETINUE_DATABASE_PROJECT", "RETINUE_PROGRAM_STATUS", "RETINUE_TEST_DATABASE"),
        *("RETINUE_PLUGIN_ROOT", "RETINUE_PROJECT_DIR", "RETINUE_SKILL_DIR"),
    }
)
"""Variables that mean something and set no setting; the last three are set for programs we start."""
_MARKS = "RETINUE_RUN_"
"""What the processes of a run carry, so that what outlives it is found."""


def explain_variables(environment: Iterable[str]) -> dict[str, str]:
    """Return a sentence for each variable that begins like those of Retinue and has no effect, by its name."""
    variables = _variables()
    retired = {f"RETINUE_{_to_variable(name)}": why for name, why in RETIRED.items()}
    messages: dict[str, str] = {}
    for name in environment:
        if not name.startswith("RETINUE_") or name in variables or name.startswith(_MARKS):
            continue
        meant = nearest_variable(name)
        if name in retired:
            messages[name] = f"is no variable any more, it has no effect: {retired[name]}"
        elif meant is None:
            messages[name] = "is not a variable of Retinue, it has no effect. All settings: retinue settings list --all"
        else:
            messages[name] = f"is not a variable of Retinue, it has no effect; did you mean {meant}?"
    return messages


def nearest_variable(name: str) -> str | None:
    """Return the variable that `name` was probably meant to be."""
    from difflib import get_close_matches

    ours = {variable.removeprefix("RETINUE_"): variable for variable in _variables() if variable.startswith("RETINUE_")}
    near = get_close_matches(name.removeprefix("RETINUE_").upper(), ours, n=1, cutoff=0.8)
    return ours[near[0]] if near else None


def _variables() -> frozenset[str]:
    return OTHER_VARIABLES.union(*(field.variables for field in fields().values()))


def _to_variable(name: str) -> str:
    """Return `web.maxResults` as `WEB_MAX_RESULTS`."""
    return "".join(f"_{letter}" if letter.isupper() else letter for letter in name.replace(".", "_")).upper()


def nearest_name(name: str) -> str | None:
    """Return the setting or group of settings that `name` was probably meant to be."""
    from difflib import get_close_matches

    names = {_fold(spelling): spelling for spelling in (*groups(), *spellings())}
    folded = _fold(name)
    # Other programs say `defaultModel` where we say `model`.
    for exact in (folded, folded.removeprefix("default")):
        if exact in names:
            return names[exact]
    near = get_close_matches(folded, names, n=1, cutoff=0.8)
    return names[near[0]] if near else None


def _members(group: str) -> list[str]:
    return [name.removeprefix(f"{group}.") for name in fields() if name.startswith(f"{group}.")]


def _fold(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()
