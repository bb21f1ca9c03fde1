"""The folders and files of the contract, and the database of a project, computed from the environment and nothing else.

Reading never creates a folder; `private_folder` is the one place that makes one.

The variable RETINUE_DATABASE or the setting `database` of the user's own file names a PostgreSQL database. A project's
file cannot: a cloned repository must not choose where everything is recorded. Without a database, each project has a
file of its own. A project in a database has the same name on every machine: host, path and a digest of the repository's
remote `origin`, else the name of its folder; RETINUE_DATABASE_PROJECT overrides both. Its state folder on a machine is
`<name>@<digest of the database>`, so the folder says where the log is and holds no password.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from retinue.core.files import read_file, read_head, read_text
from retinue.errors import StateError, UsageError
from retinue.settings.own_folder import cache_path, home_path, own_folder_path

_MAX_NAME_BYTES = 200
"""Of a project's path in the name of its state folder: file systems allow 255 bytes."""
_GIT_HEAD = re.compile(rb"ref:\s*refs/|[0-9a-f]{40}")


def home(environment: Mapping[str, str] | None = None) -> Path:
    """Return the user's home, overridable through HOME as everywhere."""
    return Path(home_path(os.environ if environment is None else environment))


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
    return Path(cache_path(os.environ if environment is None else environment))


def _own_folder(variable: str, environment: Mapping[str, str] | None) -> Path:
    return Path(own_folder_path(variable, os.environ if environment is None else environment))


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
    if not _GIT_HEAD.match(_first_bytes(os.path.join(git, "HEAD"))):  # noqa: PTH118
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


DATABASE_VARIABLE = "RETINUE_DATABASE"
PROJECT_VARIABLE = "RETINUE_DATABASE_PROJECT"
DATABASE_SCHEMES = ("postgresql", "postgres")
_MAX_PROJECT_CHARACTERS = 48
"""Characters of a project's name: PostgreSQL allows 63 in the name of a schema."""
_DIGEST_CHARACTERS = 16
"""Of the digest in a name: nobody finds another repository with the same ones."""
_DIGEST_END = re.compile(r"-[0-9a-f]{8}(?:[0-9a-f]{8})?\Z")
_PORTS = {"https": "443", "http": "80", "ssh": "22", "git": "9418"}
_SCP_URL = re.compile(r"(?:[^/@]+@)?([^/:@]+|\[[^]]+\]):(.+)")
_DATABASE_FOLDER = re.compile(r"(.+)@([0-9a-f]{8})")
_ORIGIN_URL = re.compile(r'^\s*\[remote "origin"\]\s*$(?:\n(?!\s*\[).*)*?\n\s*url\s*=\s*(.+?)\s*$', re.MULTILINE)

_urls: dict[str, str] = {}
"""The databases that this process was told of, by digest: a folder names its database by that alone."""


_hidden: dict[str, str] = {}
"""The variable, when the program has taken it out of its environment."""


def hide_variable(url: str) -> None:
    """Remember the variable's value, which is not in the environment of this process any more: it holds a password."""
    _hidden[DATABASE_VARIABLE] = url


