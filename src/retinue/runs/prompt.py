"""The system prompt of a run, in parts, with the block that describes its environment.

Parts that are equal in all runs of an agent come first, so that a provider's cache keeps the prefix. In `append` mode
the parent's prompt is a byte-identical prefix. Files such as AGENTS.md are for main agents, for their twins, which get
them through that prefix, and for agents of Claude Code. Other agents with their own prompts never get them.

The environment block reads git's files without starting a process. It describes a broken repository as no repository.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from shutil import which
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from retinue.core.files import read_text
from retinue.core.spec import AgentSpec
from retinue.settings.places import repository_root


def describe_environment(folder: Path) -> str:
    """Return the block of the system prompt that describes the environment of a run in `folder`."""
    lines = ["# Environment", f"Working directory: {folder}"]
    branch = current_branch(folder)
    lines.append("Not a git repository" if branch is None else "Git repository: yes")
    if branch:
        lines.append(f"Branch: {branch}")
    lines.append(f"Platform: {sys.platform}, shell {'bash' if which('bash') else 'sh'}")
    # The local date, so that a person's "yesterday" has its meaning.
    lines.append(f"Date: {datetime.now().astimezone():%Y-%m-%d}")
    return "\n".join(lines)


def current_branch(folder: Path) -> str | None:
    """Return the checked out branch, "" for a detached HEAD, or None if there is no usable repository."""
    root = repository_root(folder)
    if root is None:
        return None
    try:
        head = read_text(_git_folder(root / ".git") / "HEAD").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else ""


def _git_folder(git: Path) -> Path:
    """Return the folder that `.git` is, or that it names in a worktree or submodule. Raise OSError if it names none."""
    if not git.is_file():
        return git
    pointer = read_text(git).strip()
    if not pointer.startswith("gitdir:"):
        raise FileNotFoundError(2, "no git folder is named", str(git))
    return (git.parent / pointer.removeprefix("gitdir:").strip()).resolve()


_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def current_commit(folder: Path) -> str | None:
    """Return the commit that is checked out in `folder`, read from git's files; None if they do not contain it."""
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
    """Return the commit of a reference, or "". A worktree shares its references with the repository."""
    common = git
    if (git / "commondir").is_file():
        common = (git / read_text(git / "commondir").strip()).resolve()
    for folder in (git, common):
        if (folder / name).is_file():
            return read_text(folder / name).strip()
    packed = common / "packed-refs"
    if packed.is_file():
        for line in read_text(packed).splitlines():
            commit, _, reference = line.partition(" ")
            if reference == name:
                return commit
    return ""


_PROMPTS_FOLDER = Path(__file__).parent.parent / "builtin" / "prompts"
MAIN_AGENT = "main"
SectionName = Literal["instructions", "delegation", "skills", "memory", "worktree", "mode"]
"""The sections that a run's prompt may have besides its agent's file."""
_SHARED_SECTIONS: tuple[SectionName, ...] = ("instructions", "delegation", "skills")
_RUN_SECTIONS: tuple[SectionName, ...] = ("memory", "worktree", "mode")


class PromptPart(Struct, frozen=True):
    """A section of a prompt, with its name for listings."""

    name: str
    text: str


@cache
def shipped(name: str) -> str:
    """Return a prompt of this package, without surrounding blank lines."""
    return (_PROMPTS_FOLDER / f"{name}.md").read_text("utf-8").strip()


def prompt_parts(
    spec: AgentSpec,
    environment: str,
    *,
    parent: str | None = None,
    depth: int = 0,
    sections: Mapping[SectionName, str] = MappingProxyType({}),
    bridge: str = "",
) -> tuple[PromptPart, ...]:
    """Return the parts of the system prompt, in order.

    The prompt of the main agent does not describe it as another agent's agent, and that of a run at depth 0 not as a
    sub-agent. A twin's prompt does not repeat its parent's; `bridge` describes further differences to the parent.
    """
    shared = [PromptPart(name, sections.get(name, "")) for name in _SHARED_SECTIONS]
    last = [PromptPart(name, sections.get(name, "")) for name in _RUN_SECTIONS]
    parts: list[PromptPart]
    if spec.prompt_mode == "append":
        body = spec.prompt.strip()
        parts = [
            PromptPart("parent", parent) if parent else PromptPart("base", shipped("subagent")),
            PromptPart("bridge", _bridge(bridge) if depth else ""),
            PromptPart("agent", _active_agent(spec)),
            PromptPart("environment", "" if parent and environment in parent else environment),
            PromptPart("body", f"<agent_instructions>\n{body}\n</agent_instructions>" if body else ""),
            *shared,
            *(section for section in last if not (parent and section.name == "mode" and section.text in parent)),
        ]
    else:
        role = shipped("subagent") if depth else ""
        tag = "" if is_main(spec, depth) else f"{_active_agent(spec)}\n{role}".rstrip()
        body = spec.prompt.strip() or _fallback_role(spec)
        environment_part = PromptPart("environment", environment)
        parts = [PromptPart("agent", tag), PromptPart("body", body), *shared, environment_part, *last]
    return tuple(section for section in parts if section.text)


def _bridge(differences: str) -> str:
    text, end = shipped("bridge").rsplit("\n", 1)
    return f"{text}{differences}\n{end}"


def joined(parts: Iterable[PromptPart]) -> str:
    return "\n\n".join(section.text for section in parts)


def is_main(spec: AgentSpec, depth: int) -> bool:
    """Return whether this is the agent that a person talks to."""
    return depth == 0 and spec.name == MAIN_AGENT


def reads_instructions(spec: AgentSpec, depth: int, parent: str | None) -> bool:
    """Return whether a run gets files such as AGENTS.md: the main agent, a twin without a parent whose prompt has them,
    and agents of Claude Code do."""
    if spec.omit_instructions and depth > 0:
        return False
    return is_main(spec, depth) or (spec.prompt_mode == "append" and not parent) or spec.dialect == "claude"


def _active_agent(spec: AgentSpec) -> str:
    name = spec.name.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return f'<active_agent name="{name}"/>'


def _fallback_role(spec: AgentSpec) -> str:
    """Return the role of an agent whose file has no body: its description, or its name."""
    if spec.description.strip() and spec.description != spec.name:
        return f"Your role: {spec.description.strip()}"
    return f"You are the {spec.name} agent."
