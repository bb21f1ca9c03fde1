"""What is known of a command line before it runs."""

from __future__ import annotations

from retinue.domain.lean import dataclass
from retinue.guard.permissions.marks import is_known

TRUSTED_FOLDERS = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/")


@dataclass(frozen=True, slots=True)
class Step:
    """One simple command. `words` are its name and arguments as the program gets them, with marks
    for what only the shell can know; `assigned` are variables set for it alone.

    `inner` are commands that it starts (`timeout 5 …`, `bash -c …`, `find -exec …`). If they are
    all there is to it, `transparent` is True: who allows them allows it.
    """

    words: tuple[str, ...]
    assigned: tuple[tuple[str, str], ...] = ()
    inner: tuple[Step, ...] = ()
    transparent: bool = False
    opaque: str = ""
    """Why nobody can see what it will do: it is handed code of its own. Only a rule that names
    the program allows it."""

    @property
    def name(self) -> str:
        """The program without its folder."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @property
    def plain_name(self) -> str:
        """The name if it certainly means the program that everyone has under it, else ""."""
        word = self.words[0] if self.words else ""
        if "/" not in word:
            return word
        folder = word[: word.rindex("/") + 1]
        return word[len(folder) :] if folder in TRUSTED_FOLDERS else ""

    @property
    def known(self) -> bool:
        return all(map(is_known, self.words))

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
    """`steps` in the order of the text, those in substitutions, bodies and handlers included.
    `moves` are the arguments of `cd`. `doubts` say what could not be understood: whoever allows
    such a command allows what they have not seen."""

    steps: tuple[Step, ...] = ()
    opened: tuple[Opened, ...] = ()
    moves: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    def all_steps(self) -> tuple[Step, ...]:
        """Every step, those inside others too."""
        found: list[Step] = []
        rest = list(reversed(self.steps))
        while rest:
            step = rest.pop()
            found.append(step)
            rest.extend(reversed(step.inner))
        return tuple(found)
