"""Programs that start other programs, and how to find the others among their arguments."""

from __future__ import annotations

from collections.abc import Mapping

from retinue.domain.lean import dataclass

SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh", "ash", "mksh", "yash", "fish", "rbash"})


@dataclass(frozen=True, slots=True)
class Wrapper:
    """`valued` options are followed by a word of their own; `flags` stand alone; `operands`
    words come before the command. `transparent`: it adds nothing that could do harm, so that
    allowing the command is enough. `assigns`: NAME=value may come first, as with env."""

    valued: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    operands: int = 0
    transparent: bool = False
    assigns: bool = False


def _wrapper(
    valued: str = "", flags: str = "", operands: int = 0, *, transparent: bool = False, assigns: bool = False
) -> Wrapper:
    return Wrapper(frozenset(valued.split()), frozenset(flags.split()), operands, transparent, assigns)


_SUDO = _wrapper(
    "-u -g -h -p -C -D -R -r -t -T -U -a --user --group --host --prompt --close-from --chdir --chroot --role --type"
    " --command-timeout --other-user",
    "-A -b -E -H -i -k -K -n -P -S -s -N -B --background --preserve-env --set-home --login --non-interactive --stdin"
    " --shell --askpass --reset-timestamp",
    assigns=True,
)
_TRACER = _wrapper(
    "-e -o -p -s -u -a -E -O -S -P -I -b -X -n -l -x -w", "-f -ff -c -C -d -q -r -t -tt -T -v -y -yy -z -k"
)

WRAPPERS: Mapping[str, Wrapper] = {
    "timeout": _wrapper(
        "-k -s --kill-after --signal", "--foreground --preserve-status -v --verbose", 1, transparent=True
    ),
    "gtimeout": _wrapper("-k -s --kill-after --signal", "--foreground --preserve-status -v", 1, transparent=True),
    "time": _wrapper("-f --format", "-p -v --verbose --portability", transparent=True),
    "nice": _wrapper("-n --adjustment", transparent=True),
    "nohup": _wrapper(transparent=True),
    "stdbuf": _wrapper("-i -o -e --input --output --error", transparent=True),
    "command": _wrapper("", "-p", transparent=True),
    "builtin": _wrapper(transparent=True),
    "noglob": _wrapper(transparent=True),
    "nocorrect": _wrapper(transparent=True),
    "exec": _wrapper("-a", "-c -l", transparent=True),
    "env": _wrapper("-u --unset", "-i - --ignore-environment -0 --null -v --debug", transparent=True, assigns=True),
    "setsid": _wrapper("", "-c -f -w --ctty --fork --wait", transparent=True),
    "ionice": _wrapper("-c -n --class --classdata", "-t --ignore", transparent=True),
    "chrt": _wrapper("-T -P -D", "-b -f -i -o -r -a -v", 1, transparent=True),
    "taskset": _wrapper("", "-a -c --cpu-list --all-tasks", 1, transparent=True),
    "unbuffer": _wrapper("", "-p", transparent=True),
    "caffeinate": _wrapper("-t -w", "-d -i -m -s -u", transparent=True),
    "sudo": _SUDO,
    "doas": _wrapper("-u -C", "-n -s -L", assigns=True),
    "pkexec": _wrapper("--user", "--disable-internal-agent --keep-cwd"),
    "runuser": _wrapper("-u -g -G --user --group --supp-group", "-l -m -p"),
    "strace": _TRACER,
    "ltrace": _TRACER,
    "chroot": _wrapper("", "", 1),
    "unshare": _wrapper("-S -G -w --setuid --setgid --wd --root", "-m -u -i -n -p -U -C -r -f --fork --map-root-user"),
    "nsenter": _wrapper("-t -S -G --target --setuid --setgid", "-a -m -u -i -n -p -U -C -r -w --all"),
    "flock": _wrapper("-w -E --wait --timeout --conflict-exit-code", "-s -x -e -n -u -o -F --nonblock --shared", 1),
    "xvfb-run": _wrapper("-e -f -n -p -s -w", "-a -l --auto-servernum"),
    "dbus-run-session": _wrapper("--config-file --dbus-daemon", "--"),
    "systemd-run": _wrapper("-p -M -u --unit --slice --uid --gid", "--user --scope --pty --wait --collect -t -P -q -G"),
    "proxychains": _wrapper("-f", "-q"),
    "proxychains4": _wrapper("-f", "-q"),
    "torsocks": _wrapper("-a -P -u -p", "-i -q"),
    "rlwrap": _wrapper("-a -b -f -H -l -s", "-A -c -n -i -m -N -r"),
    "prlimit": _wrapper(),
    "setpriv": _wrapper("--reuid --regid --groups --inh-caps --bounding-set", "--clear-groups --nnp --no-new-privs"),
    "busybox": _wrapper(),
    "toybox": _wrapper(),
    "coproc": _wrapper(transparent=True),
    "jobs": _wrapper("", "-x -l -n -p -r -s"),
    "sem": _wrapper("-j --id", "--wait --fg"),
    "entr": _wrapper("", "-a -c -d -n -p -r -s -z"),
    "chronic": _wrapper(transparent=True),
    "ts": _wrapper(),
    "daemonize": _wrapper("-a -c -e -o -p -l -u -E", "-v"),
    "start-stop-daemon": _wrapper(),
    "uv": _wrapper(),
    "poetry": _wrapper(),
    "pipenv": _wrapper(),
    "npx": _wrapper("-p --package -c --call", "-y --yes -q --no-install"),
    "bunx": _wrapper(),
    "pnpx": _wrapper(),
}
"""With an option that is not listed here, any of the words that follow may be the command."""

