"""The permission mode of a run, the classifier of the mode auto, preset rules, tainted runs, and protected files.

The mode in an agent's file applies where its parent's mode leaves room: a parent that acts freely passes that on,
and a parent that may only plan, or must not ask, keeps its children there. In the mode auto a model answers what
the mode alone would ask. It never sees, and cannot overrule, a question that a rule, a critical deletion, a
protected path or an unclear command has raised. When it denies too often, people are asked again. CodingCode
treated a rule that asks as no answer, so reading `.env` went through; here it asks.

A web page may hold instructions that a model follows. Where the setting `web.taint` is `ask`, a run is tainted as
soon as it has received something from another host. Taint spreads to every run above, which will read its answer,
and to every run started afterwards, whose task the page may have written. It is never lifted.

Protected files decide what other programs do: settings of repositories, editors, agents and package managers,
startup files of shells, and folders where programs are looked for. A rule or mode that allows a change does not
include them, unless the rule names one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Protocol

from retinue.agents.folders import dialect_folders
from retinue.core.permission import READ_ONLY, Decision, EffectKind, Permissions, ToolEffect, ToolUse, Verdict
from retinue.core.spec import AgentSpec, PermissionMode
from retinue.core.tool_names import TOOL_EFFECTS
from retinue.guard.permissions.locations import RunFolders
from retinue.guard.permissions.policy import PermissionPolicy
from retinue.guard.permissions.rule import GLOB, HOLE, Kind, Rule, is_known, match, parse_rule

MAX_QUESTION_CHARACTERS = 8_000
_ANSWERS: dict[str, Verdict] = {"ALLOW": "allow", "DENY": "deny", "ASK": "ask"}


class Classifier(Protocol):
    async def __call__(self, system: str, question: str) -> str:
        """Return the answer of a model. If this raises, a person is asked."""
        ...


async def classify_call(policy: PermissionPolicy, use: ToolUse, decision: Decision, classifier: Classifier) -> Decision:
    """Return the classifier's decision, or `decision` if its answer is not clear."""
    if decision.verdict != "ask" or not decision.facts.get("classify") or policy.denials.too_many:
        return decision
    asked = question(use, decision)
    if asked is None:
        return decision
    try:
        answer = await classifier(prompt(), asked)
    except Exception:  # noqa: BLE001 - a model that fails has no opinion
        return decision
    verdict, reason = read_answer(answer)
    policy.denials.count(verdict)
    if verdict == "ask":
        return decision
    return Decision(verdict, f"The classifier says: {reason or verdict}.", "classifier", risk=decision.risk)


def prompt() -> str:
    return Path(__file__).with_name("auto.md").read_text(encoding="utf-8")


