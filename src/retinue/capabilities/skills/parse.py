"""A skill's file: what its frontmatter says, and its text; and the folders of skills in order.

Skills of the project come before the user's, a nearer folder before the ones above it up to the
repository's root, and within one folder Retinue's own before Claude Code's, pi's and the shared
`.agents`. Folders from the settings and from plugins come last. A root that is a symbolic link is
not used.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, assert_never

from msgspec import Struct, field

from retinue.agents.folders import levels
from retinue.agents.frontmatter import read, split
from retinue.core.foreign import Provenance
from retinue.settings.places import home, pi_home, retinue_home

PROJECT = (".retinue/skills", ".claude/skills", ".pi/skills", ".agents/skills")


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
    """Return every folder to search, whether it exists or not. `extra` are paths as settings have them, `plugins` are
    names with their skill folders. What a run `brought` from another home is before that of this machine."""
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
    found: list[Root] = []
    for level in levels(cwd):
        for name in PROJECT:
            # In the user's home folder a project's folder and the user's are one, and it is the user's.
            if level / name not in user:
                found.append(Root(level / name, "project"))
    found += [Root(path, "user") for path in user]
    found += [Root(_expand(each, cwd, house), "extra") for each in extra]
    found += [Root(path, "plugin", name) for name, path in plugins]
    first: dict[Path, Root] = {}
    for root in found:
        first.setdefault(root.path, root)
    return tuple(first.values())


def _expand(text: str, cwd: Path, house: Path) -> Path:
    return house / text[2:] if text.startswith("~/") else cwd / text


_KNOWN = {
    *("name", "description", "when_to_use", "argument-hint", "arguments", "disable-model-invocation"),
    *("user-invocable", "allowed-tools", "context", "agent", "background", "model"),
}
_ALSO = {"when-to-use": "when_to_use", "allowed_tools": "allowed-tools", "argument_hint": "argument-hint"}
_ALSO |= {"disable_model_invocation": "disable-model-invocation", "user_invocable": "user-invocable"}
_TRUE = frozenset({"true", "yes", "on", "1", "y"})
_FALSE = frozenset({"false", "no", "off", "0", "n", ""})
_FIRST = 400


def parse_skill_file(data: bytes, name: str, path: Path, folder: Path | None, root: Root) -> tuple[Skill, str]:
    """Return the skill, and the name in its frontmatter. Never raises: a file that cannot be read
    is a skill with a problem."""
    parts = split(data)
    # A file that only begins with keys may be text; one with an open fence is not.
    if parts.error is not None and (not parts.body or parts.error.code == "frontmatter-unclosed"):
        return Skill(name=name, path=path, source=root.source, folder=folder, problem=parts.error.message), ""
    matter, said, problem = None, dict[str, Any](), ""
    if parts.block is not None:
        matter = read(parts.block, _KNOWN.__contains__)
        for item in matter.items:
            key = item.key.lower()
            said[_ALSO.get(key, key)] = item.value
        if matter.error is not None:
            problem = matter.error.message
    description = _text(said.get("description"))
    if not description and (folder is not None or matter is not None):
        description = _first_paragraph(parts.body)
    background = said.get("background")
    if background is not None:
        background = _flag(background, False)
    extra = dict(said)
    for key in _KNOWN:
        extra.pop(key, None)
    skill = Skill(
        name=name,
        path=path,
        source=root.source,
        folder=folder,
        description=description,
        when_to_use=_text(said.get("when_to_use")),
        argument_hint=_text(said.get("argument-hint")),
        arguments=_names(said.get("arguments")),
        allowed_tools=_tools(said.get("allowed-tools")),
        # A loose file without a description is loaded only where a file or a person names it.
        model_invocable=not _flag(said.get("disable-model-invocation"), False)
        and (folder is not None or bool(description)),
        user_invocable=_flag(said.get("user-invocable"), True),
        fork=_text(said.get("context")).lower() == "fork",
        agent=_text(said.get("agent")) or None,
        background=background,
        model=_text(said.get("model")) or None,
        extra=extra,
        problem=problem,
    )
    return skill, _text(said.get("name"))


def body_of(data: bytes) -> str:
    return split(data).body.strip()


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return "" if value is None or isinstance(value, dict) else str(value)


def _flag(value: Any, otherwise: bool) -> bool:
    """Return a switch; `otherwise` for what is missing or cannot be understood."""
    word = str(value).strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    return otherwise


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.replace(",", " ").split()
    if not isinstance(value, list | tuple):
        return ()
    found = []
    for each in value:
        if isinstance(each, dict):
            each = each.get("name")
        if isinstance(each, str) and each.strip().isidentifier():
            found.append(each.strip())
    return tuple(found)


def _tools(value: Any) -> tuple[str, ...]:
    """Read a list, or a string with commas or spaces between the names; patterns keep what is in
    their parentheses."""
    if isinstance(value, list | tuple):
        return tuple(filter(None, map(_text, value)))
    if not isinstance(value, str):
        return ()
    found, depth, word = [], 0, ""
    for letter in value:
        if letter == "(":
            depth += 1
        elif letter == ")" and depth > 0:
            depth -= 1
        if depth == 0 and (letter == "," or letter.isspace()):
            found.append(word)
            word = ""
        else:
            word += letter
    return tuple(filter(None, (*found, word)))


def _first_paragraph(body: str) -> str:
    for block in body.split("\n\n"):
        text = ""
        for line in block.strip().splitlines():
            if not line.lstrip().startswith("#"):
                text += f" {line}"
        if text.strip():
            return text.strip()[:_FIRST]
    return ""


def words(arguments: str) -> list[str]:
    """Return the arguments of a skill, split as a shell would; as plain words where that fails."""
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()


SkillSource = Literal["project", "user", "extra", "plugin", "sender"]
"""`extra`: a folder of the settings, which may be a project's. `sender`: the home of whoever sent the run."""


class Skill(Struct, frozen=True, kw_only=True):
    """What is known of a skill without its text. `path` is its Markdown file; `folder` is where
    its bundled files are, None for a skill that is a file of its own."""

    name: str
    path: Path
    source: SkillSource
    folder: Path | None = None
    description: str = ""
    when_to_use: str = ""
    argument_hint: str = ""
    arguments: tuple[str, ...] = ()
    """Names for the words of what is given, in order."""
    allowed_tools: tuple[str, ...] = ()
    """Calls that need no question once it is loaded, if its file is trusted."""
    model_invocable: bool = True
    user_invocable: bool = True
    fork: bool = False
    """It is meant to be run by an agent of its own."""
    agent: str | None = None
    background: bool | None = None
    model: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Keys nobody honours."""
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
