"""Which database server holds the logs of a user's projects, and under which name a project stands there.

The variable RETINUE_DATABASE or the setting `database` of the user's own file names a PostgreSQL database. A project's
file cannot: a repository that was cloned must not choose where everything is recorded. Without a database,
each project has a file of its own.

A project in a database has the same name on every machine: host, path and a digest of the repository's remote
`origin`, else the name of its folder; RETINUE_DATABASE_PROJECT overrides both. Its state folder on a machine is
`<name>@<digest of the database>`, so the folder says where the log is and holds no password.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from retinue.core.files import read_file, read_text
from retinue.errors import StateError, UsageError
from retinue.settings.places import home_of_projects, repository_root, retinue_home, retinue_state

VARIABLE = "RETINUE_DATABASE"
NAME_VARIABLE = "RETINUE_DATABASE_PROJECT"
SCHEMES = ("postgresql", "postgres")
_MAX_NAME_CHARACTERS = 48
"""Characters of a project's name: PostgreSQL allows 63 in the name of a schema."""
_DIGITS = 16
"""Of the digest in a name: nobody finds another repository with the same ones."""
_DIGESTED = re.compile(r"-[0-9a-f]{8}(?:[0-9a-f]{8})?\Z")
_PORTS = {"https": "443", "http": "80", "ssh": "22", "git": "9418"}
_SCP = re.compile(r"(?:[^/@]+@)?([^/:@]+|\[[^]]+\]):(.+)")
_FOLDER = re.compile(r"(.+)@([0-9a-f]{8})")
_ORIGIN = re.compile(r'^\s*\[remote "origin"\]\s*$(?:\n(?!\s*\[).*)*?\n\s*url\s*=\s*(.+?)\s*$', re.MULTILINE)

_urls: dict[str, str] = {}
"""The databases that this process was told of, by digest: a folder names its database by that alone."""


_hidden: dict[str, str] = {}
"""The variable, when the program has taken it out of its environment."""


def hide_variable(url: str) -> None:
    """Remember the variable's value, which is not in the environment of this process any more: it holds a password."""
    _hidden[VARIABLE] = url


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
    url, where = env.get(VARIABLE), VARIABLE
    if url is None:
        url, where = _from_user_file(env), "the setting 'database'"
    if not url:
        return None
    from urllib.parse import urlsplit

    if urlsplit(url).scheme not in SCHEMES:
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
    database_url({VARIABLE: url})


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
    match = _FOLDER.fullmatch(folder.name)
    if match is None:
        return None
    project, mark = match.groups()
    if mark not in _urls:
        database_url()
    if mark not in _urls:
        raise StateError(
            f"The log of project {project} is in a database that is not named here (folder {folder}).",
            remedy=f"Set {VARIABLE} to its URL.",
        )
    return ProjectDatabase(_urls[mark], project)


def project_name(root: Path, environment: Mapping[str, str] | None = None) -> str:
    """Return the name of a project in a database: the same for every clone of one repository, and another for a
    repository of the same name elsewhere."""
    env = os.environ if environment is None else environment
    chosen = env.get(NAME_VARIABLE)
    if chosen:
        word = _word(chosen)
        return word if len(word) <= _MAX_NAME_CHARACTERS else _with_digest(word, chosen, 8)
    origin = _origin(root)
    if origin is not None:
        return _with_digest(_word(origin), origin, _DIGITS)
    word = _word(root.name)
    # A folder must not be called like the project of a repository.
    if len(word) > _MAX_NAME_CHARACTERS or _DIGESTED.search(word):
        return _with_digest(word, root.name, _DIGITS)
    return word


def _word(text: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-") or "project"


def _with_digest(word: str, identity: str, digits: int) -> str:
    """Return the end of `word`, which says most, and what tells `identity` from any other."""
    end = word[-(_MAX_NAME_CHARACTERS - digits - 1) :].strip("-")
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
        match = _ORIGIN.search(read_text(folder / "config"))
    except (OSError, UnicodeDecodeError):
        return None
    return None if match is None else _location(match[1].strip('"'))


def _location(url: str) -> str:
    """Return what a URL of git names, without user, password and the ways to write it."""
    scheme, mark, target = url.partition("://")
    if mark:
        authority, _, path = target.partition("/")
        host = authority.rpartition("@")[2].lower().removesuffix(f":{_PORTS.get(scheme.lower(), '')}")
    elif (written := _SCP.fullmatch(url)) is not None:
        host, path = written[1].lower(), written[2]
    else:
        host, path = "", url
    path = path.rstrip("/").removesuffix(".git").rstrip("/")
    return f"{host}/{path.lstrip('/')}" if host else path
