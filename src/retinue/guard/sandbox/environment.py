"""The environment of a confined program: the system and tools it needs, its variables, where it writes.

A policy with `reach="system"` shows only these and the folders of the run; other projects, the home
folder and temporary files of others are not visible.

Values known to be secret have been removed before. Here the names of variables decide, because nobody
knows the shape of every secret. Variables that make programs load code or look elsewhere are removed
as well. A test holds the table in `docs/trust.md`, which is for users, to this file.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from pathlib import Path
from urllib.parse import unquote

SYSTEM = frozenset("""bin dev etc gnu lib lib32 lib64 libx32 libexec nix opt proc sbin snap sys usr""".split())
"""Folders at the top of the file system that belong to the system. All others may hold people's files."""

_SYSTEM_SUBFOLDERS = """
/run/current-system /run/opengl-driver /run/systemd/resolve /run/resolvconf /run/NetworkManager/resolv.conf
/var/lib/dpkg /var/lib/rpm /var/lib/pacman /var/lib/alternatives /var/cache/fontconfig /var/cache/man
/var/db/repos /var/lib/flatpak/exports /home/linuxbrew/.linuxbrew /mnt/wsl/resolv.conf /var/guix/profiles
/var/lib/gems /var/lib/ghc /var/lib/texmf /var/lib/aspell /var/lib/ispell /var/lib/dictionaries-common
""".split()
"""Below other folders: name resolution, databases of package managers, libraries that distributions put into
/var, and Homebrew's place on Linux."""

_TOOL_FOLDERS_IN_HOME = """
.asdf .bun .cabal .cargo .conda .config/composer .config/git .config/mise .deno .dotnet .elan .fnm .ghcup
.gitconfig .gitignore .gitignore_global .gradle .ivy2 .jabba .jdks .jenv .julia .juliaup .linuxbrew .local/bin
.local/lib .local/pipx .local/share/fnm .local/share/gem .local/share/mise .local/share/pipx .local/share/pnpm
.local/share/rtx .local/share/uv .local/share/virtualenv .local/share/virtualenvs .m2 .mix .nimble .nix-profile
.nodenv .npm .npm-global .nuget .nvm .opam .phpenv .pnpm-store .proto .pub-cache .pyenv .rbenv .rustup .rvm .sbt
.sdkman .stack .swiftly .tfenv .volta .yarn .zvm anaconda3 go mambaforge micromamba miniconda3 miniforge3
""".split()
"""Where installers of languages put programs and libraries without asking: compilers, interpreters and
package managers do not start without them. Keys in them stay hidden (`secret_places`)."""

_PROGRAM_FOLDER_NAMES = ("bin", "sbin", ".bin", "Scripts", "shims")
_MAX_LINKS = 2000


def system_roots() -> list[str]:
    """Return what every program may read, as far as it exists here."""
    tops = map("/".__add__, sorted(SYSTEM - {"proc", "dev"}))
    return list(filter(os.path.exists, (*tops, *_SYSTEM_SUBFOLDERS)))


def foreign_tops() -> list[str]:
    """Return what lies at the top of the file system and is not the system's. Links stay: they
    lead to something that is covered itself."""
    with os.scandir("/") as entries:
        return sorted(entry.path for entry in entries if entry.name not in SYSTEM and not entry.is_symlink())


def tool_roots(home: Path | None, path: str | None) -> list[str]:
    """Return the folders of programs that lie outside the system: those of `path` (as in PATH; None
    for our own) and the usual ones in the home folder."""
    path = os.environ.get("PATH", "") if path is None else path
    return list(_tool_roots(str(home) if home is not None else "", path, sys.base_prefix))


