"""Parsing of a skill's file, and the folders of skills in order of precedence.

Skills of the project come before the user's, and a nearer folder before those above it, up to the root of the
repository. Within one folder, Retinue's own come before Claude Code's, pi's and the shared `.agents`. Folders from
settings and plugins come last. A root that is a symbolic link is not used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, assert_never

from msgspec import Struct, field

from retinue.agents.frontmatter import split
from retinue.agents.prompt_files import project_folders, read_keys
from retinue.core.foreign import Provenance
from retinue.core.tool_names import split_entries
from retinue.settings.places import home, pi_home, retinue_home

PROJECT_FOLDERS = (".retinue/skills", ".claude/skills", ".pi/skills", ".agents/skills")


class Root(Struct, frozen=True):
    """One folder of skills. Those of a `plugin` are called `plugin:skill`."""

    path: Path
    source: SkillSource
    plugin: str | None = None


def skill_roots(
    cwd: Path,
    environment: Mapping[str, str],
    *,
    extra: Iterable[str] = (),
    plugins: Iterable[tuple[str, Path]] = (),
    brought: Path | None = None,
) -> tuple[Root, ...]:
    """Return every folder to search, whether it exists or not. `extra` are paths from settings, `plugins` are names
    with their skill folders. Skills that a run `brought` from its sender's home come before those of this machine."""
    homes = (home(environment), retinue_home(environment), pi_home(environment))
    roots = _roots(cwd, *homes, tuple(extra), tuple(plugins))
    if brought is None or not (brought / "skills").is_dir():
        return roots
    theirs = sorted((brought / "skills").iterdir(), key=lambda folder: int(folder.name))
    of_project = [root for root in roots if root.source == "project"]
    return (*of_project, *(Root(path, "sender") for path in theirs), *roots[len(of_project) :])


# Every launch asks for the roots.
@lru_cache(maxsize=64)
def _roots(
    cwd: Path, house: Path, own: Path, pi: Path, extra: tuple[str, ...], plugins: tuple[tuple[str, Path], ...]
) -> tuple[Root, ...]:
    user = (
        own / "skills",
        house / ".claude" / "skills",
        pi / "skills",
        house / ".agents" / "skills",
        house / ".pi" / "skills",
    )
    roots = [Root(path, "project") for path in project_folders(cwd, PROJECT_FOLDERS, user)]
    roots += [Root(path, "user") for path in user]
    for text in extra:
        roots.append(Root(house / text[2:] if text.startswith("~/") else cwd / text, "extra"))
    roots += [Root(path, "plugin", name) for name, path in plugins]
    first: dict[Path, Root] = {}
    for root in roots:
        first.setdefault(root.path, root)
    return tuple(first.values())


_SKILL_KEYS = {
    *("name", "description", "when_to_use", "argument-hint", "arguments", "disable-model-invocation"),
    *("user-invocable", "allowed-tools", "context", "agent", "background", "model"),
}
_KEY_ALIASES = {
    "when-to-use": "when_to_use",
    "allowed_tools": "allowed-tools",
    "argument_hint": "argument-hint",
    "disable_model_invocation": "disable-model-invocation",
    "user_invocable": "user-invocable",
}
_TRUE_WORDS = frozenset({"true", "yes", "on", "1", "y"})
_FALSE_WORDS = frozenset({"false", "no", "off", "0", "n", ""})
MAX_PARAGRAPH_CHARACTERS = 400
"""The limit for a description that is taken from the first paragraph."""


def parse_skill_file(data: bytes, name: str, path: Path, folder: Path | None, root: Root) -> tuple[Skill, str]:
    """Return the skill, and the name in its frontmatter. Never raises: a file that cannot be read is a skill with a
    problem."""
    parts = split(data)
    # A file that only begins like frontmatter may be text, unless its fence is not closed.
    if parts.error is not None and (not parts.body or parts.error.code == "frontmatter-unclosed"):
        return Skill(name=name, path=path, source=root.source, folder=folder, problem=parts.error.message), ""
    values, problem = read_keys(parts, _SKILL_KEYS, _KEY_ALIASES)
    description = _text(values.get("description"))
    if not description and (folder is not None or parts.block is not None):
        description = _first_paragraph(parts.body)
    background = values.get("background")
    skill = Skill(
        name=name,
        path=path,
        source=root.source,
        folder=folder,
        description=description,
        when_to_use=_text(values.get("when_to_use")),
        argument_hint=_text(values.get("argument-hint")),
        arguments=_names(values.get("arguments")),
        allowed_tools=_tools(values.get("allowed-tools")),
        # A single file without a description is loaded only if an agent file or a person names it.
        model_invocable=not _flag(values.get("disable-model-invocation"), False)
        and (folder is not None or bool(description)),
        user_invocable=_flag(values.get("user-invocable"), True),
        fork=_text(values.get("context")).lower() == "fork",
        agent=_text(values.get("agent")) or None,
        background=None if background is None else _flag(background, False),
        model=_text(values.get("model")) or None,
        extra={key: value for key, value in values.items() if key not in _SKILL_KEYS},
        problem=problem,
    )
    return skill, _text(values.get("name"))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return "" if value is None or isinstance(value, dict) else str(value)


def _flag(value: Any, otherwise: bool) -> bool:
    """Return a switch; `otherwise` for a value that is missing or cannot be understood."""
    word = str(value).strip().lower()
    if word in _TRUE_WORDS:
        return True
    return otherwise and word not in _FALSE_WORDS


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.replace(",", " ").split()
    if not isinstance(value, list | tuple):
        return ()
    entries = [entry.get("name") if isinstance(entry, dict) else entry for entry in value]
    return tuple(entry.strip() for entry in entries if isinstance(entry, str) and entry.strip().isidentifier())


def _tools(value: Any) -> tuple[str, ...]:
    """Read a list, or a text with commas or blanks between the names; patterns keep the text in their parentheses."""
    if isinstance(value, list | tuple):
        return tuple(filter(None, map(_text, value)))
    return split_entries(value, blanks=True) if isinstance(value, str) else ()


def _first_paragraph(body: str) -> str:
    for block in body.split("\n\n"):
        lines = [line for line in block.strip().splitlines() if not line.lstrip().startswith("#")]
        text = " ".join(lines).strip()
        if text:
            return text[:MAX_PARAGRAPH_CHARACTERS]
    return ""


SkillSource = Literal["project", "user", "extra", "plugin", "sender"]
"""`extra`: a folder from settings, which may be a project's. `sender`: the home of the machine that sent the run."""


class Skill(Struct, frozen=True, kw_only=True):
    """A skill without its text. `path` is its Markdown file; `folder` contains its bundled files and is None for a
    skill that is a single file."""

    name: str
    path: Path
    source: SkillSource
    folder: Path | None = None
    description: str = ""
    when_to_use: str = ""
    argument_hint: str = ""
    arguments: tuple[str, ...] = ()
    """The names of its arguments, in order."""
    allowed_tools: tuple[str, ...] = ()
    """Calls that are allowed without asking once it is loaded, if its file is trusted."""
    model_invocable: bool = True
    user_invocable: bool = True
    fork: bool = False
    """It runs in a separate agent."""
    agent: str | None = None
    background: bool | None = None
    model: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Keys without effect."""
    problem: str = ""
    """Why it cannot be used; empty for one that can."""

    @property
    def provenance(self) -> Provenance:
        match self.source:
            case "user":
                return "person"
            case "project" | "extra" | "plugin":
                return "project"
            case "sender":
                return "machine"
            case _:
                assert_never(self.source)
