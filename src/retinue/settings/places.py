"""The folders and files of the contract, computed from the environment and nothing else.

Reading never creates a folder; `private_folder` is the one place that makes one.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from retinue.core.files import read_head

_MAX_NAME_BYTES = 200
"""Of a project's path in the name of its state folder: file systems allow 255 bytes."""
_HEAD = re.compile(rb"ref:\s*refs/|[0-9a-f]{40}")


def home(environment: Mapping[str, str] | None = None) -> Path:
    """Return the user's home, overridable through HOME as everywhere."""
    env = os.environ if environment is None else environment
    if env.get("HOME"):
        return Path(env["HOME"])
    own = os.path.expanduser("~")  # noqa: PTH111 - pathlib raises where the system does not know the user
    return Path("/" if own == "~" else own)


def retinue_home(environment: Mapping[str, str] | None = None) -> Path:
    """Return the user's folder of settings, agents, skills and keys: RETINUE_HOME, else ~/.retinue. Where there is no
    ~/.retinue and XDG_CONFIG_HOME is set, `retinue` in there."""
    return _own_folder("XDG_CONFIG_HOME", environment)


def retinue_state(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of what Retinue keeps by itself, such as the logs of all projects: the same as `retinue_home`,
    but for XDG_STATE_HOME."""
    return _own_folder("XDG_STATE_HOME", environment)


def own_folders(environment: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Return the folders that hold anything of Retinue's, each once."""
    return tuple(dict.fromkeys((retinue_home(environment), retinue_state(environment))))


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of what can be found again at any time."""
    return retinue_state(environment) / "cache"


def _own_folder(variable: str, environment: Mapping[str, str] | None) -> Path:
    env = os.environ if environment is None else environment
    chosen = env.get("RETINUE_HOME")
    if chosen:
        return Path(chosen).expanduser()
    usual = home(env) / ".retinue"
    # A relative path in such a variable is to be ignored, says the specification.
    base = env.get(variable, "")
    if not os.path.isabs(base) or os.path.isdir(usual):  # noqa: PTH112, PTH117 - at every start
        return usual
    return Path(base, "retinue")


def pi_home(environment: Mapping[str, str] | None = None) -> Path:
    env = os.environ if environment is None else environment
    chosen = env.get("PI_CODING_AGENT_DIR")
    return Path(chosen).expanduser() if chosen else home(env) / ".pi" / "agent"


def repository_root(start: Path) -> Path | None:
    """Return the top folder of the repository that `start` is in, or None. As git does it, the nearest `.git` upward
    that is a repository counts; a folder above `start` only if the user owns it. Nothing is started: every run asks."""
    root = _repository_above(str(start))
    return None if root is None else Path(root)


def project_levels(cwd: str) -> list[str]:
    """Return the folder itself and those above it up to the repository's root; itself alone where there is
    no repository. As texts: this is asked at every start, and paths cost ten times as much."""
    root = _repository_above(cwd)
    levels = [cwd]
    while root is not None and levels[-1] != root:
        levels.append(os.path.dirname(levels[-1]))  # noqa: PTH120
    return levels


def _repository_above(start: str) -> str | None:
    folder = start
    while True:
        marker = os.path.join(folder, ".git")  # noqa: PTH118
        if os.path.exists(marker):  # noqa: PTH110
            git = _git_folder(folder, marker)
            if git is not None and _is_git_folder(git):
                return folder if folder == start or _is_own(folder, marker, git) else None
            if git != marker:
                return None  # git goes no further up at a file that leads nowhere
        above = os.path.dirname(folder)  # noqa: PTH120
        if above == folder:
            return None
        folder = above


def _git_folder(folder: str, marker: str) -> str | None:
    """Return the folder that `.git` is, or names in a worktree or submodule; None for a file without a name."""
    if os.path.isdir(marker):  # noqa: PTH112
        return marker
    kind, _, name = _first_bytes(marker).partition(b"gitdir: ")
    return os.path.join(folder, os.fsdecode(name.strip())) if not kind and name.strip() else None  # noqa: PTH118


def _is_git_folder(git: str) -> bool:
    """Return whether git takes a folder for a repository: it has a HEAD, and objects and references of its own or
    those of the repository whose worktree it is."""
    if not _HEAD.match(_first_bytes(os.path.join(git, "HEAD"))):  # noqa: PTH118
        return False
    common = os.fsdecode(_first_bytes(os.path.join(git, "commondir")).strip())  # noqa: PTH118
    return all(os.path.isdir(os.path.join(git, common, name)) for name in ("objects", "refs"))  # noqa: PTH112, PTH118


def _is_own(*paths: str) -> bool:
    """Return whether the user owns all of these, or with sudo the user who called it."""
    if not hasattr(os, "geteuid"):
        return True
    users = {os.geteuid()}
    if users == {0} and os.environ.get("SUDO_UID", "").isdecimal():
        users.add(int(os.environ["SUDO_UID"]))
    return all(os.lstat(path).st_uid in users for path in paths)


def _first_bytes(path: str) -> bytes:
    try:
        return read_head(path, 4096)
    except OSError:
        return b""


def encode_folder(path: str) -> str:
    """Return a path as one file name: `/home/u/p` becomes `home-u-p`, as pi writes it."""
    text = path.replace("\\", "/")
    if len(text) > 1 and text[1] == ":" and text[0].isalpha():
        text = text[2:]
    return text.replace("/", "-").lstrip("-")


def home_of_projects(home: Path) -> Path:
    """Return the folder in which each project has its state folder."""
    return home / "projects"


def state_folder(cwd: Path, environment: Mapping[str, str] | None = None) -> Path:
    """State of the project that `cwd` belongs to. Not created here.

    The name ends in a digest of the path, because `x-y` and `x/y` are the same word otherwise.
    Versions before this one had no digest: a folder of theirs is kept as long as it is this
    project's, and not that of the other."""
    from retinue.settings.database import project_state

    shared = project_state(cwd, environment)
    if shared is not None:
        return shared
    root = repository_root(cwd) or cwd
    word = encode_folder(str(root)) or "root"
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:8]
    projects = home_of_projects(retinue_state(environment))
    folder = projects / f"{os.fsencode(word)[:_MAX_NAME_BYTES].decode(errors='ignore')}-{digest}"
    if os.path.isdir(folder) or not os.path.isfile(projects / word / "log.db"):  # noqa: PTH112, PTH113
        return folder
    return projects / word if _is_of(root, projects / word / "log.db", word) else folder


def _is_of(root: Path, log: Path, word: str) -> bool:
    """Return whether a log of before is that of the project `root`: of all that share the name `word`, the
    one whose runs came first has it."""
    import sqlite3

    try:
        connection = sqlite3.connect(f"{log.absolute().as_uri()}?mode=ro", uri=True, timeout=10)
    except sqlite3.Error:
        return True  # it cannot be read: the code that opens it says why
    try:
        folders = connection.execute("SELECT cwd FROM runs GROUP BY cwd ORDER BY min(created_at)").fetchall()
    except sqlite3.Error:
        return True
    finally:
        connection.close()
    for (folder,) in folders:
        project = repository_root(Path(folder)) or Path(folder)
        if encode_folder(str(project)) == word:
            return project == root
    return True


def private_folder(path: Path) -> Path:
    """Make the folder `path` (and what is missing above it), readable by its owner only."""
    if not path.is_dir():
        private_folder(path.parent)
        path.mkdir(exist_ok=True, mode=0o700)
    return path
