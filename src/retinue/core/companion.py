"""What a run may do beside its work: keep a list of what is to be done, and ask whoever is above it."""

from __future__ import annotations

from typing import Literal, Protocol

from retinue.core.lean import dataclass

TodoStatus = Literal["pending", "in_progress", "completed"]


@dataclass(frozen=True, slots=True)
class Todo:
    """One thing to do. `active_form` is how it is shown while it is being done."""

    content: str
    status: TodoStatus = "pending"
    active_form: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a question: `answered` with `text`, `passed-on` (the answer comes later, as a
    message), or `nobody` could answer, for the reason in `text`. `by` is who answered."""

    kind: Literal["answered", "passed-on", "nobody"]
    text: str = ""
    by: str = ""


class Companion(Protocol):
    """Of one run, through one leg of it."""

    def write_todos(self, todos: tuple[Todo, ...]) -> None:
        """The whole list as it is now; in the log before the tool that wrote it has ended."""
        ...

    async def hand_in(self, plan: str, call_id: str) -> Reply:
        """Puts a plan to a person. After a yes the run may carry it out; `text` says what holds now."""
        ...

    async def ask(self, question: str, options: tuple[str, ...], call_id: str) -> Reply:
        """Puts a question to the run above, or to a person. Cancelling it takes it back."""
        ...
