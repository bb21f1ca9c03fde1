"""Settings merged from their layers, each value with its origin.

The layers are: defaults < files of other programs < user file < project file < local file < environment < flags. They
are merged setting by setting. A bad value is ignored, with a problem that names the file, the setting and the accepted
values. For an unknown name the problem names the most similar setting, or the replacement. No file is created.
Variables and options of the command line are read as the JSON of a file. `settings_signature` changes when one of the
files has changed.

If a value is ignored, the default or a weaker file applies, which may allow more. Therefore no run is started
(`check_limits`) while there is a problem with a setting that limits runs, with a name that was probably meant as one,
or with a file that may hold one. A setting that only grants is ignored and reported."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.format import as_sentence
from retinue.core.tool_names import split_entries
from retinue.errors import ConfigurationError
from retinue.settings.field import DROPPED, Alias, Choice, Field, Flag, Layer, Origin, Texts, TextValue
from retinue.settings.foreign import (
    EMPTY,
    ForeignFile,
    JsonObject,
    convert_value,
    explain_repeated,
    foreign_files,
    line_of,
    opened,
    read_object,
)
from retinue.settings.places import own_variables, project_levels, retinue_home
from retinue.settings.table import Settings, fields, find, groups, spellings

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
"""Settings of earlier versions or of pi without an effect, and the reason."""

_IGNORED_NAMES = frozenset({"$schema", "statusLine.type"})
"""Names in settings files that are accepted and have no effect; Claude Code writes the second one."""


def explain_unknown(name: str) -> str | None:
    """Return the sentence about a name that is no setting; None for one that is accepted."""
    if name in _IGNORED_NAMES:
        return None
    if name in RETIRED:
        return f"is no setting any more, it has no effect: {RETIRED[name]}"
    if name in groups():
        members = [member.removeprefix(f"{name}.") for member in fields() if member.startswith(f"{name}.")]
        return f"is ignored; it must be an object with {', '.join(members)}"
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
"""Variables with a meaning that are no settings; the last three are set for programs that Retinue starts."""
_RUN_PREFIX = "RETINUE_RUN_"
"""The prefix of variables that mark the processes of a run, so that leftover ones are found."""


def explain_variables(environment: Iterable[str]) -> dict[str, str]:
    """Return a sentence for each variable without an effect that begins with `RETINUE_`, by its name."""
    variables = _variables()
    retired = {_to_variable(name): why for name, why in RETIRED.items()}
    messages: dict[str, str] = {}
    for name in environment:
        if not name.startswith("RETINUE_") or name in variables or name.startswith(_RUN_PREFIX):
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
    """Return the variable that is most similar to `name`."""
    from difflib import get_close_matches

    ours = [variable.removeprefix("RETINUE_") for variable in _variables() if variable.startswith("RETINUE_")]
    near = get_close_matches(name.removeprefix("RETINUE_").upper(), ours, n=1, cutoff=0.8)
    return f"RETINUE_{near[0]}" if near else None


def _variables() -> frozenset[str]:
    return OTHER_VARIABLES.union(*(field.variables for field in fields().values()))


def _to_variable(name: str) -> str:
    """Return `web.maxResults` as `RETINUE_WEB_MAX_RESULTS`."""
    return "RETINUE_" + re.sub("(?=[A-Z])", "_", name.replace(".", "_")).upper()


def nearest_name(name: str) -> str | None:
    """Return the setting or group of settings that `name` was probably meant to be."""
    from difflib import get_close_matches

    names = {_fold(spelling): spelling for spelling in (*groups(), *spellings())}
    folded = _fold(name)
    # Other programs have `defaultModel` for our `model`.
    for exact in (folded, folded.removeprefix("default")):
        if exact in names:
            return names[exact]
    # `deny` outside of `permissions`, and the option of the command line that says the same.
    if folded == "disallowedtools":
        return "permissions.deny"
    for limit in sorted(LIMITING_SETTINGS):
        if "." in limit and _fold(limit.rpartition(".")[2]) == folded:
            return limit
    near = get_close_matches(folded, names, n=1, cutoff=0.8)
    return names[near[0]] if near else None


def _fold(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


LIMITING_SETTINGS = frozenset(field.name for field in fields().values() if field.limits)
"""By name. Some of them grant as well: where a weaker file grants, the value that cannot be read may have taken it
back."""

_ONLY_LIMITS = ("budget", "hooks", "permissions")
"""Groups in which an unknown name is treated as a limit."""
_FORMER_LIMITS = frozenset({"sandbox.cpuSeconds", "sandbox.fileMb", "sandbox.processes"})


def is_limit(name: str) -> bool:
    """Return whether a setting, an entry of one (`permissions.deny[2]`), an alias or a group limits."""
    name = name.partition("[")[0]
    while name:
        field = find(name)
        if field is not None:
            return field.limits
        if name in groups():
            return any(limit.startswith(f"{name}.") for limit in LIMITING_SETTINGS)
        name = name.rpartition(".")[0]
    return False


def may_limit(name: str) -> bool:
    """Return whether a name that is no setting was probably meant to limit."""
    if name in _FORMER_LIMITS or name.partition(".")[0] in _ONLY_LIMITS:
        return True
    meant = None if name in RETIRED else nearest_name(name)
    return meant is not None and is_limit(meant)


def variable_may_limit(name: str) -> bool:
    """Return whether a variable that sets nothing was probably meant to limit."""
    if name in map(_to_variable, _FORMER_LIMITS) or name.startswith(("RETINUE_BUDGET_", "RETINUE_PERMISSIONS_")):
        return True
    meant = nearest_variable(name)
    return any(meant in field.variables for field in fields().values() if field.limits)


def check_limits(loaded: Loaded) -> None:
    """Raise ConfigurationError, with file, line and remedy, if a limit in the settings cannot be applied."""
    problems = [problem for problem in loaded.problems if problem.limits]
    if problems:
        reasons = "; ".join(dict.fromkeys(map(_describe, problems)))
        raise ConfigurationError(
            f"A limit cannot be applied, and nothing runs without it: {as_sentence(reasons)}",
            remedy="Correct it, or remove it. The settings that exist: retinue settings list",
        )


def _describe(problem: SettingsProblem) -> str:
    line = line_of(Path(problem.where), problem.field) if problem.field else None
    return str(problem if line is None else replace(problem, where=f"{problem.where}:{line}"))


_FLAG_WORDS = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}


def raw_value(field: Field, text: str) -> Any:
    """Return `text` as the JSON value of a file. The kind of the field checks it later."""
    word = text.strip().lower()
    if isinstance(field.kind, Flag):
        return _FLAG_WORDS.get(word, text)
    if isinstance(field.kind, Choice):
        return {"true": True, "false": False}.get(word, text) if field.kind.also else text
    if isinstance(field.kind, TextValue):
        return False if word == "false" and field.kind.false_words else text
    if field.name == "sandbox.network" and word in ("off", "on"):
        return word
    if isinstance(field.kind, Texts) and not word.startswith("["):
        return list(split_entries(text))
    try:
        return msgspec.json.decode(text)
    except ValueError:
        return text


SETTINGS_FILE = "settings.json"
LOCAL_SETTINGS_FILE = "settings.local.json"
_GROUPS_OF_AGENTS = ("subagents.", "subagent.", "web.", "convertContent.", "lsp.", "guards.")
"""Groups of other programs' files whose settings are reported one by one; of other groups only the name is."""
PERSONAL_ONLY = "this value counts only in your own settings (retinue settings set … --user)"


