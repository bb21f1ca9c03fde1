"""The sandbox of macOS: a policy as a profile for `sandbox-exec`.

The profile is text in the language of Apple's own profiles. Of several rules about a path the last one decides, so
wide rules come first. A rule is about the path of a file without links, and holds for files that do not exist yet.
No Mac has run this. A host counts as able to confine programs only after a confined program has tried to write, read
and connect there, and failed.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from retinue.core.programs import NotConfinedError, TimeoutExpired, prepare, run
from retinue.guard.sandbox.environment import repository_of, tool_roots
from retinue.guard.sandbox.policy import SandboxPolicy, secret_places

_SANDBOX_EXEC = "/usr/bin/sandbox-exec"

_SYSTEM_FOLDERS = """
/System /usr /bin /sbin /opt /nix /Library /Applications /private/etc /private/var/db/dyld /private/var/db/timezone
/private/var/select
""".split()
_SYSTEM_SECRETS = """
/Library/Keychains /private/etc/master.passwd /private/etc/sudoers /private/etc/sudoers.d /private/etc/krb5.keytab
/private/etc/ssh
""".split()
_SECRETS_IN_LIBRARY = (
    *("Keychains", "Cookies", "Safari", "Messages", "Mail", "Calendars", "Accounts"),
    *("Application Support/Google/Chrome", "Application Support/Chromium", "Application Support/BraveSoftware"),
    *("Application Support/Firefox", "Application Support/com.apple.TCC", "Application Support/AddressBook"),
)
_DEVICES = "/dev/null /dev/zero /dev/random /dev/urandom /dev/tty /dev/fd /dev/stdin /dev/stdout /dev/stderr".split()
_SERVICES = """
com.apple.system.opendirectoryd.libinfo com.apple.system.opendirectoryd.membership
com.apple.system.notification_center com.apple.system.logger com.apple.logd com.apple.bsd.dirhelper
""".split()
"""Services that programs of the command line need: names of users, notices of the system, its log, folders for
temporary files. None of them starts a program."""


_FREE_PROFILE = "(version 1)\n(allow default)\n"
_PROBE_SCRIPT = """
cat "$1/hidden"
echo x > "$1/outside"
echo x > "$1/scratch/inside"
/usr/bin/nc -z -w 1 127.0.0.1 "$2" && echo connected
echo started
"""


def in_seatbelt(policy: SandboxPolicy, scratch: Path, argv: Sequence[str]) -> list[str]:
    """Return the words that start a program inside a policy: the same ones if there is nothing to confine. Raise
    NotConfinedError for a policy that no profile can express."""
    profile = make_profile(policy, scratch)
    if profile == _FREE_PROFILE:
        return list(argv)
    return [_SANDBOX_EXEC, "-p", profile, *argv]


def make_profile(policy: SandboxPolicy, scratch: Path) -> str:
    """Return the profile of a policy."""
    if isinstance(policy.network, tuple):
        raise NotConfinedError("On macOS single hosts cannot be allowed (sandbox.network).")
    hidden = _resolve([*policy.hidden, *(_secrets(policy.home) if policy.home else ())])
    readonly = _resolve(policy.readonly)
    rules = ["(version 1)"]
    if policy.change == "all":
        rules.append("(allow default)")
        if policy.network == "off":
            rules.append("(deny network*)")
        parents = _parents([*hidden, *readonly], ["/"])
        shown = _resolve(policy.shown)
    else:
        writable = _resolve([*policy.writable, scratch])
        # A folder that is read-only as a whole is shown.
        shown = [*_resolve(policy.shown), *writable]
        rules += _listed_rules(policy, shown, [path for path in writable if path not in readonly])
        parents = _parents([*hidden, *readonly], writable)
    # A file that is moved away, or has a second name, is not at its path any more.
    rules += _rule("deny", "file-write-unlink", "literal", parents)
    rules += _rule("deny", "file-link", "subpath", [*hidden, *readonly])
    denied = "file-read* file-write* network-outbound"
    rules += _rule("deny", denied, "subpath", hidden)
    in_hidden = [path for path in shown if any(_is_below(path, top) for top in hidden if top != path)]
    rules += _rule("allow", "file-read-metadata", "literal", _parents(in_hidden, hidden))
    rules += _rule("allow", "file-read*", "subpath", in_hidden)
    if policy.change == "all":
        rules += _rule("allow", "file-write* network-outbound", "subpath", in_hidden)
    else:
        rules += _rule("allow", "file-write*", "subpath", [path for path in in_hidden if path in writable])
    # A hidden path in such a folder stays hidden.
    rules += _rule(
        "deny", denied, "subpath", [path for path in hidden if any(_is_below(path, top) for top in in_hidden)]
    )
    rules += _rule("deny", "file-write*", "subpath", readonly)
    return "\n".join(rules) + "\n"


def _listed_rules(policy: SandboxPolicy, shown: list[str], writable: list[str]) -> list[str]:
    """Return the rules of a program that may do only what is listed."""
    rules = [
        "(deny default)",
        "(allow process-exec* process-fork)",
        "(allow signal process-info* (target same-sandbox))",
        "(allow sysctl-read)",
        *_rule("allow", "mach-lookup", "global-name", _SERVICES),
        # The kernel asks for it at every folder on the way, so names outside of `reach` can be seen.
        "(allow file-read-metadata)",
    ]
    if policy.reach == "all":
        rules.append("(allow file-read*)")
    else:
        tools = tool_roots(policy.home, policy.path)
        for root in shown:
            tools += repository_of(root)
        rules += _rule("allow", "file-read*", "literal", ["/"])
        rules += _rule("allow", "file-read*", "subpath", [*_SYSTEM_FOLDERS, *_resolve(map(Path, tools)), *shown])
    rules += _rule("deny", "file-read*", "subpath", _SYSTEM_SECRETS)
    rules += _rule("allow", "file-read* file-write-data file-ioctl", "subpath", _DEVICES)
    rules += _rule("allow", "file-write*", "subpath", writable)
    # A second name in a writable folder would make a file writable.
    rules.append("(deny file-link)")
    if policy.network == "on":
        rules.append("(allow network* system-socket)")
        rules += _rule("allow", "mach-lookup", "global-name", ["com.apple.trustd.agent", "com.apple.dnssd.service"])
    return rules


def _rule(verdict: str, operations: str, filter_name: str, values: Sequence[str]) -> list[str]:
    """Return one rule; none without values, because a rule without filters is about everything."""
    if not values:
        return []
    filters = "".join(f"\n  ({filter_name} {_quote(value)})" for value in dict.fromkeys(values))
    return [f"({verdict} {operations}{filters})"]


def _quote(value: str) -> str:
    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise NotConfinedError(f"A path with control characters cannot be in a profile: {value!r}")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _secrets(home: Path) -> list[Path]:
    return [*secret_places(home), *(home / "Library" / name for name in _SECRETS_IN_LIBRARY)]


def _resolve(paths: Iterable[Path]) -> list[str]:
    """Return paths as the kernel sees them, also of what does not exist yet."""
    return list(dict.fromkeys(os.path.realpath(path) for path in paths))


def _parents(paths: Iterable[str], tops: Iterable[str]) -> list[str]:
    """Return the folders above, as far as they can be in a writable folder."""
    parents = {str(parent) for path in paths for parent in Path(path).parents if str(parent) != "/"}
    return sorted(parent for parent in parents if any(_is_below(parent, top) for top in tops))


def _is_below(path: str, folder: str) -> bool:
    return folder == "/" or path == folder or path.startswith(folder + "/")


@cache
def why_no_seatbelt() -> str | None:
    """Return why programs cannot be confined on this Mac; None if a confined program tried to get out and failed.
    Starts one program, once."""
    if not os.access(_SANDBOX_EXEC, os.X_OK):
        return "sandbox-exec is not there"
    with tempfile.TemporaryDirectory(prefix="retinue-probe-") as name, socket.create_server(("127.0.0.1", 0)) as server:
        folder = Path(os.path.realpath(name))
        (folder / "hidden").write_text("secret")
        (folder / "scratch").mkdir()
        port = str(server.getsockname()[1])
        policy = SandboxPolicy(hidden=(folder / "hidden",))
        argv = in_seatbelt(policy, folder / "scratch", ["/bin/sh", "-c", _PROBE_SCRIPT, "sh", str(folder), port])
        try:
            probe = run(prepare(argv, clearance="own", environment={"PATH": "/usr/bin:/bin"}), seconds=20)
        except (OSError, TimeoutExpired) as error:
            return f"sandbox-exec does not start: {error}"
        if not probe.stdout.endswith(b"started\n") or not (folder / "scratch/inside").exists():
            return "sandbox-exec does not take the profile"
        if probe.stdout != b"started\n" or (folder / "outside").exists():
            return "sandbox-exec does not confine programs"
    return None
