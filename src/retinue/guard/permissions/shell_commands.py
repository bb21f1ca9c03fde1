"""The effects of well-known programs, by their arguments.

Nothing here is a guard on a host with walls: a command that nobody allowed runs inside them,
whatever this table says of it. It decides what to ask about beforehand, because the walls would
stop it anyway, and on a host without walls the few commands that run unasked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from retinue.guard.permissions.rule import is_known
from retinue.guard.permissions.shell_step import SHELLS, WRAPPERS, Step, carries_code, has_option

SPEAKING = frozenset({"echo", "printf", "true", "false", ":", "sleep", "seq", "exit"})
"""Programs that never take their arguments for files."""

_READERS = frozenset(
    "cat head tail wc nl tac rev cut paste fold fmt expand unexpand comm cmp od strings md5sum sha1sum sha256sum"
    " sha512sum b2sum cksum grep egrep fgrep ls dir stat du df basename dirname realpath readlink pwd whoami id groups"
    " uname arch nproc uptime free which whereis type tty locale getconf test [ expr cd diff rg find sort tr"
    " hostname date command python python3 node npm go java gcc make ruby bash pip".split()
)
_MORE_THAN_READING: dict[str, tuple[str, ...]] = {
    "find": tuple("-delete -exec -execdir -ok -okdir -fprint -fprint0 -fprintf -fls -files0-from".split()),
    "rg": ("--pre", "--hostname-bin", "--search-zip", "-z", "-L", "--follow"),
    **dict.fromkeys(("grep", "egrep", "fgrep"), ("-R", "--dereference-recursive")),
    "diff": ("-r", "--recursive"),
    "sort": ("-o", "--output", "--compress-program", "-T", "--temporary-directory", "--files0-from"),
    "wc": ("--files0-from",),
    "du": ("--files0-from",),
}
"""Options that write, start programs, follow links elsewhere, or read names from a file."""
_READ_ONLY_WITH: dict[str, str] = {
    **dict.fromkeys("python python3 node npm go java gcc make ruby bash pip".split(), "--version"),
    "hostname": "",
    "date": r"(?:-u |--utc )?(?:\+|--date=|-I|--iso-8601|--rfc-)(?:(?! -).)*|-u|--utc|-R|",
    "command": r"-[vV] .*",
}
"""All that these may be given. Not cargo and rustc: a file of the project may say which program that is."""
_NO_PATHS = (
    SPEAKING
    | _READ_ONLY_WITH.keys()
    | frozenset(
        "test [ expr which type whereis basename dirname whoami id uname tr locale getconf nproc groups".split()
    )
)
_SEARCHERS = frozenset({"grep", "egrep", "fgrep", "rg"})
_NAMED = re.compile(r"\A(?:of|if|path|file)=")

EDITORS = frozenset({"mkdir", "touch", "rm", "rmdir", "mv", "cp", "sed"})
"""The programs that acceptEdits takes for edits."""
_EDITOR_OPTIONS = re.compile(r"-[rRfipvanuTdlLHPs]+|--(?:recursive|force|parents|verbose|archive|no-clobber|update)")
_SED_IN_PLACE = re.compile(r"-(?:i|n|E|r|s|z|ni|Ei|ri|in|iE)|-i\.[A-Za-z0-9]+|--in-place|--quiet")
_SED_SUBSTITUTION = re.compile(
    r"(?:\d+(?:,(?:\d+|\$))?|/[^/\\\n]*/)?(?:s([/|,#])(?:(?!\1)[^\\\n])*\1(?:(?!\1)[^\\\n&])*\1[gIp0-9]*|[dp])"
)

WRITERS = EDITORS | frozenset(
    "tee ln install dd truncate chmod chown chgrp rsync unlink shred patch split csplit mkfifo mknod gsed setfacl"
    " link scp sponge unzip tar gzip gunzip".split()
)
_CHANGERS = WRITERS - {"sed", "tar", "sponge", "split", "patch"} | frozenset(
    "curl wget ssh sftp ftp telnet nc ncat ping dig nslookup sudo doas su kill pkill killall systemctl service"
    " mount umount apt apt-get dnf yum pacman apk brew snap docker podman kubectl helm terraform gh glab aws gcloud az"
    " crontab at useradd passwd reboot shutdown mkfs".split()
)
"""Programs that change things, or reach other hosts, whatever their arguments are."""
_CHANGING_VERBS: dict[str, frozenset[str]] = {
    "git": frozenset(
        "add am apply bisect checkout cherry-pick clean clone commit fetch gc init merge mv pull push rebase reset"
        " restore revert rm stash submodule switch worktree prune repack".split()
    ),
    "npm": frozenset("install i ci add remove uninstall update publish link dedupe init version login".split()),
    "pip": frozenset("install uninstall download wheel".split()),
    "uv": frozenset("add remove sync lock pip venv init publish".split()),
    "poetry": frozenset("add remove install update lock publish init".split()),
    "cargo": frozenset("add remove install publish update new init".split()),
    "go": frozenset("get install mod".split()),
    "gem": frozenset("install uninstall push".split()),
    "bundle": frozenset("install update add".split()),
    "make": frozenset("install clean deploy".split()),
}
_CHANGING_VERBS |= dict.fromkeys(("yarn", "pnpm", "bun"), _CHANGING_VERBS["npm"])
_CHANGING_VERBS |= dict.fromkeys(("pip3",), _CHANGING_VERBS["pip"])

_GIT_VALUED = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"})
_GIT_READING = frozenset(
    "status log diff show blame rev-parse describe ls-files ls-tree shortlog branch remote".split()
)
_GIT_HARMLESS = re.compile(
    r"--(?:oneline|stat|short|porcelain|patch|name-only|name-status|cached|staged|graph|all|decorate|numstat|shortstat"
    r"|no-color|abbrev-commit|follow|reverse|merges|no-merges|first-parent|show-current|verbose|list|branch|is-inside-work-tree"
    r"|show-toplevel|abbrev-ref|short=.*|format=.*|pretty=.*|since=.*|until=.*|author=.*|grep=.*|date=.*|unified=\d+"
    r"|max-count=\d+)|-[spbvwarn]+|-\d+|-U\d+|-n\d+|--"
)
_GIT_CODE_LONG = (
    "--open-files-in-pager --exec --extcmd --upload-pack --receive-pack --ext-diff --textconv --tree-filter"
    " --sendmail-cmd --index-filter --msg-filter --env-filter --commit-filter --tag-name-filter --parent-filter"
    " --output --config-env --exec-path --to-cmd --cc-cmd --header-cmd --smtp-server --template --config --strategy"
    " --gpg-sign --tool"
).split()
_GIT_CODE_LETTERS = {
    "grep": "O",
    "rebase": "x",
    "difftool": "x",
    "clone": "uc",
    "fetch": "u",
    "ls-remote": "u",
    "am": "S",
}
_GIT_CODE_VERBS = frozenset({"bisect", "submodule", "filter-branch", "send-email", "config", "hook", "maintenance"})
_GIT_VERBS = frozenset(
    "add am annotate apply archive bisect blame branch bundle cat-file check-attr check-ignore checkout cherry"
    " cherry-pick clean clone commit config count-objects describe diff diff-files diff-index diff-tree difftool fetch"
    " filter-branch for-each-ref format-patch fsck gc grep hash-object help init log ls-files ls-remote ls-tree"
    " merge merge-base mergetool mv name-rev notes pull push range-diff read-tree rebase reflog remote repack reset"
    " restore rev-list rev-parse revert rm shortlog show show-branch show-ref sparse-checkout stash status submodule"
    " switch symbolic-ref tag update-index update-ref var verify-commit verify-tag version whatchanged worktree lfs"
    " maintenance send-email hook --version".split()
)
_HARMLESS_VARIABLES = frozenset(
    "LANG LANGUAGE TZ TERM COLORTERM NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE COLUMNS LINES CI DEBUG VERBOSE"
    " NODE_ENV RAILS_ENV RACK_ENV DJANGO_DEBUG PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONIOENCODING PYTHONUTF8"
    " PYTHONHASHSEED RUST_BACKTRACE RUST_LOG GOOS GOARCH CGO_ENABLED GIT_TERMINAL_PROMPT DEBIAN_FRONTEND"
    " PIP_NO_INPUT PIP_DISABLE_PIP_VERSION_CHECK SOURCE_DATE_EPOCH HOMEBREW_NO_AUTO_UPDATE".split()
)

_CODE_VARIABLES = re.compile(
    r"(?:BASH|PS\d|PROMPT_|LD_|DYLD_|GIT_|PYTHON|NODE_|NPM_|npm_|PERL|RUBY|JAVA|_JAVA|JDK_|LESS|CARGO|RUSTC|XDG_|GEM_"
    r"|(?:PATH|ENV|IFS|HOME|SHELL|ZDOTDIR|EDITOR|VISUAL|PAGER|MANPAGER|BROWSER|CC|CXX|LD|MAKEFLAGS|TAR_OPTIONS|TMPDIR"
    r"|GREP_OPTIONS|RIPGREP_CONFIG_PATH|FCEDIT|INPUTRC|SUDO_ASKPASS|SSH_ASKPASS|CDPATH|GLOBIGNORE)$)"
)


def makes_programs_load_code(name: str) -> bool:
    """Return whether setting it makes programs start others, or load code from elsewhere."""
    return not is_harmless_variable(name) and _CODE_VARIABLES.match(name) is not None


def is_harmless_variable(name: str) -> bool:
    """Return whether setting it beside a command leaves the command what it is."""
    return name in _HARMLESS_VARIABLES or name.startswith("LC_")


def sets_only_harmless(step: Step) -> bool:
    """Return whether all variables set for a command leave the command what it is."""
    return all(is_harmless_variable(name) for name, _ in step.assigned)


def operands(step: Step) -> tuple[str, ...]:
    """Return the arguments that can be paths. `--name=value` and `of=value` count by their value."""
    paths: list[str] = []
    only_paths = False
    for word in step.words[1:]:
        if only_paths or not word.startswith("-") or word == "-":
            paths.append(word if only_paths else _NAMED.sub("", word))
        elif word == "--":
            only_paths = True
        elif "=" in word:
            paths.append(word.partition("=")[2])
        elif len(word) > 2 and "/" in word:
            paths.append(word[word.index("/") :])
        elif len(word) > 2 and word[1] != "-" and "." in word[2:]:
            # `-f.env` names a file right after the letter of its option.
            paths.append(word[2:])
    return tuple(paths)


def searched_files(step: Step) -> tuple[str, ...]:
    """Return the operands that are files. The text that a search looks for is none."""
    paths = operands(step)
    if step.name in _SEARCHERS and not has_option(step.words, "-e", "-f", "--regexp", "--file"):
        return paths[1:]
    return paths


def read_paths(step: Step) -> tuple[str, ...] | None:
    """Return the paths that a command only reads; None for one that is not known to only read."""
    name = step.plain_name
    is_reader = name in _READERS or name in SPEAKING or name == "git"
    if step.inner or not is_reader or not sets_only_harmless(step):
        return None
    if name == "git":
        return _git_read_paths(step.words[1:])
    if not re.fullmatch(_READ_ONLY_WITH.get(name, ".*"), " ".join(step.words[1:]), re.DOTALL):
        return None
    for option in _MORE_THAN_READING.get(name, ()):
        if any(is_option(word, option) for word in step.words[1:]):
            return None
    if name in _NO_PATHS:
        return ()
    return operands(step)


def is_option(word: str, option: str) -> bool:
    """Match the option itself, with a value joined on, cut short, or in a cluster of letters."""
    if not is_known(word):
        return word.startswith("-")
    if option.startswith("--"):
        name = word.partition("=")[0]
        return word.startswith("--") and len(name) > 2 and option.startswith(name)
    if len(option) == 2:
        return word.startswith("-") and not word.startswith("--") and option[1] in word[1:]
    return word == option


def _git_read_paths(words: tuple[str, ...]) -> tuple[str, ...] | None:
    command = words[1:] if words[:1] in (("--no-pager",), ("-P",)) else words
    if command == ("--version",) or command == ("version",):
        return ()
    if not command or command[0] not in _GIT_READING or not all(map(is_known, command)):
        return None
    options, paths = _split_options(command[1:])
    if not all(map(_GIT_HARMLESS.fullmatch, options)):
        return None
    if command[0] in ("branch", "remote") and paths:
        return None
    return tuple(paths)


def edited_paths(step: Step) -> tuple[str, ...] | None:
    """Return the paths that one of the programs of acceptEdits changes; None where that is not clear."""
    name = step.plain_name
    if name not in EDITORS or step.assigned:
        return None
    if name == "sed":
        return _sed_edits(step.words[1:])
    for option in _split_options(step.words[1:])[0]:
        if option != "--" and not _EDITOR_OPTIONS.fullmatch(option):
            return None
    return operands(step)


def _sed_edits(words: tuple[str, ...]) -> tuple[str, ...] | None:
    """`sed -i s/a/b/ FILE…`: plain substitutions, which neither start programs nor write elsewhere."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        if not _SED_IN_PLACE.fullmatch(words[at]):
            return None
        at += 1
    if at >= len(words) or not _SED_SUBSTITUTION.fullmatch(words[at]):
        return None
    files = words[at + 1 :]
    return None if has_option(files, "-") else files


