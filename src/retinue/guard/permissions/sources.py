"""Where rules come from: our settings and Claude Code's, each with the file that holds them.

What restricts is honoured from any file. What widens (allow rules, a mode, further folders) of a
file that came with a project counts only if the project is trusted. A rule that is no rule falls
alone and is named; a broken deny rule is named first, because it does not protect.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from retinue.core.lean import dataclass
from retinue.core.spec import PermissionMode
from retinue.guard.permissions.rule import Kind, Rule, parse_rule
from retinue.settings.jsonfile import EMPTY, read_object
from retinue.settings.places import home, repository_root

_MODES: Mapping[str, PermissionMode] = {
    "default": "default",
    "manual": "default",
    "acceptEdits": "acceptEdits",
    "plan": "plan",
    "dontAsk": "dontAsk",
    "auto": "auto",
    "bypassPermissions": "bypassPermissions",
}
_KINDS: tuple[Kind, ...] = ("deny", "ask", "allow")
_MANAGED = {"darwin": "/Library/Application Support/ClaudeCode/managed-settings.json"}
POLICY_FILE = "/etc/retinue/settings.json"


@dataclass(frozen=True, slots=True)
class Block:
    """The permissions of one file. `shared`: it came with the project, and anyone may have
    written it."""

    where: str
    base: str
    content: Mapping[str, Any]
    shared: bool = False


@dataclass(slots=True)
class Sources:
    """All of them together; `notes` is what people should know."""

    rules: list[Rule] = field(default_factory=list)
    mode: PermissionMode | None = None
    directories: list[str] = field(default_factory=list)
    bypass_disabled: bool = False
    notes: list[str] = field(default_factory=list)


def gather(blocks: Sequence[Block], trusted: Callable[[Path], bool]) -> Sources:
    """`blocks` from the weakest to the strongest: the last one that names a mode decides."""
    found = Sources()
    for block in blocks:
        believed = not block.shared or trusted(Path(block.where))
        widening = [key for key in ("allow", "defaultMode", "additionalDirectories") if block.content.get(key)]
        if widening and not believed:
            keys = ", ".join(f"permissions.{key}" for key in widening)
            remedy = f"Consent with: retinue trust add {block.where}"
            found.notes.append(f"{block.where} is not trusted: its {keys} do not count. {remedy}")
        for kind in _KINDS if believed else _KINDS[:2]:
            _rules(block, kind, found)
        if believed:
            _widen(block, found)
        disabled = block.content.get("disableBypass", block.content.get("disableBypassPermissionsMode"))
        found.bypass_disabled = found.bypass_disabled or disabled in (True, "disable")
    found.notes.sort(key=lambda note: "deny" not in note)
    return found


def _rules(block: Block, kind: Kind, found: Sources) -> None:
    listed = block.content.get(kind)
    if listed is None:
        return
    if not isinstance(listed, list | tuple):
        found.notes.append(f"{block.where}: permissions.{kind} must be a list; {_lost(kind)}")
        return
    for text in listed:
        rule = parse_rule(text, kind, source=block.where, base=block.base)
        if isinstance(rule, Rule):
            found.rules.append(rule)
        else:
            found.notes.append(f"{block.where}: the {kind} rule {str(text)[:120]!r} {rule}; {_lost(kind)}")


def _lost(kind: Kind) -> str:
    return "it does NOT protect anything until it is corrected" if kind == "deny" else "it is ignored"


def _widen(block: Block, found: Sources) -> None:
    mode = block.content.get("defaultMode")
    if isinstance(mode, str) and mode in _MODES:
        found.mode = _MODES[mode]
    elif mode is not None:
        found.notes.append(f"{block.where}: permissions.defaultMode {str(mode)[:40]!r} is not a mode; it is ignored")
    more = block.content.get("additionalDirectories")
    if isinstance(more, list | tuple):
        folders = [each for each in more if isinstance(each, str) and each.strip()]
        found.directories += [str(Path(block.base, Path(each).expanduser())) for each in folders]


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
    """What the owner of the machine wants: stronger than everyone's."""
    managed = Path(_MANAGED.get(sys.platform, "/etc/claude-code/managed-settings.json"))
    for path in (managed, Path(POLICY_FILE)):
        yield from _block(path, Path("/"), False, notes)


def _block(path: Path, base: Path, shared: bool, notes: list[str]) -> Iterator[Block]:
    file = read_object(path)
    if file.problem is not None:
        if file.problem != EMPTY:
            notes.append(f"{path} {file.problem}: deny rules in it do NOT protect anything until it is corrected")
        return
    content = file.data.get("permissions")
    if isinstance(content, dict):
        yield Block(str(path), str(base), content, shared)
    elif content is not None:
        notes.append(f"{path}: permissions must be an object: deny rules in it do NOT protect anything")