class SettingsProblem(Struct, frozen=True):
    """A value that has no effect. `where` is the file or variable, `field` the path in it."""

    where: str
    field: str
    message: str
    refused: str = ""
    """Why the content of an existing file is unknown. Such a file may hold limits."""
    withheld: tuple[str, ...] = ()
    """Settings that need the consent of a person, or of the operator of this worker, to take effect."""
    limits: bool = False
    """The value may limit runs, so no run is started."""

    def __str__(self) -> str:
        return f"{self.where}: {self.field} {self.message}" if self.field else f"{self.where}: {self.message}"


class Read(Struct):
    """One layer. `values` are checked, by attribute, and `names` are those in the file: the setting's own or an alias.
    `unknown` are unknown names, `unused` names in files of other programs without a counterpart in Retinue."""

    origin: Origin
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    problems: list[SettingsProblem] = []
    unknown: dict[str, None] = {}
    unused: list[SettingsProblem] = []

    def report(self, name: str, message: str, *, limits: bool = False) -> None:
        self.problems.append(SettingsProblem(self.origin.where, name, message, limits=limits))


class Explanation(NamedTuple):
    """A setting with its value. `layers` are all that set it, as (origin, name in the file, value), the winner last."""

    field: Field
    value: Any
    origin: Origin
    layers: tuple[tuple[Origin, str, Any], ...]


