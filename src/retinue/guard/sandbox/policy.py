"""What a confined program may do, before anything is said about how that is enforced."""

from __future__ import annotations

import os
from dataclasses import field
from pathlib import Path
from typing import Literal

from retinue.core.lean import dataclass

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
_SECRET_SYSTEM = """
/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/sudoers.d /etc/security/opasswd /etc/ssl/private
/etc/pki/tls/private /etc/letsencrypt /etc/krb5.keytab /etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_ecdsa_key
/etc/ssh/ssh_host_ed25519_key /etc/ssh/ssh_host_dsa_key /etc/wireguard /etc/openvpn /etc/ppp/chap-secrets
/etc/NetworkManager/system-connections /etc/kubernetes /etc/rancher /etc/docker/key.json
/etc/mysql/debian.cnf /run/secrets
""".split()


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """None lifts a limit. Memory and processor time are per process, as the kernel counts them; the
    scratch folder is counted as a whole, by the launcher."""

    processes: int | None = 512
    memory_bytes: int | None = 8 * GIB
    cpu_seconds: int | None = 3600
    file_bytes: int | None = 4 * GIB
    scratch_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPolicy:
    """What may be written: with `change="listed"` the `writable` folders and a scratch folder; with
    `change="all"` whatever the process may write anyway. In both cases `readonly` paths stay as
    they are.

    What may be read: with `reach="all"` everything; with `reach="system"` the system, the user's
    tools (`environment.py`), and what is `shown` or `writable`. In both cases `hidden` paths look
    empty, but for `shown` folders in them, which are made if they are missing.

    Another path that does not exist is left out. A path that is both hidden and read-only is hidden.

    `change="all"` is for commands that somebody has allowed. It sets no limits, filters nothing and
    passes the environment on as it is; it only hides and protects paths, so that the command cannot
    undo that. Without such paths the command is started as it is."""

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
    home: Path | None = None
    """The user's home folder: the places in it where people keep keys are hidden."""
    path: str | None = None
    """The PATH of programs, whose folders are shown with `reach="system"`; None for our own."""
    namespaces: Namespaces = "try"


def secret_places(home: Path) -> tuple[Path, ...]:
    """Where people keep keys, as far as it exists here."""
    return existing_paths(str(home), (*_SECRET_PLACES, *_SECRET_SYSTEM))


def existing_paths(folder: str, places: tuple[str, ...]) -> tuple[Path, ...]:
    """Without a `Path` for each of them, which takes longer than asking the kernel."""
    candidates = [os.path.join(folder, place) for place in places]  # noqa: PTH118
    return tuple(Path(path) for path in candidates if os.path.exists(path))  # noqa: PTH110