def needs_outside(step: Step) -> bool:
    """Return whether the sandbox would certainly stop it: it changes files or reaches other hosts."""
    name = step.name
    if step.inner or {"--version", "--help"} & set(step.words[1:]):
        return False
    if name in _CHANGERS:
        return True
    verbs = _CHANGING_VERBS.get(name)
    if verbs is not None:
        words = git_without_globals(step.words[1:]) if name == "git" else step.words[1:]
        verb, *arguments = _split_options(words)[1] or [""]
        # As in `git stash list`; `git config x` reads as well, and `git remote`.
        listing = name == "git" and arguments[:1] in (["list"], ["show"], ["status"], ["get-url"])
        sets = name == "git" and ((verb == "config" and len(arguments) > 1) or (verb == "remote" and bool(arguments)))
        return (verb in verbs or sets) and not listing and "--dry-run" not in words
    return name == "sed" and has_option(step.words[1:], "-i", "--in-place")


def _split_options(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the words that begin with a dash, and the others."""
    options: list[str] = []
    others: list[str] = []
    for word in words:
        if word.startswith("-"):
            options.append(word)
        else:
            others.append(word)
    return options, others


def git_without_globals(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the verb and what follows it."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _GIT_VALUED else 1
    return words[at:]


def git_starts_program(words: tuple[str, ...]) -> str:
    """Return why a call of git may start a program that its words choose; "" if it does not."""
    command = git_without_globals(words)
    before = words[: len(words) - len(command)]
    if has_option(before, "-c", "--config-env", "--exec-path"):
        return "git is given a setting, which can be a command"
    if not command:
        return ""
    verb = command[0]
    if verb not in _GIT_VERBS:
        return f"git {verb} may be an alias"
    if verb in _GIT_CODE_VERBS and not ({"status", "--list", "--get", "-l"} & set(command[1:3])):
        return f"git {verb} can start programs"
    letters = _GIT_CODE_LETTERS.get(verb, "")
    for word in command[1:]:
        name = word.partition("=")[0]
        if len(name) > 3 and name.startswith("--") and any(option.startswith(name) for option in _GIT_CODE_LONG):
            return f"git {verb} {name} can start a program"
        if word.startswith("-") and not word.startswith("--") and set(letters) & set(word[1:]):
            return f"git {verb} {word[:2]}… can start a program"
        if "ext::" in word:
            return "git is handed a command as an address"
    return ""


def why_opaque(name: str, words: tuple[str, ...]) -> str:
    """Return why the words of a command do not tell what it starts; "" if they do."""
    if name in SHELLS:
        return f"{name} carries out a file"
    if name in WRAPPERS and words[1:2] not in (("-v",), ("-V",)):
        return f"{name} starts a command that is not certain"
    if name == "git":
        return git_starts_program(words[1:])
    if carries_code(words):
        return f"{name} carries out text that is not a shell's"
    return ""