@lru_cache(maxsize=16)
def _tool_roots(home: str, path: str, ours: str) -> tuple[str, ...]:
    homes = {home, os.path.realpath(home)} if home else set()
    roots: dict[str, None] = {}
    for name in _TOOL_FOLDERS_IN_HOME if home else ():
        location = f"{home}/{name}"
        if os.path.exists(location):  # noqa: PTH110 - quick
            roots[location] = roots[os.path.realpath(location)] = None
    _add_prefix(ours, homes, roots)
    for entry in dict.fromkeys(path.split(os.pathsep)):
        if entry.startswith("/") and os.path.isdir(entry):  # noqa: PTH112 - quick
            _add_programs(entry, homes, roots)
    return tuple(roots)


def find_hidden_install(output: str, tools: Collection[str], roots: Collection[str]) -> str:
    """Return why a program of Python does not find a module: an editable install leads to a folder that
    cannot be seen. "" if it fails for another reason. `roots` are the folders of the run."""
    environments = (*tools, *map("{}/.venv".format, roots), *map("{}/venv".format, roots))
    for module in dict.fromkeys(_NO_MODULE.findall(output)):
        for folder in dict.fromkeys(_editable_folders(environments)):
            there = any(map(os.path.exists, (f"{folder}/{module}", f"{folder}/{module}.py")))
            if there and not _is_seen(os.path.realpath(folder), (*tools, *roots)):
                return f"{folder}, from where {module} is installed as editable, cannot be seen from inside"
    return ""


_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")


def _editable_folders(environments: Iterable[str]) -> Iterator[str]:
    """Yield the folders outside of them from which virtual environments import."""
    for packages in chain.from_iterable(
        Path(environment).glob("lib/python3*/site-packages") for environment in environments
    ):
        for file in packages.glob("*.pth"):
            yield from (line.strip() for line in _lines(str(file)) if line.startswith("/"))
        for file in packages.glob("*.dist-info/direct_url.json"):
            # Where the installer put code and no path into the .pth file, this still names the project.
            project = re.search(r'"file://(/[^"]+)"', "".join(_lines(str(file))))
            if project is not None:
                yield from (unquote(project[1]), unquote(project[1]) + "/src")


def repository_of(root: str) -> list[str]:
    """Return the repository of a linked worktree or a submodule. Its `.git` is a file, which anyone may
    have written, so it counts only if the repository names this folder itself."""
    line = next(iter(_lines(f"{root}/.git")), "")
    if not line.startswith("gitdir: "):
        return []
    own = os.path.realpath(os.path.join(root, line.removeprefix("gitdir: ").strip()))  # noqa: PTH118 - quick
    named = next(iter(_lines(f"{own}/gitdir")), "")
    common, _, name = own.rpartition("/worktrees/")
    if common and "/" not in name and named and _is_same(own, named, f"{root}/.git"):
        return [common]
    for line in _lines(f"{own}/config"):
        key, _, value = line.partition("=")
        if key.strip().lower() == "worktree" and _is_same(own, value.strip().strip('"'), root):
            return [own]
    return []


def _is_same(base: str, named: str, path: str) -> bool:
    """Return whether a path, as a file in `base` gives it, is this one."""
    return os.path.realpath(os.path.join(base, named)) == os.path.realpath(path)  # noqa: PTH118 - quick


def _add_programs(folder: str, homes: set[str], roots: dict[str, None]) -> None:
    """Add a folder of programs, and where its links lead: one more step for each virtual environment."""
    if not _is_system(folder):
        _add_prefix(_prefix(folder, homes), homes, roots)
    elif not folder.startswith("/usr/local/"):
        # Packages of the system lead to the system.
        return
    for target in _link_targets(folder):
        if not _is_seen(target, roots):
            _add_prefix(_prefix(os.path.dirname(target), homes), homes, roots)  # noqa: PTH120 - quick


def _add_prefix(prefix: str, homes: set[str], roots: dict[str, None]) -> None:
    """Add a prefix, and that of the interpreter it was made with, if it is a virtual environment."""
    for location in (prefix, os.path.realpath(prefix)):
        if not _is_system(location):
            roots[location] = None
    for line in _lines(f"{prefix}/pyvenv.cfg"):
        key, _, value = line.partition("=")
        base = value.strip()
        if key.strip() == "home" and base.startswith("/") and not _is_seen(os.path.realpath(base), roots):
            _add_prefix(_prefix(os.path.realpath(base), homes), homes, roots)


