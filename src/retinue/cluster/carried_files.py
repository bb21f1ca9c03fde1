"""Files that are sent with a run besides its workspace. Out: skills, memories of agents, and consent to files of the
project. Back: outputs of tools and memories.

Keys, settings and all other files of the home stay there. On the worker a run has the skills beside the worker's own,
and its memories in a separate folder. The sender's consent takes effect if the operator lets projects start servers.
Changed memories come back: a file that is unchanged at home is replaced; otherwise the new version is stored beside it.

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

SKILLS_FOLDER = "skills"
_SENT_SCOPES: tuple[MemoryScope, ...] = ("user", "local")
"""The scopes of memories that are sent. Memories of the project itself are files of the repository."""


def pack_home(project: Project, spec: AgentSpec) -> FilePack | None:
    """Return the files of the home that a run of `spec` needs; None if there are none."""
    packer = Packer(project.redactor)
    for number, root in enumerate(skill_roots(project.cwd, project.environment)):
        if root.source == "user" and root.path.is_dir():
            packer.add(SafeDir(root.path.parent, (root.path.name,)), f"{SKILLS_FOLDER}/{number}")
    agents = {entry.name: entry.spec for entry in project.catalog().winners} | {spec.name: spec}
    for name, agent in agents.items():
        if agent.memory in _SENT_SCOPES:
            _add_memory(packer, project, name, agent)
    return packer.pack(_consents(project))


def _add_memory(packer: Packer, project: Project, name: str, spec: AgentSpec) -> None:
    assert spec.memory is not None
    try:
        own = own_folder(name, spec.memory, project.cwd, project.environment)
        others = other_folders(name, spec.memory, project.cwd, project.environment)
    except RetinueError:
        # Its name is no valid folder name: it has no memory here either.
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
    """Return the memories of a run on this worker; None if there are none."""
    packer = Packer(redactor)
    for scope in _SENT_SCOPES:
        name = MEMORY_FOLDERS[scope]
        packer.add(SafeDir(folder, (name,)), name)
    return packer.pack()


def agents_of(project: Project, runs: Iterable[RunState]) -> dict[str, AgentSpec]:
    """Return the definitions of the runs' agents on this machine, by name."""
    names = {run.agent for run in runs}
    return {entry.name: entry.spec for entry in project.catalog().winners if entry.name in names}


def receive_memories(
    before: FilePack, after: FilePack, agents: Mapping[str, AgentSpec], project: Project
) -> tuple[list[str], list[str]]:
    """Apply the changes that a run made elsewhere to the memories of its `agents` here. Return the changed paths, and
    the folders of memories that none of these agents has, which are not written."""
    changed: list[str] = []
    refused: list[str] = []
    for scope in _SENT_SCOPES:
        new = after.below(MEMORY_FOLDERS[scope])
        for name in sorted({path.partition("/")[0] for path in new}):
            folder = f"{MEMORY_FOLDERS[scope]}/{name}"
            if name not in agents or agents[name].memory != scope:
                refused.append(folder)
                continue
            memory = own_folder(name, scope, project.cwd, project.environment)
            changed += _apply_changes(memory, before.below(folder), after.below(folder))
    return changed, refused


def _apply_changes(folder: SafeDir, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    changed = {path: data for path, data in after.items() if before.get(path) != data}
    present = content_of(folder)
    conflicting = {}
    for path, data in changed.items():
        if path in present and present[path] == before.get(path):
            write(folder, path.split("/"), data, over=present[path])
        else:
            conflicting[path] = data
    if conflicting:
        merge(conflicting, folder)
    return [str(folder.path / path) for path in changed]


# For the sender


def outputs_folder(state: Path, run_id: str = "") -> Path:
    """Return the folder with the complete outputs of a run; without `run_id`, the folder that has one for each run."""
    return state / "outputs" / run_id


def put_outputs(pack: FilePack, state: Path) -> None:
    """Write outputs of a run and the runs below it to the folders that local runs use."""
    pack.write(private_folder(outputs_folder(state)))


def receive_files(store: WorkspaceStore, project: Project, agents: Mapping[str, AgentSpec]) -> list[str]:
    """Load outputs of a run, and memories of its `agents`, into the project. Return notes about it. Raise
    RetinueError or OSError."""
    notes: list[str] = []
    state, run_id = project.state, store.run_id
    outputs = store.load_pack("outputs")
    if outputs is not None:
        put_outputs(outputs, state)
        note = f"Complete outputs of its tools: {outputs_folder(state, run_id)}"
        if outputs.folders() - {run_id}:
            note = f"Complete outputs of its tools and of agents below it, by run: {outputs_folder(state)}"
        notes.append(f"{note}{explain_left_out(outputs)}")
    memory = store.load_pack("memory")
    if memory is not None:
        before = store.load_pack("home") or FilePack()
        changed, refused = receive_memories(before, memory, agents, project)
        if refused:
            notes.append(f"Memories {', '.join(refused)} were not taken over: no agent of this run has such a memory")
        if changed:
            notes.append(f"It has changed the memory here: {', '.join(changed)}{explain_left_out(memory)}")
    return notes


def explain_left_out(pack: FilePack) -> str:
    """Return the end of a sentence about files that were not sent; empty if all were."""
    if not pack.left_out:
        return ""
    shown = list(pack.left_out[:5])
    if len(pack.left_out) > len(shown):
        shown.append(f"and {len(pack.left_out) - len(shown)} more")
    return f". Not sent: {'; '.join(shown)}"