class Loaded(Struct, dict=True):
    """The settings at one moment, with their layers and problems."""

    layers: tuple[Read, ...]
    problems: tuple[SettingsProblem, ...]
    unknown: tuple[str, ...]
    unused: tuple[SettingsProblem, ...]

    @cached_property
    def settings(self) -> Settings:
        values: dict[str, Any] = {}
        origins: dict[str, Origin] = {}
        merging = {field.attribute for field in fields().values() if field.merges}
        for layer in self.layers:
            for attribute, value in layer.values.items():
                origins[attribute] = layer.origin
                if attribute in merging:
                    origins.update({f"{attribute}.{key}": layer.origin for key in value})
                    value = {**values.get(attribute, {}), **value}
                values[attribute] = value
        return Settings(values, origins)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(str(problem) for problem in self.problems)

    def get(self, name: str) -> Any:
        """Return the value of a setting by its name, an alias or its attribute. Raise KeyError if there is none."""
        return getattr(self.settings, _field(name).attribute)

    def explain(self, name: str) -> Explanation:
        field = _field(name)
        attribute = field.attribute
        layers = tuple(
            (layer.origin, layer.names[attribute], layer.values[attribute])
            for layer in self.layers
            if attribute in layer.values
        )
        return Explanation(field, self.get(name), self.settings.origin(attribute), layers)