def _prefix(folder: str, homes: set[str]) -> str:
    """Return `X` for `X/bin`, unless that would show a whole home folder or top folder."""
    above, _, name = folder.rstrip("/").rpartition("/")
    if name not in _PROGRAM_FOLDER_NAMES or above.count("/") < 2:
        return folder
    if above.startswith("/home/") and above.count("/") == 2:
        return folder
    for home in homes:
        if f"{home}/".startswith(above + "/") or above == f"{home}/.local":
            return folder
    return above


def _link_targets(folder: str) -> Iterator[str]:
    """Yield where the links of a folder lead in the end."""
    try:
        with os.scandir(folder) as entries:
            links = [entry.path for _, entry in zip(range(_MAX_LINKS), entries, strict=False) if entry.is_symlink()]
    except OSError:
        return
    for link in links:
        target = os.path.realpath(link)
        if not _is_system(target) and os.path.isfile(target):  # noqa: PTH113 - quick
            yield target


def _is_system(path: str) -> bool:
    return path.split("/", 2)[1] in SYSTEM


def _is_seen(path: str, roots: Iterable[str]) -> bool:
    return _is_system(path) or any(path == root or path.startswith(root + "/") for root in roots)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(errors="replace").splitlines()
    except (OSError, ValueError):
        return []


_SECRET_WORDS = """
TOKEN TOKENS KEY KEYS APIKEY SECRET SECRETS PASSWORD PASSWORDS PASSWD PASSWRD PSWD PASS PASSPHRASE PASSCODE
PASSKEY PWD PW CRED CREDS CREDENTIAL CREDENTIALS AUTH AUTHORIZATION COOKIE COOKIES PRIVATE DSN JWT BEARER PAT
OTP TOTP PIN MNEMONIC SALT CONNECTIONSTRING CONNSTR SAS SESSIONID
""".split()
"""Between underscores: `MYSQL_PWD`, `DB_CRED`, `MY_API_KEY_2`."""

_SECRET_PARTS = """
PASSWORD SECRET APIKEY API_KEY ACCESSKEY PRIVATEKEY SSHKEY SIGNINGKEY AUTHKEY _TOKEN WEBHOOK CONNECTION_STRING CONN_STR
""".split()
"""Anywhere in a name: `PGPASSWORD`."""

_SECRET_ENDS = "PASS PASSWD PWD TOKEN CREDS CREDENTIALS".split()
"""At the end of a name, after letters: `SSHPASS`, `DBPWD`. `PWD` and `OLDPWD` themselves stay."""

_SECRET_OWNERS = """
AWS AZURE GOOGLE GCLOUD GCP KUBE VAULT DOCKER ANTHROPIC OPENAI GEMINI GITHUB GITLAB HF NPM_CONFIG__
""".split()
"""Services whose variables are all kept back: `AWS_PROFILE`."""

