"""The one gate through which every run comes: models, people, programs and schedules alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.capabilities.hooks.attach import RunHooks, hooks_for
from retinue.errors import SpawnDeniedError

if TYPE_CHECKING:
    from retinue.log.rows import RunPlace
    from retinue.runs.node import RunNode
    from retinue.runs.plan import Launch
    from retinue.runs.project import Project


@asynccontextmanager
async def admission(
    launch: Launch, place: RunPlace, project: Project, parent: RunNode | None, *, resumed: bool = False
) -> AsyncIterator[RunHooks]:
    """The one gate through which every run comes, whoever asks for it. Return its hooks; they
    are released if what follows fails. Raise SpawnDeniedError or PromptBlockedError."""
    hooks = RunHooks(launch, place, project)
    try:
        if launch.request.depth > 0 and not resumed:
            await _ask_to_spawn(hooks, project, place, parent)
        if parent is None:
            await hooks.prompted(resumed=resumed)
        if launch.isolation is not None and launch.isolation.own and not resumed:
            from retinue.capabilities.worktree.attach import announce_creation

            await announce_creation(hooks, launch.isolation)
        yield hooks
    except BaseException:
        await hooks.close()
        raise


async def _ask_to_spawn(hooks: RunHooks, project: Project, place: RunPlace, parent: RunNode | None) -> None:
    launch = hooks.launch
    request = launch.request
    spawner = hooks_for(parent, project) if parent is not None else RunHooks(launch, place, project, own=False)
    if not spawner.listens("SubagentSpawn"):
        return
    fields = {
        "subagent_type": request.spec.name,
        "subagent_id": place.run_id,
        "prompt": request.task,
        "model": launch.model_name,
        "profile": request.spec.name,
        "parentSessionId": place.parent_id,
    }
    result = await spawner.fire("SubagentSpawn", request.spec.name, fields)
    if parent is None:
        await spawner.close()
    if result.verdict in ("deny", "ask") or result.stop is not None:
        # Nobody can be asked at this point, and a hook that wants to ask has not said yes.
        raise SpawnDeniedError(f"Subagent spawn denied: {result.reason or result.stop or 'no reason was given'}")
    prompt = (result.updated_input or {}).get("prompt")
    if isinstance(prompt, str) and prompt.strip():
        hooks.launch = replace(launch, request=replace(request, task=prompt))
