"""The permissions of one run: rules from our settings and Claude Code's, the mode, and grants.

Restrictions are honoured from any file. Entries that widen rights (allow rules, a mode, further folders) in
a file that came with a project take effect only if the project is trusted. An allow rule that cannot be
parsed is dropped alone; a deny or ask rule that cannot be parsed holds for every call of its tool. A file of
rules that cannot be read, a name that was meant to hold rules and a rule for a tool that is almost one of ours
keep every run from being started.

Judging is in judge.py, loaded only for calls that need it: a run that only reads in a project
without rules never loads it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from msgspec import Struct, field

from retinue.core.permission import Decision, ToolUse, Verdict
from retinue.core.spec import PermissionMode
from retinue.core.tool_names import TOOL_EFFECTS, split_entries
from retinue.guard.permissions.locations import RunFolders, match_path
from retinue.guard.permissions.rule import (
    YES,
    Kind,
    Limit,
    Rule,
    is_about_files,
    names_tool,
    parse_rule,
    widest_rule,
    with_tools,
)
from retinue.settings.foreign import EMPTY, JsonObject, explain_repeated, line_of, read_object
from retinue.settings.places import home, repository_root

_MODES_BY_NAME: Mapping[str, PermissionMode] = {
    **{mode: mode for mode in get_args(PermissionMode)},
    "manual": "default",
}
_RULE_KINDS: tuple[Kind, ...] = ("deny", "ask", "allow")
_BYPASS_NAMES = ("disableBypass", "disableBypassPermissionsMode")
_SETTING_NAMES = {
    name.lower(): name
    for name in ("permissions", *(f"permissions.{key}" for key in (*_RULE_KINDS, "defaultMode", *_BYPASS_NAMES)))
}
_MANAGED = {"darwin": "/Library/Application Support/ClaudeCode/managed-settings.json"}
MAX_RULES = 5_000
"""The most rules of one kind in one file, because every call is compared with each rule."""
_TOO_MANY: Mapping[Kind, str] = {
    "deny": "every call is denied",
    "ask": "every call is asked about",
    "allow": "none of them has an effect",
}
POLICY_FILE = "/etc/retinue/settings.json"


class Block(Struct, frozen=True):
    """The permissions of one file. `shared`: it came with the project, and anyone may have
    written it."""

    where: str
    base: str
    content: Mapping[str, Any]
    shared: bool = False
    refused: str = ""
    """Why rules of the file are unknown, with their place. `content` stands for the strictest that it may hold."""


class Sources(Struct):
    """The rules of all files together. `notes` are for people."""

    rules: list[Rule] = field(default_factory=list)
    mode: PermissionMode | None = None
    directories: list[str] = field(default_factory=list)
    bypass_disabled: bool = False
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """The reasons why no run may start: unreadable rules, each with its file and line."""


def gather(blocks: Sequence[Block], trusted: Callable[[Path], bool]) -> Sources:
    """`blocks` from the weakest to the strongest: the last one that names a mode decides."""
    sources = Sources()
    for block in blocks:
        if block.refused:
            sources.refused.append(block.refused)
        believed = not block.shared or trusted(Path(block.where))
        widening = [key for key in ("allow", "defaultMode", "additionalDirectories") if block.content.get(key)]
        if widening and not believed:
            keys = ", ".join(f"permissions.{key}" for key in widening)
            remedy = f"Consent with: retinue trust add {block.where}"
            sources.notes.append(f"{block.where} is not trusted: its {keys} do not count. {remedy}")
        for kind in _RULE_KINDS if believed else _RULE_KINDS[:2]:
            _rules(block, kind, sources)
        if believed:
            _widen(block, sources)
        # Any file may switch bypassing off, and none can switch it on again.
        for key in _BYPASS_NAMES:
            # Any other value was meant to switch it off.
            off = block.content.get(key) not in (None, False, "enable")
            sources.bypass_disabled = sources.bypass_disabled or off
    # Notes about missing protection come first: one about an allow rule is only an inconvenience.
    sources.notes.sort(key=lambda note: "deny" not in note)
    return sources


def _rules(block: Block, kind: Kind, sources: Sources) -> None:
    listed = block.content.get(kind)
    if listed is None:
        return
    if not isinstance(listed, list | tuple):
        # One rule without the list around it can be read.
        listed = [listed]
    if len(listed) > MAX_RULES:
        listed = () if kind == "allow" else ("*",)
        sources.notes.append(f"{block.where}: permissions.{kind} has more than {MAX_RULES:,} rules; {_TOO_MANY[kind]}")
    for text in _one_by_one(listed):
        rule = parse_rule(text, kind, source=block.where, base=block.base)
        if isinstance(rule, Rule):
            sources.rules += with_tools(rule)
            continue
        widest = widest_rule(text, kind, source=block.where, base=block.base)
        if widest is not None:
            sources.rules.append(widest)
        sources.notes.append(f"{block.where}: the {kind} rule {str(text)[:120]!r} {rule}; {_instead(kind, widest)}")


def _one_by_one(listed: Iterable[Any]) -> Iterator[Any]:
    """Yield the rules of a list, of which one text may hold several. Other entries are yielded unchanged."""
    for text in listed:
        if isinstance(text, str) and text.strip():
            yield from split_entries(text)
        else:
            yield text


def _instead(kind: Kind, widest: Rule | None) -> str:
    """Return a sentence for people about the effect of a rule that cannot be read."""
    if widest is None:
        return "it is ignored"
    calls = "every call" if widest.glob == "*" else f"every call of {widest.text}"
    done = "denied" if kind == "deny" else "asked about"
    return f"until it is corrected, {calls} is {done}"


DENY_EVERYTHING: Mapping[str, Any] = {"deny": ["*"]}


def _widen(block: Block, sources: Sources) -> None:
    mode = block.content.get("defaultMode")
    if isinstance(mode, str) and mode in _MODES_BY_NAME:
        sources.mode = _MODES_BY_NAME[mode]
    elif mode is not None:
        sources.refused.append(f"{_place(block.where, 'defaultMode')}: {str(mode)[:40]!r} is not a permission mode")
    directories = block.content.get("additionalDirectories")
    if isinstance(directories, list | tuple):
        for directory in directories:
            if isinstance(directory, str) and directory.strip():
                sources.directories.append(str(Path(block.base, Path(directory).expanduser())))


def claude_blocks(cwd: Path, environment: Mapping[str, str], notes: list[str]) -> Iterator[Block]:
    """Claude Code's files, weakest first: the user's, then the project's from its root down to
    the working folder."""
    own = home(environment)
    yield from _block(own / ".claude" / "settings.json", own, False, notes)
    here = cwd.absolute()
    root = repository_root(here) or here
    folders = [folder for folder in (here, *here.parents) if folder == root or root in folder.parents]
    for folder in reversed(folders):
        if folder != own:
            for name in ("settings.json", "settings.local.json"):
                yield from _block(folder / ".claude" / name, folder, True, notes)


def policy_blocks(notes: list[str]) -> Iterator[Block]:
    """Yield the rules of the machine's administrator: stronger than all others."""
    managed = Path(_MANAGED.get(sys.platform, "/etc/claude-code/managed-settings.json"))
    for path in (managed, Path(POLICY_FILE)):
        yield from _block(path, Path("/"), False, notes)