_SECRET_NAME = re.compile(
    rf"(?:^|_)(?:{'|'.join(_SECRET_WORDS)})(?:_|\d*$)|{'|'.join(_SECRET_PARTS)}|"
    rf"[A-Z](?:{'|'.join(_SECRET_ENDS)})\d*$|^(?:{'|'.join(_SECRET_OWNERS)})_?",
    re.IGNORECASE,
)
_FOLDER_VARIABLES = frozenset({"PWD", "OLDPWD"})
_DATABASE_NAME = re.compile(
    r"(?:DATABASE|DB|REDIS|MONGO(?:DB)?|POSTGRES(?:QL)?|MYSQL|AMQP|BROKER|SENTRY)_?(?:URL|URI|DSN)$", re.IGNORECASE
)
_WITH_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
_LOADS_CODE = re.compile(
    r"^(?:LD_|DYLD_|GCONV_PATH$|MALLOC_|GLIBC_TUNABLES$|BASH_ENV$|ENV$|BASH_FUNC_|SHELLOPTS$|BASHOPTS$|PS4$|"
    r"PROMPT_COMMAND$|PYTHON(?:STARTUP|HOME|PATH|INSPECT|BREAKPOINT|USERBASE)$|PERL5(?:LIB|OPT|DB)$|PERLLIB$|RUBYOPT$|"
    r"RUBYLIB$|NODE_OPTIONS$|NODE_PATH$|JAVA_TOOL_OPTIONS$|_JAVA_OPTIONS$|JDK_JAVA_OPTIONS$|GIT_|SUDO_|LESSOPEN$|"
    r"LESSCLOSE$|EDITOR$|VISUAL$|BROWSER$|SSH_|GPG_|DBUS_|DISPLAY$|WAYLAND_DISPLAY$|XAUTHORITY$|XDG_RUNTIME_DIR$|"
    r"XDG_SESSION|TMUX|STY$|SYSTEMD_|NOTIFY_SOCKET$|LISTEN_|JOURNAL_STREAM$|INVOCATION_ID$|VSCODE_|TERM_SESSION_ID$)"
)
_HARMLESS_GIT = frozenset({"GIT_PAGER", "GIT_EDITOR", "GIT_TERMINAL_PROMPT"})
_PROXY_NAME = re.compile(r"^(?:https?|all|ftp|no)_proxy$", re.IGNORECASE)


def confined_environment(
    environment: Mapping[str, str], scratch: Path, *, keep: Collection[str], proxy: str | None, offline: bool
) -> dict[str, str]:
    """Return the variables of a confined program. `keep` names variables that stay whatever they are
    called; `proxy` is the only way out."""
    confined = {name: value for name, value in environment.items() if name in keep or not _is_withheld(name, value)}
    if offline:
        confined = {name: value for name, value in confined.items() if not _PROXY_NAME.match(name)}
    confined.update(_cache_variables(scratch))
    confined["PYTEST_ADDOPTS"] = f"{confined.get('PYTEST_ADDOPTS', '')} -o cache_dir={scratch}/cache/pytest".strip()
    return with_proxy(confined, proxy)


def with_proxy(environment: Mapping[str, str], proxy: str | None) -> dict[str, str]:
    proxied = dict(environment)
    if proxy is not None:
        proxied.update(dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), proxy))
        proxied["no_proxy"] = proxied["NO_PROXY"] = "localhost,127.0.0.1,::1"
    return proxied


def _is_withheld(name: str, value: str) -> bool:
    if name in _HARMLESS_GIT or name in _FOLDER_VARIABLES or name.startswith("RETINUE_RUN_"):
        return False
    return bool(
        _SECRET_NAME.search(name)
        or _DATABASE_NAME.search(name)
        or _LOADS_CODE.match(name)
        or _WITH_PASSWORD.search(value)
        or name.startswith("RETINUE_")
    )


def _cache_variables(scratch: Path) -> dict[str, str]:
    """Return where common tools put caches and temporary files, so that reading commands need nothing else."""
    cache = str(scratch / "cache")
    return {
        **dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(scratch)),
        "XDG_CACHE_HOME": cache,
        "XDG_STATE_HOME": f"{cache}/state",
        "PYTHONPYCACHEPREFIX": f"{cache}/pycache",
        "PIP_CACHE_DIR": f"{cache}/pip",
        "UV_CACHE_DIR": f"{cache}/uv",
        "RUFF_CACHE_DIR": f"{cache}/ruff",
        "MYPY_CACHE_DIR": f"{cache}/mypy",
        "COVERAGE_FILE": f"{cache}/coverage",
        "npm_config_cache": f"{cache}/npm",
        "GOCACHE": f"{cache}/go",
        "HISTFILE": "/dev/null",
        "LESSHISTFILE": "/dev/null",
        "GIT_OPTIONAL_LOCKS": "0",
    }
