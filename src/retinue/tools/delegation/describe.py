"""The description of the Agent tool: full, compact, or from a template of the user's own.

All three are templates filled in the same way, so that a copy of `prompts/Agent.md` as a custom
template yields exactly the full text. Values go in literally and once: a description that
contains a placeholder stays what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

from retinue.core.lean import dataclass
from retinue.settings.places import pi_home, repository_root, retinue_home
from retinue.tools.delegation.types import TypeLine

TEMPLATE_FILE = "agent-tool-description.md"
Mode = Literal["full", "compact", "custom"]

_PLACEHOLDER = re.compile(r"\{\{([A-Za-z]\w*)\}\}")
_TEMPLATES = Path(__file__).parent / "prompts"
_LARGEST = 100_000
_OWN_LINE = frozenset({"scheduleGuideline", "isolationGuideline"})
"""Rules that begin a line of their own also where a template puts them right after its last rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """What decides the texts a model sees of the delegation tools. `depth` is that of the run
    which has the tool (main is 0); `background` says how agents work and `default` which is
    started when the call does not say; `template` is the text of mode `custom`."""

    types: tuple[TypeLine, ...] = ()
    mode: Mode = "full"
    template: str | None = None
    agent_dir: str = "~/.retinue/agents"
    depth: int = 0
    max_depth: int = 3
    background: bool = True
    default: str | None = "general-purpose"
    schedules: bool = False
    worktrees: bool = True
    no_worktrees: str = "worktrees are switched off (worktreeIsolation)"
    """Why there are no worktrees, where `worktrees` is False."""


@dataclass(frozen=True, slots=True)
class Template:
    """A custom description, if there is a usable one, and what to tell the user about it."""

    text: str | None = None
    path: Path | None = None
    warnings: tuple[str, ...] = ()


@lru_cache(maxsize=128)
def describe(wording: Wording) -> str:
    """The description for `wording`. Without a template of its own, custom is full."""
    custom = (wording.template or "").strip() if wording.mode == "custom" else ""
    if custom:
        return fill(custom, wording)
    return fill(_shipped("agent-compact" if wording.mode == "compact" else "Agent"), wording)


def fill(template: str, wording: Wording) -> str:
    """`template` with its placeholders replaced. A line of nothing but placeholders disappears
    when they are empty; an unknown placeholder stays."""
    values = _values(wording)

    def value(found: re.Match[str]) -> str:
        text = values.get(found[1], found[0])
        follows = found[1] in _OWN_LINE and bool(found.string[: found.start()].strip())
        return f"\n{text}" if text and follows else text

    lines = []
    for line in template.replace("\r\n", "\n").strip().split("\n"):
        filled = _PLACEHOLDER.sub(value, line)
        if filled.strip() or not _PLACEHOLDER.search(line):
            lines.append(filled)
    return "\n".join(lines)


def find_template(cwd: Path, environment: Mapping[str, str] | None = None) -> Template:
    """The user's template: the project's nearest one, else the user's own. An unreadable or
    empty file is passed over with a warning; nothing is created."""
    warnings: list[str] = []
    for path in _places(cwd, environment):
        text = _read(path, warnings)
        if text is not None:
            return Template(text, path, (*warnings, *_unknown(text, path)))
    warnings.append(f"toolDescriptionMode is custom, but there is no {TEMPLATE_FILE}; the full description is used.")
    return Template(None, None, tuple(warnings))


def _values(wording: Wording) -> dict[str, str]:
    following = wording.depth + 1
    guidelines = _guidelines()
    return {
        "typeList": "\n".join(line.full() for line in wording.types),
        "compactTypeList": "\n".join(line.compact() for line in wording.types),
        "agentDir": wording.agent_dir,
        "backgroundGuideline": guidelines["background" if wording.background else "foreground"],
        "scheduleGuideline": guidelines["schedule"] if wording.schedules else "",
        "isolationGuideline": guidelines["isolation"] if wording.worktrees else "",
        "currentDepth": str(following),
        "maxDepth": str(wording.max_depth),
        "recursiveGuideline": f"{guidelines['recursive']} {following}/{wording.max_depth}.",
    }


@cache
def _shipped(name: str) -> str:
    return (_TEMPLATES / f"{name}.md").read_text("utf-8")


@cache
def _guidelines() -> dict[str, str]:
    """`guidelines.md`: one line for each, as `name: text`."""
    pairs = (line.partition(": ") for line in _shipped("agent-guidelines").strip().splitlines())
    return {name: text for name, _, text in pairs}


def _places(cwd: Path, environment: Mapping[str, str] | None) -> Iterator[Path]:
    root = repository_root(cwd) or cwd
    for folder in (cwd, *cwd.parents):
        yield folder / ".retinue" / TEMPLATE_FILE
        yield folder / ".pi" / TEMPLATE_FILE
        if folder == root:
            break
    yield retinue_home(environment) / TEMPLATE_FILE
    yield pi_home(environment) / TEMPLATE_FILE


def _read(path: Path, warnings: list[str]) -> str | None:
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST).decode("utf-8-sig", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        warnings.append(f"{path} cannot be read ({error.strerror}).")
        return None
    if text.strip():
        return text
    warnings.append(f"{path} is empty.")
    return None


def _unknown(text: str, path: Path) -> tuple[str, ...]:
    known = _values(Wording())
    names = dict.fromkeys(name for name in _PLACEHOLDER.findall(text) if name not in known)
    return tuple(f"{path}: unknown placeholder {{{{{name}}}}} is left as it is." for name in names)
