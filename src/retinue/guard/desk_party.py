"""Who asks at the desk: a run, as the desk needs to know it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING

from retinue.core.events import Body
from retinue.core.lean import dataclass

if TYPE_CHECKING:
    from retinue.log.rows import RunPlace
    from retinue.loop.controls import Controls


@dataclass(slots=True, eq=False)
class Party:
    """`record` writes an event of the run down; `leftovers` says that an earlier leg of it asked
    things of which nothing came yet."""

    place: RunPlace
    agent: str
    controls: Controls
    record: Callable[[Body], None]
    leftovers: bool = False
    description: str = ""
    """What the run works on, in a few words."""
    resting: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """Entered while it waits for a person, so that others may use what it does not need."""
