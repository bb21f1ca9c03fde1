"""What a confined program may know from its environment, and where it is told to write.

Values that are known to be secret have been taken out before; here names decide, because nobody
knows the shape of every secret. Variables that make programs load code or look elsewhere go, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

_SECRET = re.compile(
    r"(?:^|_)(?:TOKENS?|KEYS?|APIKEY|SECRETS?|PASSWORDS?|PASSWD|PASS|PASSPHRASE|CREDENTIALS?|CREDS|AUTH|COOKIES?|"
    r"PRIVATE|DSN|JWT|BEARER|PAT)(?:_|$)|PASSWORD|SECRET|APIKEY|_TOKEN|ACCESSKEY|WEBHOOK|"
    r"^(?:AWS|AZURE|GOOGLE|GCLOUD|GCP|KUBE|VAULT|DOCKER|ANTHROPIC|OPENAI|GEMINI|GITHUB|GITLAB|HF|NPM_CONFIG__)_?",
    re.IGNORECASE,
)
_DATABASE = re.compile(
    r"(?:DATABASE|REDIS|MONGO(?:DB)?|POSTGRES(?:QL)?|MYSQL|AMQP|BROKER|SENTRY)_?(?:URL|URI|DSN)$", re.IGNORECASE
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
    return with_proxy(kept, proxy)


def with_proxy(environment: Mapping[str, str], proxy: str | None) -> dict[str, str]:
    kept = dict(environment)
    if proxy is not None:
        kept.update(dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), proxy))
        kept["no_proxy"] = kept["NO_PROXY"] = "localhost,127.0.0.1,::1"
    return kept


def _goes(name: str, value: str) -> bool:
    if name in _HARMLESS_GIT or name.startswith("RETINUE_RUN_"):
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