def _block(path: Path, base: Path, shared: bool, notes: list[str]) -> Iterator[Block]:
    file = read_object(path, exact=True)
    if file.problem == EMPTY:
        return
    content = file.data.get("permissions")
    problem = ""
    if file.problem is not None:
        problem = f"{path} {file.problem}"
    elif content is not None and not isinstance(content, dict):
        problem = f"{_place(str(path))}: permissions must be an object"
    problem = problem or next(_slips(path, file), "")
    if problem:
        yield Block(str(path), str(base), DENY_EVERYTHING, shared, problem)
    elif isinstance(content, dict):
        yield Block(str(path), str(base), content, shared)
    notes += (f"{path}: {name} {explain_repeated(name)}" for name in file.repeated)


def _slips(path: Path, file: JsonObject) -> Iterator[str]:
    """Yield problems that keep limits from being read: a misspelled name, or a name that occurs twice. Retinue ignores
    other names in Claude Code's files."""
    from difflib import get_close_matches

    content = file.data.get("permissions")
    inner = content if isinstance(content, dict) else {}
    for name in (*file.data, *(f"permissions.{key}" for key in inner)):
        if name in _SETTING_NAMES.values():
            continue
        # Such as `deny` outside of `permissions`.
        moved = f"permissions.{name.lower()}"
        near = [moved] if moved in _SETTING_NAMES else get_close_matches(name.lower(), _SETTING_NAMES, n=1, cutoff=0.8)
        for meant in near:
            line = line_of(path, name)
            yield f"{path}{f':{line}' if line else ''}: {name} is not a setting; did you mean {_SETTING_NAMES[meant]}?"
    for name, value in file.data.items():
        if name != "permissions" and isinstance(value, dict) and "permissions" in value:
            yield f"{path}: {name} is not a setting, and permissions has no effect in it: write it outside of it"
    for name in file.repeated:
        if name in ("permissions", "deny", "ask", "defaultMode", *_BYPASS_NAMES):
            yield f"{path}: {name} stands twice in one object, and only one of them would count"


def _place(path: str, key: str = "") -> str:
    """Return a file with the line on which its permissions stand."""
    line = line_of(Path(path), f"permissions.{key}".rstrip("."))
    return f"{path}:{line}" if line else path


