"""What is known of a command line before it runs."""

from __future__ import annotations

from retinue.core.lean import dataclass

SYSTEM_FOLDERS = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/")


@dataclass(frozen=True, slots=True)
class Step:
    """One simple command. `words` are its name and arguments as the program gets them, with a mark
    for each file name pattern; `assigned` are variables set for it alone.

    `inner` are the commands that it starts and that could be read (`timeout 5 …`, `bash -c …`).
    """

    words: tuple[str, ...]
    assigned: tuple[tuple[str, str], ...] = ()
    inner: tuple[Step, ...] = ()
    transparent: bool = False
    """`inner` is all there is to it: a rule that allows those commands allows this one."""
    opaque: str = ""
    """Why its words do not tell what it does: it is handed code, or starts programs of its own
    choice. Only a rule that names the program allows it where other commands are denied."""

    @property
    def name(self) -> str:
        """The program without its folder."""
        return self.words[0].rpartition("/")[2]

    @property
    def plain_name(self) -> str:
        """The name if it certainly means the well-known program of that name, otherwise ""."""
        word = self.words[0]
        if "/" not in word:
            return word
        folder = word[: word.rindex("/") + 1]
        return word[len(folder) :] if folder in SYSTEM_FOLDERS else ""

    @property
    def text(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True, slots=True)
class Opened:
    """A file that a redirection opens."""

    path: str
    writes: bool


@dataclass(frozen=True, slots=True)
class Script:
    """A command line that was read: `steps` in the order of the text, `moves` the arguments of
    `cd`. With `doubts` it was not: they say why, and the other fields tell nothing."""

    steps: tuple[Step, ...] = ()
    opened: tuple[Opened, ...] = ()
    moves: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    def all_steps(self) -> tuple[Step, ...]:
        """Return every step, also those inside others."""
        found: list[Step] = []
        rest = list(reversed(self.steps))
        while rest:
            step = rest.pop()
            found.append(step)
            rest.extend(reversed(step.inner))
        return tuple(found)
