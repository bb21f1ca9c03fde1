"""What a confined program may know from its environment, and where it is told to write.

Values that are known to be secret have been taken out before; here names decide, because nobody
knows the shape of every secret. Variables that make programs load code or look elsewhere go as
well. The table in `docs/trust.md` is for users, and a test holds it to this file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

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

_SECRET = re.compile(
    rf"(?:^|_)(?:{'|'.join(_SECRET_WORDS)})(?:_|\d*$)|{'|'.join(_SECRET_PARTS)}|"
    rf"[A-Z](?:{'|'.join(_SECRET_ENDS)})\d*$|^(?:{'|'.join(_SECRET_OWNERS)})_?",
    re.IGNORECASE,
)
_PLACES = frozenset({"PWD", "OLDPWD"})
_DATABASE = re.compile(
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
_PROXIES = re.compile(r"^(?:https?|all|ftp|no)_proxy$", re.IGNORECASE)


def confined_environment(
    environment: Mapping[str, str], scratch: Path, *, keep: Collection[str], proxy: str | None, offline: bool
) -> dict[str, str]:
    """`keep` names variables that stay whatever they are called. `proxy` is the only way out."""
    kept = {name: value for name, value in environment.items() if name in keep or not _goes(name, value)}
    if offline:
        kept = {name: value for name, value in kept.items() if not _PROXIES.match(name)}
    kept.update(_places(scratch))
    kept["PYTEST_ADDOPTS"] = f"{kept.get('PYTEST_ADDOPTS', '')} -o cache_dir={scratch}/cache/pytest".strip()
    return with_proxy(kept, proxy)


def with_proxy(environment: Mapping[str, str], proxy: str | None) -> dict[str, str]:
    kept = dict(environment)
    if proxy is not None:
        kept.update(dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), proxy))
        kept["no_proxy"] = kept["NO_PROXY"] = "localhost,127.0.0.1,::1"
    return kept


def _goes(name: str, value: str) -> bool:
    if name in _HARMLESS_GIT or name in _PLACES or name.startswith("RETINUE_RUN_"):
        return False
    return bool(
        _SECRET.search(name)
        or _DATABASE.search(name)
        or _LOADS_CODE.match(name)
        or _WITH_PASSWORD.search(value)
        or name.startswith("RETINUE_")
    )


def _places(scratch: Path) -> dict[str, str]:
    """Caches and temporary files of common tools, so that reading commands need nothing else."""
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
