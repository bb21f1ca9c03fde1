"""The settings of a repository with which git starts programs: one table for all of Retinue.

`guard/git.py`, through which every git of ours runs, switches them off; `guard/gitconfig.py`
looks for them in the files of a repository, so that a person can consent to them.

| kind | when git starts the program |
|---|---|
| `read` | while it only reads: `git status`, `git log -p` |
| `checkout` | while files are read into the repository, written from it, or merged |
| `transport` | while it talks to another repository; a promisor remote makes reading do that |
| `promisor` | none by itself: objects that are missing are fetched, by whatever `transport` says |
| `elsewhere` | none: it makes git read and write another folder, or other settings |
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

Kind = Literal["read", "checkout", "transport", "promisor", "elsewhere"]

_HARMLESS_FILTER = re.compile(r"git-lfs (?:clean|smudge|filter-process)\b[\w %.-]*")
_SWITCHES = frozenset({"", "true", "false", "yes", "no", "on", "off", "1", "0"})
_FALSE = frozenset({"false", "no", "off", "0"})


class GitSetting(Struct, frozen=True):
    """Settings whose whole name, section and key in lower case, matches `name`. `off` is the value
    that starts nothing, used where the user's own settings have none."""

    name: str
    kind: Kind
    off: str
    why: str


SETTINGS = (
    GitSetting(r"core\.fsmonitor", "read", "false", "a monitor is started to ask what changed"),
    GitSetting(r"core\.alternaterefscommand", "read", "true", "it lists the refs of borrowed repositories"),
    GitSetting(r"diff\.external", "read", "false", "it shows differences"),
    GitSetting(r"diff\..+\.command", "read", "false", "it shows differences of some files"),
    GitSetting(r"diff\..+\.textconv", "read", "", "it turns files into text before they are compared"),
    GitSetting(r"gpg(?:\..+)?\.program", "read", "false", "log.showSignature and merges check signatures with it"),
    GitSetting(r"gpg\.ssh\.defaultkeycommand", "read", "", "it is asked for a key to sign with"),
    GitSetting(r"filter\..+\.(?:clean|smudge|process)", "checkout", "", "files go through it in both directions"),
    GitSetting(r"lfs\.extension\..+\.(?:clean|smudge)", "checkout", "", "git-lfs starts it for every file"),
    GitSetting(r"lfs\.customtransfer\..+\.path", "checkout", "", "git-lfs fetches large files with it"),
    GitSetting(r"lfs\.standalonetransferagent", "checkout", "", "git-lfs fetches large files with it"),
    GitSetting(r"merge\..+\.driver", "checkout", "false", "it merges some files; `false` leaves a conflict"),
    GitSetting(r"core\.sshcommand", "transport", "ssh", "it connects to other hosts"),
    GitSetting(r"core\.gitproxy", "transport", "", "it connects to other hosts"),
    GitSetting(r"core\.askpass", "transport", "true", "it is asked for passwords"),
    GitSetting(r"credential(?:\..+)?\.helper", "transport", "", "it is asked for passwords, and told them"),
    GitSetting(r"remote\..+\.uploadpack", "transport", "git-upload-pack", "it is the other end of a fetch"),
    GitSetting(r"remote\..+\.receivepack", "transport", "git-receive-pack", "it is the other end of a push"),
    GitSetting(r"remote\..+\.vcs", "transport", "", "it names a helper program for the remote"),
    GitSetting(r"protocol(?:\..+)?\.allow", "transport", "never", "`ext::` addresses are commands"),
    GitSetting(r"http(?:\..+)?\.savecookies", "transport", "false", "a file that the repository names is written"),
    GitSetting(r"remote\..+\.(?:promisor|partialclonefilter)", "promisor", "false", "missing objects are fetched"),
    GitSetting(r"extensions\.partialclone", "promisor", "", "missing objects are fetched"),
    GitSetting(r"core\.worktree", "elsewhere", "", "git works on another folder than the one it is in"),
    GitSetting(r"includeif\..+\.path", "elsewhere", "", "other settings come and go with the branch"),
)
_FOUND = tuple((re.compile(each.name, re.DOTALL), each) for each in SETTINGS)


def program_setting(name: str, value: str) -> GitSetting | None:
    """The row for a setting, its name as git lists it, if with this value it can start a program or
    lead git elsewhere."""
    section, _, rest = name.partition(".")
    below, dot, key = rest.rpartition(".")
    lowered = f"{section.lower()}.{below}{dot}{key.lower()}"
    for pattern, row in _FOUND:
        if pattern.fullmatch(lowered):
            return None if _is_harmless(lowered, value) else row
    return None


def _is_harmless(name: str, value: str) -> bool:
    if name == "core.fsmonitor":  # `true` is the monitor that git brings itself
        return value.lower() in _SWITCHES
    if name.startswith("filter."):  # git-lfs is a program of the user's, found by PATH
        return _HARMLESS_FILTER.fullmatch(value) is not None
    if name.startswith("protocol."):
        return value.lower() == "never"
    if name.endswith((".promisor", ".savecookies")):
        return value.lower() in _FALSE
    return name.startswith("remote.") and not value