def load_settings(
    cwd: Path | str, *, environment: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Loaded:
    """Return the settings for `cwd`. `flags` are values of the command line by setting name."""
    env = own_variables(environment)
    reads: list[Read] = []
    for foreign in foreign_files(Path(cwd), env):
        if os.path.exists(foreign.path):  # noqa: PTH110 (seven times at every start)
            reads.append(_read_foreign(foreign))
    reads += [_read_file(layer, path) for layer, path in settings_files(Path(cwd), env)]
    reads += _read_environment(env)
    for name, raw in (flags or {}).items():
        reads.append(Read(Origin("flag", name)))
        field, alias = spellings().get(name) or (_field(name), None)
        _take(reads[-1], field, alias, raw)
    return Loaded(
        tuple(read for read in reads if read.values),
        tuple(problem for read in reads for problem in read.problems),
        tuple(dict.fromkeys(name for read in reads for name in read.unknown)),
        tuple(entry for read in reads for entry in read.unused),
    )


def settings_files(cwd: Path, environment: Mapping[str, str]) -> tuple[tuple[Layer, Path], ...]:
    """Return the settings files for `cwd`, weakest first, including those that do not exist."""
    user = _absolute(retinue_home(environment)) / SETTINGS_FILE
    folder = project_folder(cwd, environment)
    if folder == user.parent:
        return (("user", user),)
    return (("user", user), ("project", folder / SETTINGS_FILE), ("local", folder / LOCAL_SETTINGS_FILE))


def project_folder(cwd: Path, environment: Mapping[str, str]) -> Path:
    """Return the `.retinue` folder of the project: the nearest upward with a settings file, not above
    the repository's root and never the user's own; `cwd`'s when there is none."""
    own = str(_absolute(retinue_home(environment)))
    levels = project_levels(str(_absolute(cwd)))
    for level in levels:
        folder = os.path.join(level, ".retinue")  # noqa: PTH118 (at every start, for every folder upward)
        if folder == own:
            continue
        for name in (SETTINGS_FILE, LOCAL_SETTINGS_FILE):
            if os.path.exists(os.path.join(folder, name)):  # noqa: PTH110, PTH118
                return Path(folder)
    last = Path(levels[-1], ".retinue")
    return last if str(last) != own else Path(levels[0], ".retinue")


def _read_file(layer: Layer, path: Path) -> Read:
    read, file = Read(Origin(layer, str(path))), read_object(path, exact=True)
    for name in file.repeated:
        read.report(name, explain_repeated(name), limits=_repeats_limit(name))
    _report_unread(read, file)
    for name, raw in flat_names(file.data):
        field, alias = spellings().get(name, (None, None))
        if raw is None:
            continue  # null has no effect, as if the name were not there
        if field is None:
            _report_unknown(read, name, raw)
        elif alias is None or field.attribute not in read.values:
            _take(read, field, alias, raw)
    return read


def _read_foreign(foreign: ForeignFile) -> Read:
    """Return the layer of another program's file. If two of its settings mean one switch, the switch is only on if both
    are on."""
    read, file = Read(Origin(foreign.layer, foreign.path)), foreign.read()
    _report_unread(read, file)
    others: dict[str, None] = {}
    for name, raw in opened(file.data, foreign.takes):
        own_name = foreign.takes.get(name)
        if own_name is None:
            others[name if name.startswith(_GROUPS_OF_AGENTS) else name.partition(".")[0]] = None
            continue
        field, alias = spellings()[own_name]
        before = read.values.get(field.attribute)
        _take(read, field, alias, convert_value(name, raw))
        read.names[field.attribute] = name
        if before is False:
            read.values[field.attribute] = False
    if others and foreign.reports:
        names = ", ".join(others)
        read.unused.append(SettingsProblem(foreign.path, names, "has no counterpart in Retinue and no effect"))
    return read


def _take(read: Read, field: Field, alias: Alias | None, raw: Any) -> None:
    """Add a value to its layer, if it is valid."""
    name = alias.name if alias is not None else field.name

    def complain(at: str, accepts: str) -> None:
        read.report(at, f"is ignored; it must be {accepts}", limits=field.limits)

    if alias is not None and alias.kind is not None:
        raw = alias.kind.read(raw, name, complain)
    if alias is not None and alias.convert is not None and raw is not DROPPED:
        raw = alias.convert(raw)
    value = raw if raw is DROPPED else field.kind.read(raw, name, complain)
    if value is DROPPED:
        return
    if field.personal_when is not None and not read.origin.personal and field.personal_when(value):
        read.report(name, f"has no effect here: {PERSONAL_ONLY}")
    else:
        read.values[field.attribute] = value
        read.names[field.attribute] = name


def flat_names(data: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return names and values without groups: {"retry": {"enabled": …}} as `retry.enabled`. Own names come last, so
    that they override aliases in the same file."""
    pairs: list[tuple[str, Any]] = []

    def walk(prefix: str, level: Mapping[str, Any]) -> None:
        for key, value in level.items():
            name = f"{prefix}{key}"
            if name in fields() and name in groups() and isinstance(value, dict):
                # An object of its own that shares its name with a group: `hooks`.
                handlers = dict(value)
                for member, content in value.items():
                    # Handlers are lists or objects: any other value is that of a setting, perhaps a misspelt one.
                    if f"{name}.{member}" in spellings() or not isinstance(content, (list, dict)):
                        walk(f"{name}.", {member: handlers.pop(member)})
                pairs.append((name, handlers))
            elif name in groups() and isinstance(value, dict):
                walk(f"{name}.", value)
            else:
                pairs.append((name, value))

    walk("", data)
    return sorted(pairs, key=lambda item: item[0] in fields())


def _read_environment(environment: Mapping[str, str]) -> list[Read]:
    if not any(name.startswith(("RETINUE_", "PI_")) for name in environment):
        return []

    mistakes = Read(Origin("environment", "environment"))
    for name, message in explain_variables(environment).items():
        mistakes.report(name, message, limits=variable_may_limit(name))
    layers = [mistakes]
    for field in fields().values():
        # The first of its variables that is there and not empty takes effect.
        for variable in field.variables:
            value = environment.get(variable, "").strip()
            if value and not (field.attribute == "model" and value == "inherit"):
                layers.append(Read(Origin("environment", variable)))
                _take(layers[-1], field, None, raw_value(field, environment[variable]))
                break
    return layers


def _field(name: str) -> Field:
    field = find(name)
    if field is None:
        raise KeyError(name)
    return field


def _report_unknown(read: Read, name: str, raw: Any) -> None:
    message = explain_unknown(name)
    inner = next(filter(is_limit, raw), None) if isinstance(raw, dict) and name not in RETIRED else None
    if inner is not None:
        message = f"is not a setting, and {inner} has no effect in it: write it outside of it"
    if message is not None:
        read.unknown[name] = None
        read.report(name, message, limits=inner is not None or may_limit(name))


def _report_unread(read: Read, file: JsonObject) -> None:
    """Report a file that could not be read. An empty one limits nothing."""
    if file.problem is not None:
        limits = file.problem != EMPTY
        read.problems.append(SettingsProblem(read.origin.where, "", file.problem, file.refused, limits=limits))


def _repeats_limit(name: str) -> bool:
    """Return whether a name that occurs twice in one object may be a limit, whose first value is ignored."""
    return is_limit(name) or any(limit.rpartition(".")[2] == name for limit in LIMITING_SETTINGS)


def _absolute(path: Path) -> Path:
    """Return an absolute path without following links, so that people recognise it."""
    return Path(os.path.abspath(path))  # noqa: PTH100


Signature = tuple[tuple[str, tuple[int, ...] | None], ...]


def settings_signature(cwd: Path, environment: Mapping[str, str]) -> Signature:
    """Return a value that changes when a settings file for `cwd` is changed, added or removed, and when consent to such
    a file is given or withdrawn. Get it before reading the files."""
    files = [foreign.path for foreign in foreign_files(cwd, environment)]
    for _, path in settings_files(cwd, environment):
        files.append(str(path))
    files.append(str(retinue_home(environment) / "trust.json"))
    return tuple((path, _state(path)) for path in files)


def _state(path: str) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