QUIET = frozenset({"read", "ask", "spawn"})
"""Effects that no mode asks about: started runs have a guard of their own."""
_READS = Decision("allow", "It changes nothing.", "mode")


class Denials:
    """Counts the denials of the mode auto, in a row and in total. Above either limit a person decides again."""

    IN_A_ROW = 3
    IN_ALL = 20

    __slots__ = ("in_a_row", "in_all")

    def __init__(self) -> None:
        self.in_a_row = self.in_all = 0

    def count(self, verdict: Verdict) -> None:
        if verdict == "deny":
            self.in_a_row += 1
            self.in_all += 1
        else:
            self.in_a_row = 0

    @property
    def too_many(self) -> bool:
        return self.in_a_row >= self.IN_A_ROW or self.in_all >= self.IN_ALL


class PermissionPolicy:
    """Implements `core.permission.Permissions`. Not changed by calls; only `grant` adds."""

    def __init__(
        self,
        mode: PermissionMode,
        folders: RunFolders,
        rules: Iterable[Rule] = (),
        *,
        limits: Sequence[Limit] = (),
        grants: Sequence[Rule] = (),
        presets: bool = False,
        walls: bool = False,
        masks: bool = False,
    ) -> None:
        """`presets` adds what CodingCode forbids from the start. `walls`: commands that nobody
        allowed run inside the read-only walls. `masks`: the walls of every command hide and keep
        what rules about files forbid."""
        self.mode: PermissionMode = mode
        self.folders = folders
        self.limits = tuple(limits)
        self.presets = presets
        self.walls = walls
        self.masks = masks
        self.denials = Denials()
        self.web_unasked = False
        """Whether the run may search and fetch without being asked: it can read nothing here that it could send, and
        has read nothing so far."""
        self.own_rules = tuple(dict.fromkeys(rules))
        self._grants = list(grants)
        self._restricting = bool(limits) or any(rule.kind != "allow" for rule in self.own_rules)
        self.wary = any(rule.kind != "allow" and rule.specifier and "bash" in rule.tools for rule in self.own_rules)
        """Whether some commands are forbidden or asked about: no other may be a way around that."""

    @property
    def allowing(self) -> tuple[Rule, ...]:
        return (*(rule for rule in self.own_rules if rule.kind == "allow"), *self._grants)

    def decide(self, use: ToolUse) -> Decision:
        """Never raises. After an internal error the call is asked about, or denied where nobody may be asked."""
        try:
            # Most calls only read: they are answered without loading the judge.
            if not self._restricting and use.effects and use.effects <= QUIET and use.tool in TOOL_EFFECTS:
                return _READS
            from retinue.guard.permissions.judge import judge

            return judge(self, use)
        except Exception as error:  # noqa: BLE001 - a defect in here must not let anything through
            reason = f"The call could not be judged ({type(error).__name__})."
            return Decision("deny" if self.mode == "dontAsk" else "ask", reason, "unparsed", risk="high")

    def grant(self, rule: str) -> None:
        """Raise ValueError for a text that is not a rule."""
        parsed = parse_rule(rule, "allow", source="granted in this session", base=self.folders.cwd)
        if isinstance(parsed, str):
            raise ValueError(f"{rule} {parsed}")
        self._grants.append(parsed)

    def fork(
        self,
        mode: PermissionMode,
        rules: Iterable[Rule] = (),
        *,
        folders: RunFolders | None = None,
        limits: Sequence[Limit] = (),
        presets: bool = False,
    ) -> PermissionPolicy:
        """Return the permissions of a child: it has every restriction of this run and every grant so
        far. Later grants to one do not reach the other."""
        return PermissionPolicy(
            mode,
            folders or self.folders,
            (*self.own_rules, *rules),
            limits=(*self.limits, *limits),
            grants=self._grants,
            presets=presets or self.presets,
            walls=self.walls,
            masks=self.masks,
        )

    def withheld(self) -> Callable[[str], bool] | None:
        """Return a function that tells whether a rule forbids reading a file, or wants it asked: a search
        over a folder leaves such files out. None where no rule is about files."""
        rules = [
            rule
            for rule in self.own_rules
            if rule.kind != "allow" and rule.effect == "read" and rule.specifier is not None and is_about_files(rule)
        ]
        if not rules:
            return None
        folders = self.folders.now()
        return lambda path: any(match_path(rule, folders, path) == YES for rule in rules)

    def hides(self, tool: str) -> Rule | None:
        """Return the rule that denies every call of a tool, so that models need not see the tool."""
        for rule in self.own_rules:
            if rule.kind == "deny" and rule.bare and names_tool(rule, tool):
                return rule
        return None
