"""The limits of a confined program, and which of them this host can enforce.

Some systems let only known programs make namespaces. Bubblewrap then builds the view of the file
system, and the launcher does the rest inside. Probes that start programs run once per process;
`kernel.why_not` is quick and serves every run.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field, structs

from retinue.core.programs import TimeoutExpired, prepare, run
from retinue.guard.sandbox.kernel import can_confine, can_sandbox, machine, why_not

if TYPE_CHECKING:
    from retinue.settings.table import Settings

Network = Literal["off", "on"] | tuple[str, ...]
"""Nobody, everybody, or these hosts (`example.com`, `*.example.com`) through a proxy."""

Namespaces = Literal["try", "must", "never", "bubblewrap"]
"""Whether the program gets a view of the system of its own: if possible, or not at all without it;
never; or by way of bubblewrap, which is tried on its own where only that may do it."""

GIB = 1024**3

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

_SECRET_PLACES = """
.ssh .aws .azure .gnupg .kube .netrc .pgpass .my.cnf .npmrc .pypirc .git-credentials .vault-token
.password-store .terraform.d .terraformrc .s3cfg .boto .databrickscfg .mozilla .thunderbird .docker/config.json
.cargo/credentials .cargo/credentials.toml .gem/credentials .config/gh .config/hub .config/glab-cli
.config/gcloud .config/git/credentials .config/op .config/sops .config/rclone .config/doctl .config/chromium
.config/google-chrome .config/BraveSoftware .config/containers/auth.json .local/share/keyrings
.claude/.credentials.json .codex/auth.json .gemini/oauth_creds.json .pi/agent/auth.json .bash_history
.zsh_history .python_history .node_repl_history .psql_history .mysql_history .config/fish/fish_history
.local/share/fish/fish_history .m2/settings.xml .m2/settings-security.xml .gradle/gradle.properties
.nuget/NuGet/NuGet.Config .yarnrc .yarnrc.yml .condarc .config/pip/pip.conf .local/share/uv/credentials
.config/composer/auth.json .composer/auth.json .bundle/config .julia/servers .sbt/credentials .ivy2/.credentials
.kaggle .huggingface/token .cache/huggingface/token .config/github-copilot .claude.json
.config/dart/pub-credentials.json .pub-cache/credentials.json .cabal/config .netrc.gpg .authinfo .authinfo.gpg
""".split()
_SYSTEM_SECRET_PLACES = """
/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/sudoers.d /etc/security/opasswd /etc/ssl/private
/etc/pki/tls/private /etc/letsencrypt /etc/krb5.keytab /etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_ecdsa_key
/etc/ssh/ssh_host_ed25519_key /etc/ssh/ssh_host_dsa_key /etc/wireguard /etc/openvpn /etc/ppp/chap-secrets
/etc/NetworkManager/system-connections /etc/kubernetes /etc/rancher /etc/docker/key.json
/etc/mysql/debian.cnf /run/secrets
""".split()


class SandboxLimits(Struct, frozen=True):
    """None lifts a limit. Processor time and the size of a file are per process, as the kernel counts
    them; memory is that of a process and of all processes of a command, the scratch folder that of a run."""

    processes: int | None = 512
    memory_bytes: int | None = 8 * GIB
    cpu_seconds: int | None = 3600
    file_bytes: int | None = 4 * GIB
    scratch_bytes: int | None = None


class SandboxPolicy(Struct, frozen=True, kw_only=True):
    """Which files and hosts a program can reach.

    A program can write, with `change="listed"`, the `writable` folders and a scratch folder; with `change="all"`
    everything that this process can write. In both cases it cannot change `readonly` paths.

    A program can read, with `reach="all"`, everything; with `reach="system"` the system, the user's tools
    (`environment.py`), and the `shown` and `writable` folders. In both cases `hidden` paths look empty, except for
    `shown` folders in them, which are created if they are missing.

    Any other path that does not exist is ignored. A path that is both hidden and read-only is hidden.

    `change="all"` is for commands that somebody has allowed. It sets no limits, filters no system calls and does not
    change the environment. It only hides and protects paths. Without such paths the command starts unconfined."""

    reach: Literal["system", "all"] = "all"
    change: Literal["listed", "all"] = "listed"
    writable: tuple[Path, ...] = ()
    readonly: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    shown: tuple[Path, ...] = ()
    network: Network = "off"
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    pass_environment: tuple[str, ...] = ()
    """Names of variables that stay although they look like secrets."""
    abstract_sockets: bool = True
    """Whether a program with `change="all"` reaches sockets without a path of programs outside. Linux 6.12 can
    prevent it; with `change="listed"` it never does."""
    home: Path | None = None
    """The user's home folder: the places in it where people keep keys are hidden."""
    path: str | None = None
    """The PATH of programs, whose folders are shown with `reach="system"`; None for our own."""
    namespaces: Namespaces = "try"


