"""The admission of a run, whether a model, a person, a program or a schedule asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.core.permission import NO_HOOKS, Hooks
from retinue.runs.capability import capabilities_of

if TYPE_CHECKING:
    from retinue.core.run_state import RunPlace
    from retinue.runs.launch import Launch
    from retinue.runs.project import Project
    from retinue.runs.run import Run


class Admission(Struct, eq=False):
    """A run that is about to be recorded. A capability may replace its launch, or object by raising an error."""

    launch: Launch
    place: RunPlace
    project: Project
    parent: Run | None = None
    resumed: bool = False
    hooks: Hooks = NO_HOOKS
    """Who is told about the run, once the capability `hooks` has found out."""


@asynccontextmanager
async def admission(
    launch: Launch,
    place: RunPlace,
    project: Project,
    parent: Run | None,
    check_open: Callable[[], None],
    *,
    resumed: bool = False,
) -> AsyncIterator[Admission]:
    """Ask every capability whether the run may start. Raise SpawnDeniedError, PromptBlockedError or LaunchError
    when it must not; `check_open` raises when the program is ending. What follows inside the block records the run;
    if that fails, the launch is discarded."""
    admitted = Admission(launch, place, project, parent, resumed)
    try:
        check_open()
        for capability in capabilities_of(project).plan:
            await capability.admit(admitted)
        # The program may have begun to end while a hook was asked.
        check_open()
        yield admitted
    except BaseException:
        await admitted.hooks.close()
        for discard in admitted.launch.discards:
            await discard()
        raise
