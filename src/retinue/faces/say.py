"""What a person types, brought to whoever it is for: the main agent or, by `@name`, one of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, assert_never

from retinue.capabilities.skills.attach import spoken
from retinue.core.lean import dataclass
from retinue.errors import StateError
from retinue.runs.mentions import ToAgent, ToMain, Undelivered, route
from retinue.runs.recover import find_run

if TYPE_CHECKING:
    from retinue.faces.api import Retinue, Run
    from retinue.runs.crew import Supervisor


@dataclass(frozen=True, slots=True)
class Said:
    """Who has it, and how. `run` is None when another process runs that agent."""

    action: Literal["prompted", "steered", "resumed", "started"]
    run_id: str
    agent: str
    run: Run | None


async def say(
    crew: Retinue, supervisor: Supervisor, text: str, to: Run | str | None, options: Mapping[str, Any]
) -> Said:
    run_id = None
    if to is not None:
        run_id = find_run(supervisor.world.log.reader, to).id if isinstance(to, str) else to.id
    main = supervisor.members.get(run_id) if run_id is not None else None
    routed = await route(supervisor, main or run_id, text)
    match routed:
        case ToAgent(action, view):
            member = supervisor.members.get(view.id)
            here = member.handle if member is not None and member.live else None
            return Said(action, view.id, view.agent, here)
        case Undelivered(reason):
            raise StateError(reason, remedy="Say it again when that agent has ended, or leave out the @name.")
        case ToMain(rest):
            meant = spoken(rest, supervisor.world)
            if main is not None and main.live and supervisor.steer(main, meant):
                return Said("steered", main.id, main.handle.agent, main.handle)
            run = await crew.resume(run_id, meant, **options) if run_id else await crew.prompt(rest, **options)
            return Said("resumed" if run_id else "prompted", run.id, run.agent, run)
        case _:
            assert_never(routed)