def secret_places(home: Path) -> tuple[Path, ...]:
    """Return where people keep keys."""
    # By text: a `Path` for each part takes longer than asking the kernel.
    return tuple(Path(os.path.join(home, location)) for location in (*_SECRET_PLACES, *_SYSTEM_SECRET_PLACES))  # noqa: PTH118


def existing_paths(folder: str, places: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the paths that exist."""
    # By text: a `Path` for each of them takes longer than asking the kernel.
    candidates = [os.path.join(folder, location) for location in places]  # noqa: PTH118
    return tuple(map(Path, filter(os.path.exists, candidates)))


_RESTRICTIONS = (
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
    ("/proc/sys/user/max_user_namespaces", "0"),
)


@cache
def restriction() -> str | None:
    """Return the setting of the system that keeps this user from making namespaces, if one does."""
    if not hasattr(os, "geteuid") or os.geteuid() == 0:
        return None
    for path, value in _RESTRICTIONS:
        try:
            if Path(path).read_text().strip() == value:
                return f"{path.removeprefix('/proc/sys/').replace('/', '.')}={value}"
        except OSError:
            continue
    return None


def bubblewrap() -> str | None:
    return shutil.which("bwrap")


@cache
def bubblewrap_works() -> bool:
    program = bubblewrap()
    if program is None:
        return False
    argv = [program, "--ro-bind", "/", "/", "--proc", "/proc", *_memory("/proc", "4096"), "--unshare-net"]
    argv += ["--unshare-pid", "--", "/bin/true"]
    try:
        return run(prepare(argv, clearance="own", environment=os.environ), seconds=20).returncode == 0
    except (OSError, TimeoutExpired):
        return False


def confining_arguments(plan: dict[str, Any]) -> list[str]:
    """Return the words that tell bubblewrap what the launcher would have done itself.

    It reads the list of all mounts again for each one it makes, so it is given few, and folders of
    the kernel, with their many mounts, come last."""
    early, late = _root_folders(plan)
    for words in _binds(plan):
        if words[2].startswith(_KERNEL_FOLDERS):
            late += words
        else:
            early += words
    memory = [words for target, kind, _, size in plan["mounts"] if kind == "memory" for words in _memory(target, size)]
    argv = [*_start(plan), "--unshare-pid", "--unshare-ipc", *early, "--dev", "/dev", *memory, "--proc", "/proc", *late]
    sealed = [] if plan["root"] is None else ["--remount-ro", "/"]
    return [*argv, *sealed, "--"]


def _memory(target: str, size: str) -> list[str]:
    return ["--perms", "1777", *(["--size", size] if size else []), "--tmpfs", target]


_KERNEL_FOLDERS = ("/dev/", "/proc/", "/sys/")


def _root_folders(plan: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the words for the root: the whole file system, or an empty one with what is to be seen."""
    if plan["root"] is None:
        return ["--ro-bind", "/", "/"], []
    early: list[str] = []
    late: list[str] = []
    for text, path in plan["root"]:
        if text:
            early += ["--symlink", text, path]
        elif path == "/sys":
            late += ["--ro-bind", path, path]
        else:
            early += ["--ro-bind", path, path]
    return early, late


def masking_arguments(plan: dict[str, Any]) -> list[str]:
    """Return the words for a program that may change everything but some paths."""
    return [*_start(plan), "--dev-bind", "/", "/", *chain.from_iterable(_binds(plan)), "--"]


def _start(plan: dict[str, Any]) -> list[str]:
    program = bubblewrap() or "bwrap"
    return [program, "--die-with-parent", *(["--unshare-net"] if plan["isolate_network"] else [])]


def _binds(plan: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for target, kind, _, instead in plan["mounts"]:
        # Bubblewrap makes its own /dev, and fails on paths that are gone.
        if kind in ("early device", "memory") or not os.path.lexists(target):
            continue
        # In a root that begins empty, nothing is at the top that would have to be covered.
        if kind == "cover" and plan["root"] is not None and target.count("/") == 1:
            continue
        location = os.path.join(plan["void"], instead) if kind == "cover" else target  # noqa: PTH118 - quick
        free = kind in ("early rw", "pin") or (kind == "early shown" and plan["change"] == "all")
        yield ("--bind" if free else "--ro-bind", location, target)


_READONLY_SIGNS = re.compile(r"Read-only file system|EROFS|Device or resource busy|EBUSY")
_REFUSAL_SIGNS = re.compile(
    r"Read-only file system|EROFS|Permission denied|PermissionError|EACCES|Operation not permitted|EPERM"
    r"|Could not resolve host|Temporary failure in name resolution|Name or service not known|EAI_AGAIN|ENOTFOUND"
    r"|Network is unreachable|ENETUNREACH|getaddrinfo|No space left on device"
)
"""How programs say that the system did not let them."""
_MISSING_PATH = re.compile(
    r"(/[^\s:'\"`]+)['\"`]?: No such file or directory|[Nn]o such file or directory(?::|, \w+) ['\"](/[^'\"\n]+)"
)


def find_stop(shown: str, code: int | None, *, listed: bool, system: bool) -> str:
    """Return the line in which a failed program says what it was kept from; "" if it does not.

    `listed`: it may write to a few folders only. `system`: it sees the workspace and the system only.
    """
    if not code:
        return ""
    # Programs report why they gave up at the end of their output.
    tail = shown[-4000:]
    signs = _REFUSAL_SIGNS if listed else _READONLY_SIGNS
    lines = [line.strip() for line in tail.splitlines() if signs.search(line)]
    if lines:
        return lines[-1][:200]
    for match in _MISSING_PATH.finditer(tail) if system else ():
        path = match[1] or match[2]
        if os.path.lexists(path):
            return f"{path[:200]} cannot be seen from inside"
    return ""


@cache
def namespaces_work() -> bool:
    """Return whether a program can have namespaces of its own. Takes some milliseconds, once."""
    return machine() is not None and run_inside(SandboxPolicy(namespaces="must"), "exit 0")[0] == 0


@cache
def masks_work() -> bool:
    """Return whether files can be hidden from a program that is free otherwise. Start one, once."""
    import tempfile

    if not can_confine():
        return False
    with tempfile.NamedTemporaryFile(prefix="retinue-probe-") as file:
        file.write(b"seen")
        file.flush()
        policy = SandboxPolicy(change="all", network="on", hidden=(Path(file.name),))
        # An empty file or, in the sandbox of macOS, an error.
        code, output = run_inside(policy, 'cat "$1" 2>/dev/null; echo started', file.name)
    return code == 0 and output == "started\n"


_UNCOVERED_ON_MACOS = (
    "Retinue's sandbox for macOS was not run on a Mac by its authors. Memory, the scratch folder and the number of "
    "processes have no bound, other processes and names of files can be seen, and single hosts cannot be allowed."
)


def uncovered(policy: SandboxPolicy) -> str:
    """Return what of a policy this host cannot enforce, in sentences."""
    problem = why_not()
    if policy.change == "all":
        if (policy.hidden or policy.readonly or policy.home) and not masks_work():
            return (
                "Files that rules hide or protect cannot be kept from commands that may change everything: "
                "namespaces are not available here."
            )
        return ""
    if problem is not None:
        return f"Nothing of this can be enforced here: {problem}."
    if sys.platform == "darwin":
        return _UNCOVERED_ON_MACOS
    if namespaces_available():
        return ""
    sentences = ["Without namespaces, the names of hidden files and the number of processes can be seen."]
    if policy.writable and (policy.readonly or policy.hidden):
        sentences.append("Files in a writable folder cannot be hidden or protected.")
    if isinstance(policy.network, tuple):
        sentences.append("Single hosts cannot be allowed, so such a shell does not start.")
    return " ".join(sentences)


def namespaces_available() -> bool:
    """Return whether programs get namespaces of their own here, made by us or by bubblewrap."""
    return namespaces_work() or (restriction() is not None and bubblewrap_works())


def run_inside(policy: SandboxPolicy, script: str, *words: str, **variables: str) -> tuple[int, str]:
    """Run a script for sh, with words as $1 and so on, inside a policy. Return its exit code (-1 if it could not be
    started) and what it printed."""
    from retinue.guard.sandbox.box import Box

    box = Box(policy, "probe")
    try:
        program = prepare(
            ["/bin/sh", "-c", script, "sh", *words],
            clearance="inside",
            environment={"PATH": "/usr/bin:/bin"},
            confine=lambda _: box,
        )
        program = structs.replace(program, environment={**program.environment, **variables})
        done = run(program, seconds=20, output="merged")
    except (OSError, TimeoutExpired) as error:
        return -1, str(error)
    finally:
        box.close()
    return done.returncode, done.stdout.decode("utf-8", "replace")


def can_mask(settings: Settings) -> bool:
    """Return whether files can be kept from programs that are free otherwise. Starts one program, once."""
    return can_sandbox(settings) and masks_work()
