"""What well-known programs do with their arguments: which only read, which change which files."""

from __future__ import annotations

from retinue.guard.permissions.marks import HOLE, is_known
from retinue.guard.permissions.shell.sedcall import edits_only, read_call
from retinue.guard.permissions.shell.step import Step

SPEAKING = frozenset(
    {"echo", "printf", "true", "false", ":", "sleep", "seq", "yes", "exit", "return", "break", "continue"}
)
"""They take words for what they are, never for files."""

_READERS = frozenset(
    "cat head tail wc nl tac rev cut paste tr fold fmt expand unexpand comm cmp diff join column od hexdump strings"
    " md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum base64 base32 grep egrep fgrep zgrep"
    " ls dir vdir stat file du df basename dirname realpath readlink pwd whoami id groups uname arch nproc uptime free"
    " ps which whereis type cal printenv tty locale getconf test [ expr jq wait jobs times"
    " zcat bzcat xzcat lsof colordiff numfmt tsort cd pushd popd dirs let unset shift read".split()
)
"""Without an option of `_NOT_READING` they change nothing and reach nobody."""

_NOT_READING: dict[str, tuple[str, ...]] = {
    "du": ("--files0-from",),
    "file": ("-C", "--compile"),
    "rg": ("--pre", "--hostname-bin", "--search-zip", "-z"),
    "tree": ("-o", "--output", "-R"),
    "sort": ("-o", "--output", "--compress-program", "-T", "--temporary-directory", "--files0-from"),
    "find": (
        *("-delete", "-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprint0", "-fprintf", "-fls", "-files0-from"),
    ),
    "fd": ("-x", "-X", "--exec", "--exec-batch"),
    "column": ("--output",),
    "ps": (),
    "wc": ("--files0-from",),
}
_GIT_READING = frozenset(
    "status log diff show blame rev-parse describe ls-files ls-tree shortlog rev-list cat-file merge-base name-rev"
    " grep whatchanged count-objects for-each-ref show-ref diff-tree diff-index diff-files check-ignore var".split()
)
_GIT_NOT_READING = (
    "--output",
    "--ext-diff",
    "--textconv",
    "-O",
    "--open-files-in-pager",
    "--exec-path",
    "--upload-pack",
)
_WITH_VALUE: dict[str, frozenset[str]] = {
    "head": frozenset({"-n", "-c"}),
    "tail": frozenset({"-n", "-c"}),
    "grep": frozenset({"-e", "-m", "-A", "-B", "-C"}),
    "rg": frozenset({"-e", "-g", "-t", "-m", "-A", "-B", "-C"}),
    "cut": frozenset({"-d", "-f", "-c", "-b"}),
}

EDITORS = frozenset({"mkdir", "touch", "rm", "rmdir", "mv", "cp", "sed"})
"""What acceptEdits takes for edits."""
WRITERS = EDITORS | frozenset(
    {"tee", "ln", "install", "dd", "truncate", "chmod", "chown", "chgrp", "rsync", "unlink", "shred", "patch", "split"}
    | {"csplit", "mkfifo", "mknod", "gsed", "setfacl", "link", "scp", "sponge", "unzip", "tar", "gzip", "gunzip"}
)


def operands(step: Step) -> tuple[str, ...]:
    """The arguments that can be paths. `--name=value` and `of=value` count by their value."""
    call = read_call(step.words[1:]) if step.name == "sed" else None
    if call is not None:
        return call.files
    valued = _WITH_VALUE.get(step.name, frozenset())
    found: list[str] = []
    only_paths = skip = False
    for word in step.words[1:]:
        if skip:
            skip = False
        elif only_paths or not word.startswith("-") or word == "-":
            found.append(_after_equals(word) if not only_paths else word)
        elif word == "--":
            only_paths = True
        elif word in valued:
            skip = True
        elif "=" in word:
            found.append(word.partition("=")[2])
        elif len(word) > 2 and "/" in word:
            found.append(word[word.index("/") :])
    return tuple(found)


def _after_equals(word: str) -> str:
    name, equals, rest = word.partition("=")
    return rest if equals and name in ("of", "if", "path", "file") else word


