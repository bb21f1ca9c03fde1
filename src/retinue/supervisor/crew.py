"""The supervisor of one process: starts runs, takes interrupted ones up again, ends them all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from retinue.domain.codec import from_data, to_data
from retinue.domain.events import RunCreated
from retinue.domain.ids import new_run_id
from retinue.domain.request import EVERYTHING, RunRequest
from retinue.domain.spec import AgentSpec
from retinue.errors import LaunchError
from retinue.log.replay import Conversation
from retinue.log.rows import RunPlace, RunRow
from retinue.log.transcript import transcript_path, wants_transcript
from retinue.supervisor.handle import RunHandle
from retinue.supervisor.launch import Launch, prepare
from retinue.supervisor.runner import execute
from retinue.supervisor.world import World

RESUME_PROMPT = "Go on with your task from where you were."


class Supervisor:
    """Use from one event loop, inside `async with`: leaving it stops what still runs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.runs: dict[str, RunHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, request: RunRequest) -> RunHandle:
        """Gives the run's handle as soon as the run is in the log. Raises LaunchError or
        UsageError when it must not start; nothing is recorded then."""
        launch = await prepare(request, self.world)
        run_id = new_run_id()
        place = RunPlace(run_id, request.parent_id, request.root_id or run_id)
        launch = replace(launch, transcript=self._transcript(request.spec, run_id))
        self.world.log.append(place, _created(launch))
        await self.world.log.flush()
        return self._begin(RunHandle(place, launch, self.world.log))

    async def resume(
        self, id_or_prefix: str, prompt: str | None = None, *, limits: Mapping[str, float | None] | None = None
    ) -> RunHandle:
        """Takes up an ended or interrupted run with the same definition, model, tools, depth and
        folder it had; turn and time limits apply again, or `limits` instead of them. Raises
        StateError while another process runs it."""
        row = self.world.log.reader.run(id_or_prefix)
        past = self.world.log.reader.conversation(row.id)
        launch = await prepare(_request_of(row, past, prompt, limits), self.world)
        await self.world.log.claim(row.id)
        launch = replace(launch, transcript=row.transcript)
        return self._begin(RunHandle(row.place, launch, self.world.log), past)

    def _begin(self, handle: RunHandle, past: Conversation | None = None) -> RunHandle:
        self.runs[handle.id] = handle
        task = asyncio.create_task(execute(handle, self.world, past), name=f"run {handle.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_retrieve)
        return handle

    def _transcript(self, spec: AgentSpec, run_id: str) -> str | None:
        if not wants_transcript(spec.session.transcript, self.world.settings.settings.output_transcript):
            return None
        return str(transcript_path(self.world.state, run_id))

    async def stop_all(self, reason: str) -> int:
        """Stops every live run and waits until each has its ending. Gives their number."""
        live = [handle for handle in self.runs.values() if handle.stop(reason)]
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return len(live)

    async def close(self) -> None:
        await self.stop_all("The program ended.")
        await self.world.close()

    async def __aenter__(self) -> Supervisor:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _created(launch: Launch) -> RunCreated:
    request = launch.request
    spec: Mapping[str, Any] = to_data(request.spec)
    options = {
        "transcript": launch.transcript,
        "model": request.model,
        "thinking": request.thinking,
        "limits": dict(request.limits),
        "schema": request.schema,
        "permission_mode": request.permission_mode,
    }
    return RunCreated(
        agent=request.spec.name,
        task=request.task,
        spec=spec,
        spec_hash=request.spec.hash,
        model=launch.model_name,
        cwd=str(request.cwd),
        depth=request.depth,
        options=options,
    )


def _request_of(
    row: RunRow, past: Conversation, prompt: str | None, limits: Mapping[str, float | None] | None
) -> RunRequest:
    """The request as it was, from the run's first event."""
    created = past.created
    if created is None:
        raise LaunchError(f"Run {row.id} has no beginning in the log.", remedy="It cannot be taken up again.")
    options = created.options
    try:
        spec = from_data(AgentSpec, created.spec)
    except ValueError as error:
        raise LaunchError(f"Run {row.id} was written by a version that this one cannot read ({error}).") from error
    return RunRequest(
        spec=spec,
        task=prompt or RESUME_PROMPT,
        cwd=Path(created.cwd),
        model=past.started.model if past.started else created.model,
        thinking=options.get("thinking"),
        limits=options.get("limits") or {} if limits is None else limits,
        pinned=EVERYTHING,
        schema=options.get("schema"),
        permission_mode=options.get("permission_mode"),
        parent_id=row.parent_id,
        root_id=row.root_id,
        depth=created.depth,
    )


def _retrieve(task: asyncio.Task[None]) -> None:
    """A defect has already become the run's outcome; asking keeps asyncio from reporting it again."""
    if not task.cancelled():
        task.exception()
