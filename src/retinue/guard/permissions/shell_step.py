"""One command of a command line before it runs, and the programs that start other programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from retinue.guard.permissions.rule import GLOB

SYSTEM_FOLDERS = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/")


class Step(Struct, frozen=True):
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


class Opened(Struct, frozen=True):
    """A file that a redirection opens."""

    path: str
    writes: bool


class Script(Struct, frozen=True):
    """A command line that was read: `steps` in the order of the text, `moves` the arguments of
    `cd`. With `doubts` it was not: they say why, and the other fields tell nothing."""

    steps: tuple[Step, ...] = ()
    opened: tuple[Opened, ...] = ()
    moves: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def writes(self) -> bool:
        """A redirection in it writes a file."""
        return any(file.writes for file in self.opened)

    def names(self) -> frozenset[str]:
        """Return the names of all programs, also of those inside others."""
        return frozenset(step.name for step in self.all_steps())

    def all_steps(self) -> tuple[Step, ...]:
        """Return every step, also those inside others."""
        steps: list[Step] = []
        waiting = list(reversed(self.steps))
        while waiting:
            step = waiting.pop()
            steps.append(step)
            waiting.extend(reversed(step.inner))
        return tuple(steps)


SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh", "ash", "mksh", "yash", "fish", "rbash"})
READABLE_SHELLS = frozenset({"bash", "sh", "dash"})
"""Shells that read our grammar as bash does."""

_CODE_FLAGS = frozenset({"-c", "-lc", "-ec", "-euc", "-exc", "-cx", "-ce", "-uc", "-xc"})


class Wrapper(Struct, frozen=True):
    """`valued` options are followed by a word of their own; `flags` stand alone; `operands`
    words come before the command; `assigns`: NAME=value may come first."""

    valued: str = ""
    flags: str = ""
    operands: int = 0
    assigns: bool = False


WRAPPERS: Mapping[str, Wrapper] = {
    "timeout": Wrapper("-k -s --kill-after --signal", "--foreground --preserve-status -v --verbose", 1),
    "time": Wrapper("-f --format", "-p -v --verbose --portability"),
    "nice": Wrapper("-n --adjustment"),
    "nohup": Wrapper(),
    "stdbuf": Wrapper("-i -o -e --input --output --error"),
    "command": Wrapper("", "-p"),
    "exec": Wrapper("-a", "-c -l"),
    "env": Wrapper("-u --unset", "-i - --ignore-environment", assigns=True),
    "setsid": Wrapper("", "-c -f -w --ctty --fork --wait"),
    "ionice": Wrapper("-c -n --class --classdata", "-t --ignore"),
    "chronic": Wrapper(),
}
"""Wrappers that add no harm: a rule that allows the command allows the wrapped one."""

CARRIERS = frozenset(
    {*WRAPPERS, *SHELLS, "eval", "trap", "su", "sudo", "doas", "pkexec", "runuser", "script", "watch", "xargs"}
    | {"parallel", "find", "gfind", "fd", "fdfind", "strace", "ltrace", "chroot", "unshare", "nsenter", "flock"}
    | {"xvfb-run", "dbus-run-session", "systemd-run", "proxychains", "proxychains4", "torsocks", "rlwrap", "prlimit"}
    | {"setpriv", "busybox", "toybox", "builtin", "coproc", "sem", "entr", "ts", "daemonize", "start-stop-daemon"}
    | {"chrt", "taskset", "unbuffer", "caffeinate", "gtimeout", "noglob", "nocorrect", "ld-linux-x86-64.so.2"}
)
"""Programs whose purpose is to start a command among their words, or in the text of one of them."""

INTERPRETERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("python", "python2", "python3", "pypy", "pypy3"), ("-c", "-")),
    **dict.fromkeys(("node", "nodejs"), ("-e", "--eval", "-p", "--print", "-")),
    **dict.fromkeys(("ruby", "lua", "osascript", "Rscript", "julia", "bun"), ("-e", "--eval")),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk", "tclsh", "ed", "ex", "vi", "vim", "nvim", "emacs", "gdb"), ()),
    **dict.fromkeys(("ssh", "at", "batch", "crontab", "m4", "sqlite3", "socat", "sed", "gsed", "psql", "mysql"), ()),
    "perl": ("-e", "-E", "-n", "-p"),
    "deno": ("eval",),
    "php": ("-r",),
    "expect": ("-c",),
    "make": ("-f", "--eval", "-"),
}
"""Programs that carry out text of another language. An empty tuple: always; else with these options."""


def has_option(words: Iterable[str], *options: str) -> bool:
    """Return whether one of the words begins with one of the options."""
    return any(word.startswith(options) for word in words)


def carries_code(words: tuple[str, ...]) -> bool:
    """Return whether a program is handed text of another language to carry out."""
    name = words[0].rpartition("/")[2]
    if name.startswith(("python3.", "python2.")):
        name = "python"
    options = INTERPRETERS.get(name)
    if options is None:
        return False
    return not options or len(words) == 1 or has_option(words[1:], *options)


def unwrap(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]] | None:
    """Return the command that a wrapper starts, and the variables it sets for it; None where an
    option is not known, or where there is no command."""
    wrapper = WRAPPERS[words[0].rpartition("/")[2]]
    assigned: list[tuple[str, str]] = []
    operands, at = wrapper.operands, 1
    while at < len(words):
        word = words[at]
        # Operands and the command follow, never options.
        if word == "--":
            at += 1 + operands
            break
        if word.startswith("-"):
            width = _option_width(word, wrapper)
            if width == 0:
                return None
            at += width
        elif wrapper.assigns and "=" in word:
            name, _, value = word.partition("=")
            assigned.append((name, value))
            at += 1
        elif operands:
            operands -= 1
            at += 1
        else:
            break
    command = words[at:]
    if command:
        return (command, tuple(assigned))
    return None


def _option_width(word: str, wrapper: Wrapper) -> int:
    """Return how many words an option takes: 0 for one that is not known."""
    if word in wrapper.flags.split():
        return 1
    valued = wrapper.valued.split()
    if word in valued:
        return 2
    name, equals, _ = word.partition("=")
    joined = word[:2] in valued or (word[1:].isdigit() and "-n" in valued)
    return int(joined or (bool(equals) and name in valued))


def shell_code(words: tuple[str, ...]) -> str | None:
    """Return the text that `bash -c TEXT` carries out; None where that is not certain."""
    if words[0] not in READABLE_SHELLS and words[0].rpartition("/")[2] not in READABLE_SHELLS:
        return None
    if len(words) < 3 or words[1] not in _CODE_FLAGS or words[2].startswith(("-", "+")):
        return None
    return words[2]


_MEANING_CHANGERS = frozenset(
    "alias unalias shopt set enable hash fc bind complete compgen compopt history trap source . let declare typeset"
    " local readonly export unset read mapfile readarray getopts builtin caller logout suspend disown fg bg ulimit"
    " umask shift return break continue pushd popd dirs times wait jobs".split()
)
"""Builtins that change what later commands mean, set variables, or carry out text out of sight."""


def why_unreadable(name: str, words: tuple[str, ...]) -> str:
    """Return why the words of a command do not tell what the command line does; "" if they may."""
    if name in _MEANING_CHANGERS:
        return f"{name} changes what later commands mean, or carries out text"
    # In `bash script.sh` the first word is a file, and not an option that makes it something else.
    runs_file = len(words) > 1 and not words[1].startswith(("-", "+", GLOB))
    if name in SHELLS and shell_code(words) is None and not runs_file:
        return "a shell gets its commands from elsewhere"
    subscripts = any("[" in word[:-1] or "$" in word or "`" in word for word in words[1:])
    if name in ("test", "[") and (subscripts or {"-v", "-R"} & set(words)):
        return f"{name} may carry out the subscript of a variable"
    if name == "printf" and words[1:2] and words[1].startswith("-v"):
        return "printf sets a variable"
    if name == "cd" and (len(words) > 2 or words[1:2] == ("-",)):
        return "where cd leads is known only when it runs"
    return ""