def own_variables(environment: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return what settings are read from: `environment`, or that of this process with what was taken out of it."""
    if environment is None or environment is os.environ:
        return {**os.environ, **_hidden} if _hidden else os.environ
    return environment


class ProjectDatabase(NamedTuple):
    """A project in a database."""

    url: str
    project: str


def database_url(environment: Mapping[str, str] | None = None) -> str | None:
    """Return the URL of the user's database; None without one. Raise UsageError for what is no URL of PostgreSQL."""
    env = own_variables(environment)
    url, where = env.get(DATABASE_VARIABLE), DATABASE_VARIABLE
    if url is None:
        url, where = _from_user_file(env), "the setting 'database'"
    if not url:
        return None
    from urllib.parse import urlsplit

    if urlsplit(url).scheme not in DATABASE_SCHEMES:
        raise UsageError(
            f"{where} is not the URL of a PostgreSQL database.",
            remedy="Write it as postgresql://USER:PASSWORD@HOST/DATABASE, or remove it to use a file per project.",
        )
    _urls[digest(url)] = url
    return url


def has_password(url: str) -> bool:
    """Return whether a password is in the URL of a database, or in its query."""
    from urllib.parse import parse_qs, urlsplit

    parts = urlsplit(url)
    return bool(parts.password) or "password" in parse_qs(parts.query)


def use_database(url: str) -> None:
    """Let folders of this database be found in this process. Raise UsageError for what is no URL of PostgreSQL."""
    database_url({DATABASE_VARIABLE: url})


def digest(url: str) -> str:
    """Return what tells one database from another; the password is no part of it."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    plain = f"{parts.username or ''}@{parts.hostname or ''}:{parts.port or ''}{parts.path}?{parts.query}"
    return hashlib.sha256(plain.encode()).hexdigest()[:8]


def database_folder(home: Path, database: ProjectDatabase) -> Path:
    """Return the state folder, on this machine, of a project in a database."""
    return home_of_projects(home) / f"{database.project}@{digest(database.url)}"


def database_of(folder: Path) -> ProjectDatabase | None:
    """Return the project whose state folder this is, if it is in a database. Raise StateError when the database is
    not the one that the user has named."""
    match = _DATABASE_FOLDER.fullmatch(folder.name)
    if match is None:
        return None
    project, mark = match.groups()
    if mark not in _urls:
        database_url()
    if mark not in _urls:
        raise StateError(
            f"The log of project {project} is in a database that is not named here (folder {folder}).",
            remedy=f"Set {DATABASE_VARIABLE} to its URL.",
        )
    return ProjectDatabase(_urls[mark], project)


def project_name(root: Path, environment: Mapping[str, str] | None = None) -> str:
    """Return the name of a project in a database: the same for every clone of one repository, and another for a
    repository of the same name elsewhere."""
    env = os.environ if environment is None else environment
    chosen = env.get(PROJECT_VARIABLE)
    if chosen:
        word = _word(chosen)
        return word if len(word) <= _MAX_PROJECT_CHARACTERS else _with_digest(word, chosen, 8)
    origin = _origin(root)
    if origin is not None:
        return _with_digest(_word(origin), origin, _DIGEST_CHARACTERS)
    word = _word(root.name)
    # A folder must not be called like the project of a repository.
    if len(word) > _MAX_PROJECT_CHARACTERS or _DIGEST_END.search(word):
        return _with_digest(word, root.name, _DIGEST_CHARACTERS)
    return word


def _word(text: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-") or "project"


def _with_digest(word: str, identity: str, digits: int) -> str:
    """Return the end of `word`, which says most, and what tells `identity` from any other."""
    end = word[-(_MAX_PROJECT_CHARACTERS - digits - 1) :].strip("-")
    return f"{end}-{hashlib.sha256(identity.encode('utf-8', 'surrogateescape')).hexdigest()[:digits]}".lstrip("-")


def project_state(cwd: Path, environment: Mapping[str, str] | None = None) -> Path | None:
    """Return the state folder of the project that `cwd` belongs to, if the user has named a database."""
    url = database_url(environment)
    if url is None:
        return None
    root = repository_root(cwd) or cwd
    return database_folder(retinue_state(environment), ProjectDatabase(url, project_name(root, environment)))


def _from_user_file(environment: Mapping[str, str]) -> str | None:
    try:
        data = read_file(retinue_home(environment) / "settings.json")
    except OSError:
        return None
    # Most files have none, and this is asked at every start.
    if b'"database"' not in data:
        return None
    import orjson

    try:
        settings = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None  # the settings' own reader reports it
    value = settings.get("database") if isinstance(settings, dict) else None
    return value if isinstance(value, str) else None


def _origin(root: Path) -> str | None:
    """Return host and path of the remote `origin`: `github.com/owner/name`, however its URL is written. Read from the
    file: starting git costs more."""
    folder = root / ".git"
    try:
        if folder.is_file():
            folder = root / read_text(folder).removeprefix("gitdir:").strip()
            folder = folder / read_text(folder / "commondir").strip()
        match = _ORIGIN_URL.search(read_text(folder / "config"))
    except (OSError, UnicodeDecodeError):
        return None
    return None if match is None else _location(match[1].strip('"'))


def _location(url: str) -> str:
    """Return what a URL of git names, without user, password and the ways to write it."""
    scheme, mark, target = url.partition("://")
    if mark:
        authority, _, path = target.partition("/")
        host = authority.rpartition("@")[2].lower().removesuffix(f":{_PORTS.get(scheme.lower(), '')}")
    elif (written := _SCP_URL.fullmatch(url)) is not None:
        host, path = written[1].lower(), written[2]
    else:
        host, path = "", url
    path = path.rstrip("/").removesuffix(".git").rstrip("/")
    return f"{host}/{path.lstrip('/')}" if host else path
