"""What a run on another machine has left for its sender beside its branch: outputs of tools, and memories.

All functions block: call them in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.engine.carried_home import bring_memories
from retinue.engine.cluster_tables import ClusterTables
from retinue.engine.file_pack import FilePack, load_pack
from retinue.settings.places import private_folder

if TYPE_CHECKING:
    from retinue.core.spec import AgentSpec
    from retinue.runs.project import Project


def outputs_folder(state: Path, run_id: str = "") -> Path:
    """Return where a run of this machine has its whole outputs; without one, where all have a folder each."""
    return state / "outputs" / run_id


def put_outputs(pack: FilePack, state: Path) -> None:
    """Put outputs of a run, and of those below it, where they would be if they had been made here."""
    pack.write(private_folder(outputs_folder(state)))


def bring_files(
    tables: ClusterTables, name: str, run_id: str, project: Project, agents: Mapping[str, AgentSpec]
) -> list[str]:
    """Bring outputs of a run, and memories of its `agents`, into a project that the database has as `name`. Return
    what to say of it. Raise RetinueError or OSError."""
    notes: list[str] = []
    state = project.state
    outputs = load_pack(tables, name, run_id, "outputs")
    if outputs is not None:
        put_outputs(outputs, state)
        where = f"Whole outputs of its tools are here: {outputs_folder(state, run_id)}"
        if outputs.folders() - {run_id}:
            where = f"Whole outputs of its tools, and of agents below it, are here by run: {outputs_folder(state)}"
        notes.append(f"{where}{explain_left_out(outputs)}")
    memory = load_pack(tables, name, run_id, "memory")
    if memory is not None:
        before = load_pack(tables, name, run_id, "home") or FilePack()
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
