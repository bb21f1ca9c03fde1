"""Files that travel with a run besides its workspace: skills, memories of agents and consent to files of the project on
the way out, outputs of tools and memories on the way back.

Keys, settings and everything else of the home stay. On the worker a run sees the skills beside the worker's own, has
its memories in a folder of its own, and consent counts where the operator lets projects start servers. What the run
has written into a memory comes back: a file that has not changed at home meanwhile is replaced, any other is kept
beside it.

All functions block: call them in a thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.capabilities.memory.store import (
    CARRIED_OTHERS,
    MEMORY_FOLDERS,
    content_of,
    merge,
    other_folders,
    own_folder,
)
from retinue.capabilities.skills.parse import skill_roots
from retinue.capabilities.trust import subjects
from retinue.cluster.file_pack import FilePack, Packer
from retinue.cluster.workspace_store import WorkspaceStore
from retinue.errors import RetinueError
from retinue.guard.trust import digest
from retinue.settings.places import private_folder, repository_root
from retinue.tools.safe_dir import SafeDir, write

if TYPE_CHECKING:
    from retinue.core.run_state import RunState
    from retinue.core.spec import AgentSpec, MemoryScope
    from retinue.guard.redact import Redactor
    from retinue.runs.project import Project

SKILLS = "skills"
_SCOPES: tuple[MemoryScope, ...] = ("user", "local")
"""Memories of the project itself are files of the repository."""


def pack_home(project: Project, spec: AgentSpec) -> FilePack | None:
    """Return what goes with a run of `spec`; None where there is nothing."""
    packer = Packer(project.redactor)
    for number, root in enumerate(skill_roots(project.cwd, project.environment)):
        if root.source == "user" and root.path.is_dir():
            packer.add(SafeDir(root.path.parent, (root.path.name,)), f"{SKILLS}/{number}")
    agents = {entry.name: entry.spec for entry in project.catalog().winners} | {spec.name: spec}
    for name, agent in agents.items():
        if agent.memory in _SCOPES:
            _add_memory(packer, project, name, agent)
    return packer.pack(_consents(project))


def _add_memory(packer: Packer, project: Project, name: str, spec: AgentSpec) -> None:
    assert spec.memory is not None
    try:
        own = own_folder(name, spec.memory, project.cwd, project.environment)
        others = other_folders(name, spec.memory, project.cwd, project.environment)
    except RetinueError:
        # Its name cannot be a folder: it has no memory here either.
        return
    packer.add(own, f"{MEMORY_FOLDERS[spec.memory]}/{name}")
    for number, other in enumerate(others):
        packer.add(other, f"{CARRIED_OTHERS}/{name}/{number}")


def _consents(project: Project) -> dict[str, tuple[str, ...]]:
    root = Path(os.path.realpath(repository_root(project.cwd) or project.cwd))
    consents: dict[str, tuple[str, ...]] = {}
    for subject in subjects(project):
        path = Path(os.path.realpath(subject.path.parent), subject.path.name)
        if subject.answer(project.trust) == "trusted" and path.is_relative_to(root):
            consents[str(path.relative_to(root))] = tuple(map(digest, subject.contents))
    return consents


def pack_memories(folder: Path, redactor: Redactor) -> FilePack | None:
    """Return the memories that a run has on this worker; None without one."""
    packer = Packer(redactor)
    for scope in _SCOPES:
        name = MEMORY_FOLDERS[scope]
        packer.add(SafeDir(folder, (name,)), name)
    return packer.pack()


def agents_of(project: Project, runs: Iterable[RunState]) -> dict[str, AgentSpec]:
    """Return the agents of some runs, as this machine defines them."""
    names = {run.agent for run in runs}
    return {entry.name: entry.spec for entry in project.catalog().winners if entry.name in names}


def bring_memories(
    before: FilePack, after: FilePack, agents: Mapping[str, AgentSpec], project: Project
) -> tuple[list[str], list[str]]:
    """Put what a run has written elsewhere into the memories of its `agents` here. Return the paths that changed, and
    the folders of memories that none of these agents has: nothing of them is written."""
    changed: list[str] = []
    refused: list[str] = []
    for scope in _SCOPES:
        new = after.below(MEMORY_FOLDERS[scope])
        for name in sorted({path.partition("/")[0] for path in new}):
            folder = f"{MEMORY_FOLDERS[scope]}/{name}"
            if name not in agents or agents[name].memory != scope:
                refused.append(folder)
                continue
            memory = own_folder(name, scope, project.cwd, project.environment)
            changed += _bring(memory, before.below(folder), after.below(folder))
    return changed, refused


def _bring(folder: SafeDir, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    changed = {path: data for path, data in after.items() if before.get(path) != data}
    there = content_of(folder)
    beside = {}
    for path, data in changed.items():
        if path in there and there[path] == before.get(path):
            write(folder, path.split("/"), data, over=there[path])
        else:
            beside[path] = data
    if beside:
        merge(beside, folder)
    return [str(folder.path / path) for path in changed]


# For the sender


def outputs_folder(state: Path, run_id: str = "") -> Path:
    """Return where a run of this machine has its whole outputs; without one, where all have a folder each."""
    return state / "outputs" / run_id


def put_outputs(pack: FilePack, state: Path) -> None:
    """Put outputs of a run, and of those below it, where they would be if they had been made here."""
    pack.write(private_folder(outputs_folder(state)))


def bring_files(store: WorkspaceStore, project: Project, agents: Mapping[str, AgentSpec]) -> list[str]:
    """Bring outputs of a run, and memories of its `agents`, into the project. Return notes about it. Raise
    RetinueError or OSError."""
    notes: list[str] = []
    state, run_id = project.state, store.run_id
    outputs = store.load_pack("outputs")
    if outputs is not None:
        put_outputs(outputs, state)
        where = f"Whole outputs of its tools are here: {outputs_folder(state, run_id)}"
        if outputs.folders() - {run_id}:
            where = f"Whole outputs of its tools, and of agents below it, are here by run: {outputs_folder(state)}"
        notes.append(f"{where}{explain_left_out(outputs)}")
    memory = store.load_pack("memory")
    if memory is not None:
        before = store.load_pack("home") or FilePack()
        changed, refused = bring_memories(before, memory, agents, project)
        if refused:
            notes.append(f"Notes for {', '.join(refused)} were not brought: no agent of this run has such a memory")
        if changed:
            notes.append(f"What it has noted is in the memory here: {', '.join(changed)}{explain_left_out(memory)}")
    return notes


def explain_left_out(pack: FilePack) -> str:
    """Return the end of a sentence about what did not travel; empty when everything did."""
    if not pack.left_out:
        return ""
    shown = list(pack.left_out[:5])
    if len(pack.left_out) > len(shown):
        shown.append(f"and {len(pack.left_out) - len(shown)} more")
    return f". Not there: {'; '.join(shown)}"