def is_reader(step: Step) -> bool:
    """Whether the command only reads, by its name and options. Where it reads is not asked."""
    name = step.plain_name
    if name == "git":
        return _git_reads(step.words[1:])
    if name == "sed":
        call = read_call(step.words[1:])
        return call is not None and not call.in_place and edits_only(call)
    if name in ("env", "hostname"):
        return len(step.words) == 1
    if name == "date":
        return _date_reads(step.words[1:])
    if name == "command":
        return step.words[1:2] in (("-v",), ("-V",))
    if name in SPEAKING:
        return not (name == "printf" and any(word.startswith("-v") for word in step.words[1:2]))
    if name in ("uniq", "xxd"):
        return len(operands(step)) <= 1 and not any(word.startswith("-r") for word in step.words[1:])
    if name in ("export", "declare", "local", "readonly", "typeset", "set"):
        return _declares(step)
    if name not in _READERS and name not in _NOT_READING:
        return _asks_version(step)
    forbidden = _NOT_READING.get(name, ())
    return not any(_has_option(word, option) for word in step.words[1:] for option in forbidden)


def _has_option(word: str, option: str) -> bool:
    """The option itself, with a value joined on, cut short, or in a cluster of letters. A word
    that is not known may be any of them."""
    if not is_known(word):
        return word.startswith((HOLE, "-"))
    if option.startswith("--"):
        name = word.partition("=")[0]
        return word.startswith("--") and len(name) > 2 and option.startswith(name)
    if len(option) == 2:
        return word.startswith("-") and not word.startswith("--") and option[1] in word[1:]
    return word == option


def _git_reads(words: tuple[str, ...]) -> bool:
    if not words or not all(is_known(word) or not word.startswith((HOLE, "-")) for word in words):
        return False
    rest = words[1:] if words[0] in ("--no-pager", "-P") else words
    if not rest or any(word.startswith(_GIT_NOT_READING) or _cut_short(word) for word in rest[1:]):
        return False
    if "--help" in rest:
        return False  # a viewer of the settings' choice shows it
    verb, *more = rest
    if verb in _GIT_READING:
        return True
    if verb == "branch":
        return all(word in ("-a", "-r", "-v", "-vv", "--all", "--list", "--show-current", "--remotes") for word in more)
    if verb == "remote":
        return not more or more == ["-v"] or more[:1] == ["get-url"]
    if verb in ("tag", "stash"):
        return (verb == "tag" and not more) or (more[:1] in (["-l"], ["--list"], ["list"]) and len(more) <= 2)
    if verb == "config":
        return more[:1] in (["--get"], ["--list"], ["-l"], ["--get-all"])
    return verb in ("--version", "version") and not more


def _cut_short(word: str) -> bool:
    """`--open=…` for --open-files-in-pager: git takes what is left of an option for all of it."""
    name = word.partition("=")[0]
    return len(name) > 3 and name != "--text" and any(option.startswith(name) for option in _GIT_NOT_READING)


def _date_reads(words: tuple[str, ...]) -> bool:
    """Anything that is not said to be a format, or a time to show, sets the clock."""
    valued = False
    for word in words:
        if valued or word.startswith(("+", "--date=", "--reference=", "-I", "--iso-8601", "--rfc-")):
            valued = False
        elif word in ("-d", "--date", "-r", "--reference"):
            valued = True
        elif word not in ("-u", "--utc", "--universal", "-R", "--help", "--version"):
            return False
    return True


def edited(step: Step) -> tuple[str, ...] | None:
    """The paths that one of the programs of acceptEdits changes; None where that is not clear."""
    name = step.plain_name
    if name not in EDITORS:
        return None
    if any(HOLE in word for word in step.words[1:]):
        return None
    if name == "sed":
        call = read_call(step.words[1:])
        return call.files if call is not None and edits_only(call) else None
    if name in ("cp", "mv") and any(word.startswith(("-t", "--target", "-S", "--suffix", "-Z")) for word in step.words):
        return None
    return operands(step)


def _declares(step: Step) -> bool:
    if step.plain_name == "set":
        return all(word.lstrip("-+").isalpha() or word in ("pipefail",) for word in step.words[1:])
    return not any(word.startswith("-") and set(word) & set("fFn") for word in step.words[1:])


def _asks_version(step: Step) -> bool:
    """Not cargo and rustc: a file of the project may say which program that is."""
    known = {"python", "python3", "node", "npm", "go", "java", "gcc", "make", "ruby", "bash", "pip"}
    return step.plain_name in known and step.words[1:] == ("--version",)