CARRIERS = frozenset(
    {*WRAPPERS, *SHELLS, "eval", "trap", "su", "script", "watch", "xargs", "parallel", "find", "gfind", "fd", "fdfind"}
) - {"uv", "poetry", "pipenv", "npx", "bunx", "pnpx"}
"""Programs of which it is known what they start."""

CODE_OPTIONS: Mapping[str, frozenset[str]] = {
    "su": frozenset({"-c", "--command", "--session-command"}),
    "runuser": frozenset({"-c", "--command"}),
    "script": frozenset({"-c", "--command"}),
    "flock": frozenset({"-c", "--command"}),
    "env": frozenset({"-S", "--split-string"}),
    "npx": frozenset({"-c", "--call"}),
}
"""Options whose value is text for a shell, beside that of the shells themselves."""

INLINE_CODE: Mapping[str, tuple[str, ...]] = {
    "python": ("-c", "-"),
    "python2": ("-c", "-"),
    "python3": ("-c", "-"),
    "pypy": ("-c", "-"),
    "pypy3": ("-c", "-"),
    "perl": ("-e", "-E", "-n", "-p"),
    "ruby": ("-e",),
    "node": ("-e", "--eval", "-p", "--print", "-"),
    "nodejs": ("-e", "--eval", "-p", "--print", "-"),
    "deno": ("eval",),
    "bun": ("-e", "--eval"),
    "php": ("-r",),
    "lua": ("-e",),
    "tclsh": (),
    "osascript": ("-e",),
    "awk": (),
    "gawk": (),
    "mawk": (),
    "nawk": (),
    "ed": (),
    "ex": (),
    "vi": (),
    "vim": (),
    "nvim": (),
    "emacs": (),
    "expect": ("-c",),
    "gdb": (),
    "make": ("-f", "--eval"),
    "ssh": (),
    "at": (),
    "batch": (),
    "crontab": (),
    "m4": (),
    "source": (),
    ".": (),
    "sqlite3": (),
    "socat": (),
}
"""Programs that carry out text they are handed. An empty tuple: always; else with these options."""

STRANGE_BUILTINS = frozenset(
    {"alias", "shopt", "enable", "hash", "fc", "bind", "complete", "compgen", "compopt", "history"}
)
"""They change what later names mean, or run text out of sight."""


def unwrap(words: tuple[str, ...], wrapper: Wrapper) -> tuple[int, tuple[tuple[str, str], ...], bool]:
    """Where the command begins in `words`, what is assigned before it, and whether that is
    certain. The index is past the end where there is no command."""
    at, operands = 1, wrapper.operands
    assigned: list[tuple[str, str]] = []
    while at < len(words):
        word = words[at]
        if word == "--":
            at += 1
            break
        if word.startswith("-") and len(word) > 1:
            name = word.partition("=")[0]
            if word in wrapper.flags or (name in wrapper.valued and "=" in word) or _joined_value(word, wrapper):
                at += 1
            elif word in wrapper.valued:
                at += 2
            else:
                return at, tuple(assigned), False
        elif wrapper.assigns and "=" in word and word[0].isidentifier():
            name, _, given = word.partition("=")
            assigned.append((name, given))
            at += 1
        elif operands:
            operands -= 1
            at += 1
        else:
            break
    return at + (operands if at < len(words) else 0), tuple(assigned), True


def _joined_value(word: str, wrapper: Wrapper) -> bool:
    """`-n5`, `-oL`, `-10`, and several flags in one word."""
    if word.startswith("--"):
        return False
    if word[1:].isdigit():
        return True
    return (len(word) > 2 and word[:2] in wrapper.valued) or all(f"-{letter}" in wrapper.flags for letter in word[1:])
