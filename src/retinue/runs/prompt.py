"""The system prompt of a run, in parts, with the block that describes its environment.

The parts that never change between runs of an agent come first and those that do come last,
so that a provider's cache keeps the prefix. In `append` mode the parent's prompt is an exact,
byte-identical prefix. Files such as AGENTS.md are for main agents and twins of them, which have them
through that prefix, and for agents of Claude Code; another agent with a prompt of its own never
sees them.

The environment block learns of git by reading its files: no process is started for it, and a broken
repository is reported as no repository rather than as an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from datetime import datetime
from functools import cache
from pathlib import Path
from shutil import which

from msgspec import Struct

from retinue.core.files import read_text
from retinue.core.spec import AgentSpec
from retinue.settings.places import repository_root


class Environment(Struct, frozen=True):
    folder: str
    repository: bool
    branch: str
    platform: str
    shell: str = ""
    date: str = ""

    def block(self) -> str:
        lines = ["# Environment", f"Working directory: {self.folder}"]
        if self.repository:
            lines.append("Git repository: yes")
            if self.branch:
                lines.append(f"Branch: {self.branch}")
        else:
            lines.append("Not a git repository")
        shell = f", shell {self.shell}" if self.shell else ""
        lines.append(f"Platform: {self.platform}{shell}")
        if self.date:
            lines.append(f"Date: {self.date}")
        return "\n".join(lines)


def detect(folder: Path) -> Environment:
    root = repository_root(folder)
    branch = _branch(root / ".git") if root else None
    shell = "bash" if which("bash") else "sh"
    return Environment(str(folder), branch is not None, branch or "", sys.platform, shell, _today())


def _today() -> str:
    """The date here: a person's "yesterday" is meant in their own time zone."""
    return f"{datetime.now().astimezone():%Y-%m-%d}"


def _branch(git: Path) -> str | None:
    """The current branch, "" when HEAD is detached, None when this is no usable repository."""
    try:
        head = read_text(_git_folder(git) / "HEAD").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else ""


def _git_folder(git: Path) -> Path:
    """Return the folder that `.git` is or, in a worktree or submodule, names. Raise OSError for a file that names
    none."""
    if not git.is_file():
        return git
    pointer = read_text(git).strip()
    if not pointer.startswith("gitdir:"):
        raise FileNotFoundError(2, "no git folder is named", str(git))
    return (git.parent / pointer.removeprefix("gitdir:").strip()).resolve()


_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def current_commit(folder: Path) -> str | None:
    """Return the commit that is checked out in `folder`, read from git's files; None where they do not tell."""
    root = repository_root(folder)
    if root is None:
        return None
    try:
        git = _git_folder(root / ".git")
        head = read_text(git / "HEAD").strip()
        if head.startswith("ref: "):
            head = _resolve_reference(git, head.removeprefix("ref: "))
    except (OSError, UnicodeDecodeError):
        return None
    return head if _COMMIT.fullmatch(head) else None


def _resolve_reference(git: Path, name: str) -> str:
    """Return the commit of a reference, or an empty text. A worktree shares its references with the repository."""
    common = git
    if (git / "commondir").is_file():
        common = (git / read_text(git / "commondir").strip()).resolve()
    for folder in (git, common):
        if (folder / name).is_file():
            return read_text(folder / name).strip()
    packed = common / "packed-refs"
    if packed.is_file():
        for line in read_text(packed).splitlines():
            commit, _, found = line.partition(" ")
            if found == name:
                return commit
    return ""


_PROMPTS = Path(__file__).parent.parent / "builtin" / "prompts"
MAIN = "main"


class PromptPart(Struct, frozen=True):
    """A section of a prompt, and what to call it when someone asks what is in there."""

    name: str
    text: str


class Extras(Struct, frozen=True):
    """What a run is told besides its own file. Empty texts leave no trace."""

    instructions: str = ""
    delegation: str = ""
    skills: str = ""
    memory: str = ""
    worktree: str = ""
    mode: str = ""


NO_EXTRAS = Extras()


@cache
def shipped(name: str) -> str:
    """A prompt that comes with Retinue, without surrounding blank lines."""
    return (_PROMPTS / f"{name}.md").read_text("utf-8").strip()


def prompt_parts(
    spec: AgentSpec,
    environment: Environment,
    *,
    parent: str | None = None,
    depth: int = 0,
    extras: Extras = NO_EXTRAS,
    bridge: str = "",
) -> tuple[PromptPart, ...]:
    """Everything the model is told before its first message, in order.

    The main agent is not told that it is an agent of someone; a run at depth 0 not that it is a
    sub-agent. A twin is told only what its parent's prompt does not say already; `bridge` is what
    else it should know about how it differs.
    """
    shared = (
        PromptPart("instructions", extras.instructions),
        PromptPart("delegation", extras.delegation),
        PromptPart("skills", extras.skills),
    )
    last = (
        PromptPart("memory", extras.memory),
        PromptPart("worktree", extras.worktree),
        PromptPart("mode", extras.mode),
    )
    place = PromptPart("environment", environment.block())
    if spec.prompt_mode == "append":
        body = spec.prompt.strip()
        instructions = f"<agent_instructions>\n{body}\n</agent_instructions>" if body else ""
        parts: tuple[PromptPart, ...] = (
            PromptPart("parent", parent) if parent else PromptPart("base", shipped("subagent")),
            PromptPart("bridge", _bridge(bridge) if depth else ""),
            PromptPart("agent", _active_agent(spec)),
            PromptPart("environment", "" if parent and place.text in parent else place.text),
            PromptPart("body", instructions),
            *shared,
            *(part for part in last if not (parent and part.name == "mode" and part.text in parent)),
        )
    else:
        role = shipped("subagent") if depth else ""
        tag = "" if is_main(spec, depth) else f"{_active_agent(spec)}\n{role}".rstrip()
        body = spec.prompt.strip() or _fallback_role(spec)
        parts = (PromptPart("agent", tag), PromptPart("body", body), *shared, place, *last)
    return tuple(part for part in parts if part.text)


def _bridge(more: str) -> str:
    text, end = shipped("bridge").rsplit("\n", 1)
    return f"{text}{more}\n{end}"


def joined(parts: Iterable[PromptPart]) -> str:
    return "\n\n".join(part.text for part in parts)


def system_prompt(
    spec: AgentSpec,
    environment: Environment,
    *,
    parent: str | None = None,
    depth: int = 0,
    extras: Extras = NO_EXTRAS,
) -> str:
    return joined(prompt_parts(spec, environment, parent=parent, depth=depth, extras=extras))


def is_main(spec: AgentSpec, depth: int) -> bool:
    """Whether this is the agent a person talks to."""
    return depth == 0 and spec.name == MAIN


def reads_instructions(spec: AgentSpec, depth: int, parent: str | None) -> bool:
    """Whether AGENTS.md and its like are for this run: the main agent, a twin that has no parent
    whose prompt holds them already, or an agent of Claude Code, which gives them to its agents."""
    if spec.omit_instructions and depth > 0:
        return False
    return is_main(spec, depth) or (spec.prompt_mode == "append" and not parent) or spec.dialect == "claude"


def _active_agent(spec: AgentSpec) -> str:
    name = spec.name.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return f'<active_agent name="{name}"/>'


def _fallback_role(spec: AgentSpec) -> str:
    """A file without a body still gets a role: what its description says, or its name."""
    if spec.description.strip() and spec.description != spec.name:
        return f"Your role: {spec.description.strip()}"
    return f"You are the {spec.name} agent."