def question(use: ToolUse, decision: Decision) -> str | None:
    """Return the call as data; None for one that is too long to be judged as a whole."""
    call = {"tool": use.tool, "arguments": use.arguments, "why asked": decision.reason}
    text = json.dumps(call, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_QUESTION_CHARACTERS else None


def read_answer(text: str) -> tuple[Verdict, str]:
    """Return the verdict of a one-line answer. The verdict of any other answer is ask."""
    line = text.strip()
    word, _, reason = line.partition(":")
    verdict = _ANSWERS.get(word.strip().upper())
    # A model that argues has not given a clear answer.
    if verdict is None or "\n" in line:
        return "ask", ""
    return verdict, " ".join(reason.split())[:200].rstrip(".")


OVERRIDING: frozenset[PermissionMode] = frozenset({"bypassPermissions", "acceptEdits", "auto"})
_BY_FREEDOM: tuple[PermissionMode, ...] = ("plan", "dontAsk", "default", "acceptEdits", "auto", "bypassPermissions")
FREEDOM = {mode: freedom for freedom, mode in enumerate(_BY_FREEDOM)}


def effective_mode(
    above: PermissionMode, spec: AgentSpec, *, trusted: bool, bypass_disabled: bool, notes: list[str]
) -> PermissionMode:
    """`above` is the parent's mode; for a run that has no parent, that of the session. `trusted`:
    someone has consented to what the file brings."""
    if above == "bypassPermissions" and bypass_disabled:
        notes.append("bypassPermissions is disabled by permissions.disableBypass: the mode is default")
        above = "default"
    own_mode = spec.permission_mode
    if own_mode is None or own_mode == above:
        return above
    if above in OVERRIDING:
        notes.append(f"permission mode {above} of the parent replaces {own_mode} of the file")
        return above
    # A narrower mode needs nobody's consent.
    if FREEDOM[own_mode] > FREEDOM[above]:
        refusal = _may_not_rise(above, own_mode, spec, trusted, bypass_disabled)
        if refusal is not None:
            notes.append(f"permission mode {own_mode} of the file is ignored, the mode is {above}: {refusal}")
            return above
    return own_mode


def _may_not_rise(
    above: PermissionMode, own_mode: PermissionMode, spec: AgentSpec, trusted: bool, bypass_disabled: bool
) -> str | None:
    if above != "default":
        return "an agent has no more freedom than the one that started it"
    if own_mode == "bypassPermissions" and bypass_disabled:
        return "permissions.disableBypass is set"
    if spec.source == "plugin":
        return "plugins cannot bring one"
    if trusted:
        return None
    return "the project's file is not trusted"


SOURCE = "CodingCode's presets"
_RULES: tuple[tuple[Kind, str], ...] = (
    ("deny", "Bash(rm -rf /)"),
    ("deny", "Bash(sudo:*)"),
    ("deny", "Bash(chmod u+s *)"),
    ("deny", "Bash(shutdown:*)"),
    ("deny", "Read(//etc/shadow)"),
    ("deny", "Read(//etc/passwd)"),
    ("ask", "Read(//**/.ssh/**)"),
    ("ask", "Read(//**/.env)"),
)


@cache
def preset_rules() -> tuple[Rule, ...]:
    rules: list[Rule] = []
    for kind, text in _RULES:
        rule = parse_rule(text, kind, source=SOURCE)
        assert isinstance(rule, Rule)
        rules.append(rule)
    return tuple(rules)


_OUTWARD: frozenset[EffectKind] = frozenset({"execute", "spawn"})


class Taint:
    """Records whether a run is tainted, and its first source."""

    def __init__(self, above: Taint | None = None, source: str | None = None) -> None:
        self._above = above
        self.source = source
        if source is None and above is not None:
            self.source = above.source

    def mark(self, source: str) -> None:
        """Record that the run has received something from `source`."""
        self.source = self.source or source
        if self._above is not None and self._above.source is None:
            self._above.mark(source)

    def observe(self, effect: ToolEffect) -> None:
        if effect.hosts:
            self.mark(effect.hosts[0])


class TaintedPermissions:
    """The permissions of a run that may be tainted. Each allowed call that reaches outward is asked about, in every
    mode."""

    def __init__(self, inner: Permissions, taint: Taint) -> None:
        self._inner = inner
        self._taint = taint

    @property
    def mode(self) -> PermissionMode:
        return self._inner.mode

    def grant(self, rule: str) -> None:
        self._inner.grant(rule)

    def decide(self, use: ToolUse) -> Decision:
        decision = self._inner.decide(use)
        source = self._taint.source
        # Inside the sandbox of `confine` nothing can be sent anywhere.
        if decision.verdict != "allow" or source is None or not reaches_outward(use):
            return decision
        reason = f"This run has read text from {source}, which may have told it to do this."
        if self.mode == "dontAsk":
            return Decision("deny", f"{reason} The mode is dontAsk.", "taint", "web.taint", "high")
        return Decision("ask", reason, "taint", "web.taint", "high")


def reaches_outward(use: ToolUse) -> bool:
    """Return whether a call can do harm beyond the files of the workspace, which can be put back."""
    # Our own tools that only look send other hosts no more than an address.
    if use.confined or (use.tool in TOOL_EFFECTS and use.effects <= READ_ONLY):
        return False
    return bool(use.effects & (_OUTWARD | {"network"})) or use.tool.startswith("mcp__")


_PROTECTED_FOLDERS = dialect_folders() | frozenset(
    {".git", ".vscode", ".idea", ".husky", ".cargo", ".devcontainer", ".yarn", ".mvn", ".kimi", ".devkit", ".codex"}
    | {".ssh", ".gnupg", ".aws", ".kube", ".docker", ".github/workflows", ".config/git"}
    | {".qwen", ".factory", ".windsurf", ".roo", ".kiro", ".continue", ".trae", ".junie", ".augment", ".amazonq"}
    | {".goose", ".crush", ".zed", ".clinerules"}
)
"""Of every dialect whose agents are found, and of other programs: editors, other agents, package managers."""
_PROTECTED_FILES = frozenset(
    ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zprofile .zshenv .zlogin .zlogout"
    " .kshrc .cshrc .tcshrc .inputrc .envrc .gitconfig .gitmodules .gitattributes .npmrc .yarnrc .yarnrc.yml .pnpmrc"
    " .bunfig.toml .pypirc .netrc .curlrc .wgetrc .pre-commit-config.yaml .pre-commit-config.yml lefthook.yml"
    " lefthook.yaml .lefthook.yml .lefthook.yaml lefthook.toml lefthook.json .bazelrc .bazelversion bazelisk.rc"
    " gradle-wrapper.properties maven-wrapper.properties .mcp.json .claude.json .lldbinit .gdbinit .vimrc"
    " sitecustomize.py usercustomize.py authorized_keys config.fish".split()
)
_NAME = rf"[^/{HOLE}{GLOB}]+"
_SPARED = re.compile(
    rf"/(?:\.claude/worktrees/{_NAME}|\.retinue/(?:agent-memory(?:-local)?|worktrees/{_NAME}"
    rf"|projects/{_NAME}/brought/{_NAME}/agent-memory(?:-local)?"
    rf"|projects/{_NAME}/worktrees/(?!{_NAME}\.(?:git|json|lock)(?:/|\Z)){_NAME}))(?=/|\Z)"
)
"""Places in protected folders that agents are meant to write to. What is in them is looked at as
if they were anywhere else: a copy of a project also has settings."""


_PARTS = {
    ".git": ("hooks", "config", "config.worktree", "info/attributes", "commondir"),
    ".cargo": ("config", "config.toml"),
    ".yarn": ("releases", "plugins"),
    ".claude": ("settings.json", "settings.local.json", "agents", "skills", "commands", "hooks"),
    ".retinue": ("settings.json", "settings.local.json", "agents", "skills"),
}
"""The protected parts of folders whose other parts programs must be able to write."""
_IN_HOME = frozenset(
    {
        ".ssh",
        ".gnupg",
        ".config/git",
        ".config/opencode",
        ".claude",
        ".retinue",
        ".pi",
        ".cursor",
        ".gemini",
        *_PROTECTED_FILES,
    }
)


def protected_paths(roots: Iterable[Path], home: Path, named: Sequence[str]) -> tuple[Path, ...]:
    """Return the existing files and folders that the walls protect from changes, without those that an allow rule
    names. `named` are the patterns of allow rules."""
    paths = _existing(home, _IN_HOME, named)
    for root in roots:
        paths += _existing(root, (*_PROTECTED_FOLDERS, *_PROTECTED_FILES), named)
    return tuple(map(Path, dict.fromkeys(paths)))


def _existing(folder: Path, names: Iterable[str], named: Sequence[str]) -> list[str]:
    paths: list[str] = []
    for name in names:
        if any(name in pattern for pattern in named):
            continue
        # By text: there are hundreds of them, and most do not exist.
        for inner in _PARTS.get(name, ("",)):
            path = f"{folder}/{name}/{inner}".rstrip("/")
            if os.path.lexists(path):
                paths.append(path)
    return paths


def protected_name(path: str, folders: RunFolders, base: str | None = None) -> str | None:
    """Return the protected name in `path`, or None. What is not known of the path may be one."""
    # A link with a harmless name may lead to a protected file.
    for form in folders.forms(path, base):
        name = _in_form(form)
        if name is not None:
            return name
        programs = _program_folders(folders.programs, folders.cwd)
        if form in programs or form.rpartition("/")[0] in programs:
            return "folder of programs"
    return None


@lru_cache(maxsize=32)
def _program_folders(programs: str, cwd: str) -> frozenset[str]:
    """Return where programs are looked for: a file put there can become the next `ls`. The working
    directory itself is left out, or no file in it could be written."""
    program_folders: set[str] = set()
    for entry in programs.split(":"):
        folder = os.path.normpath(os.path.join(cwd, entry))  # noqa: PTH118 - links stay
        if folder != cwd:
            program_folders |= {folder, os.path.realpath(folder)}
    return frozenset(program_folders)


def _in_form(path: str) -> str | None:
    parts = list(filter(None, _SPARED.sub("", path.lower()).split("/")))
    for at, segment in enumerate(parts):
        for name in {segment, "/".join(parts[at : at + 2])} & _PROTECTED_FOLDERS:
            return name
        if not is_known(segment):
            return _may_be(segment, last=at == len(parts) - 1)
    if parts and parts[-1] in _PROTECTED_FILES:
        return parts[-1]
    return None


def _may_be(segment: str, *, last: bool) -> str | None:
    """Return the name that a part with marks may be: `.g*` may be `.git`. A plain `*` matches no name
    with a dot."""
    if not segment.strip(HOLE):
        return "a path that is known only when it runs"
    # The shell does not match hidden files with a pattern that begins with `*`.
    if segment.startswith(GLOB) and HOLE not in segment:
        return None
    names = (*_PROTECTED_FOLDERS, *_PROTECTED_FILES) if last else _PROTECTED_FOLDERS
    for name in names:
        if match(name, segment):
            return name
    return None
