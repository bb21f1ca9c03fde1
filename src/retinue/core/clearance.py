"""Who let a program start, and the sandbox that follows from it. `programs.py` starts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

Clearance = Literal["own", "person", "consent", "rule", "mode", "inside"]
"""Who let a program start, which decides what it can reach.

`own`: Retinue itself: a program and arguments that no project chooses, with settings that start nothing of a project.
`person`: this user typed or approved the command, or wrote it into a setting of their own.
`consent`: a file of a project names it, and the user has consented to the content of that file.
`rule`: an allow rule. `mode`: the permission mode.
`inside`: nobody. It starts inside a sandbox, or not at all."""


class Confinement(Protocol):
    """A sandbox that programs start in."""

    def wrap(self, argv: Sequence[str], cwd: Path) -> list[str]:
        """The same program, started by a launcher that confines it before it runs."""
        ...

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """What such a program may know: no secrets, a scratch folder for what it must write."""
        ...

    @property
    def readonly(self) -> bool:
        """Whether such a program can make no lasting change and has no network."""
        ...

    def explain(self, shown: str, code: int | None) -> str:
        """Return what the sandbox kept a program from, judged by what it printed; "" if nothing."""
        ...

    def close(self) -> None:
        """Remove the scratch folder, when no program of the run lives any more."""
        ...


Confine = Callable[[Clearance], Confinement | None]
"""Returns the sandbox for a clearance; None where a program of that clearance needs none."""
