"""Which environment variables may be set beside a command without changing what it is."""

from __future__ import annotations

from retinue.guard.permissions.marks import is_known

_HARMLESS = frozenset(
    "LANG LANGUAGE TZ TERM COLORTERM NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE COLUMNS LINES CI DEBUG VERBOSE"
    " NODE_ENV RAILS_ENV RACK_ENV DJANGO_DEBUG PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONIOENCODING PYTHONUTF8"
    " PYTHONHASHSEED RUST_BACKTRACE RUST_LOG GOOS GOARCH CGO_ENABLED GIT_TERMINAL_PROMPT DEBIAN_FRONTEND"
    " PIP_NO_INPUT PIP_DISABLE_PIP_VERSION_CHECK SOURCE_DATE_EPOCH HOMEBREW_NO_AUTO_UPDATE".split()
)

_DANGEROUS = frozenset(
    "PATH ENV IFS CDPATH HOME SHELL SHELLOPTS PS0 PS1 PS2 PS4 PROMPT_COMMAND GLOBIGNORE EXECIGNORE FPATH ZDOTDIR"
    " EDITOR VISUAL PAGER MANPAGER BROWSER LESSOPEN LESSCLOSE CC CXX LD AR MAKEFLAGS MFLAGS GNUMAKEFLAGS TMPDIR"
    " CLASSPATH PERLLIB SUDO_ASKPASS SSH_ASKPASS TAR_OPTIONS GREP_OPTIONS GOFLAGS RUSTC RUSTC_WRAPPER"
    " RIPGREP_CONFIG_PATH DIFFPROG FCEDIT INPUTRC TERMINFO HOSTALIASES XDG_CONFIG_HOME".split()
)
_DANGEROUS_STARTS = (
    "LD_",
    "DYLD_",
    "BASH",
    "GIT_",
    "PYTHON",
    "NODE_",
    "NPM_",
    "npm_",
    "PERL5",
    "RUBY",
    "GEM_",
    "JAVA",
    "_JAVA",
    "JDK_",
    "MAVEN",
    "GRADLE",
    "CARGO",
    "PIP_",
    "UV_",
    "DOCKER",
    "COMPOSE",
    "KUBE",
    "AWS_",
    "LESS",
)


def is_harmless(name: str) -> bool:
    """It may stand before a command that a rule allows."""
    return is_known(name) and (name in _HARMLESS or name.startswith("LC_"))


def is_dangerous(name: str) -> bool:
    """Setting it for all that follows changes which programs run, or what they load."""
    if not is_known(name):
        return True
    return (name in _DANGEROUS or name.startswith(_DANGEROUS_STARTS)) and not is_harmless(name)
