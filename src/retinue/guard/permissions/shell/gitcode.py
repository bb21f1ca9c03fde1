"""Where git is handed commands: options, settings, aliases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from retinue.guard.permissions.marks import is_known

VALUED = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env", "--attr-source"}
)
"""Options before the verb that are followed by a word of their own."""

_FILTERS = frozenset(
    f"--{part}-filter" for part in ("env", "tree", "index", "parent", "msg", "commit", "tag-name", "setup")
)
_CODE: Mapping[str, frozenset[str]] = {
    "rebase": frozenset({"-x", "--exec"}),
    "clone": frozenset({"-u", "--upload-pack"}),
    "fetch": frozenset({"--upload-pack"}),
    "pull": frozenset({"--upload-pack"}),
    "ls-remote": frozenset({"--upload-pack", "--exec"}),
    "fetch-pack": frozenset({"--upload-pack", "--exec"}),
    "push": frozenset({"--receive-pack", "--exec"}),
    "send-pack": frozenset({"--receive-pack", "--exec"}),
    "archive": frozenset({"--exec"}),
    "difftool": frozenset({"-x", "--extcmd"}),
    "grep": frozenset({"-O", "--open-files-in-pager"}),
    "filter-branch": _FILTERS,
    "send-email": frozenset({"--sendmail-cmd", "--to-cmd", "--cc-cmd", "--header-cmd", "--smtp-server"}),
}
"""Options by verb whose value is text for a shell."""
_HARMLESS = ("user.", "color.", "init.defaultbranch", "commit.gpgsign", "advice.", "pull.rebase", "push.default")
_VERBS = frozenset(
    "add am annotate apply archive bisect blame branch bugreport bundle cat-file check-attr check-ignore check-mailmap"
    " check-ref-format checkout checkout-index cherry cherry-pick clean clone column commit commit-graph commit-tree"
    " config count-objects credential describe diagnose diff diff-files diff-index diff-tree difftool fast-export"
    " fast-import fetch fetch-pack filter-branch fmt-merge-msg for-each-ref format-patch fsck gc get-tar-commit-id grep"
    " hash-object help index-pack init instaweb interpret-trailers log ls-files ls-remote ls-tree mailinfo mailsplit"
    " maintenance merge merge-base merge-file merge-index merge-one-file merge-tree mergetool mktag mktree"
    " multi-pack-index mv name-rev notes pack-objects pack-redundant pack-refs patch-id prune prune-packed pull push"
    " quiltimport range-diff read-tree rebase reflog remote repack replace request-pull rerere reset restore rev-list"
    " rev-parse revert rm send-email send-pack shortlog show show-branch show-index show-ref sparse-checkout stage"
    " stash status stripspace submodule subtree switch symbolic-ref tag unpack-file unpack-objects update-index"
    " update-ref update-server-info upload-archive upload-pack var verify-commit verify-pack verify-tag version"
    " whatchanged worktree write-tree lfs svn gui citool gitk backfill replay refs".split()
)
_READS_SETTING = ("--get", "--get-all", "--get-regexp", "--list", "-l", "list", "get", "--show-origin")


def without_globals(words: tuple[str, ...]) -> tuple[str, ...]:
    """The verb and what follows it."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in VALUED else 1
    return words[at:]


def doubts(words: tuple[str, ...]) -> Iterator[str]:
    """What cannot be known of a call of git; `words` are its arguments."""
    rest = without_globals(words)
    for at, word in enumerate(words[: len(words) - len(rest)]):
        if word in ("-c", "--config-env"):
            yield from _setting(words[at + 1] if at + 1 < len(words) else "")
        elif word.startswith("-c"):
            yield from _setting(word[2:])
        elif word.startswith(("--exec-path=", "--config-env=")):
            yield "git is told where its commands are"
    if not rest:
        return
    verb = rest[0]
    if is_known(verb) and verb not in _VERBS and not verb.startswith("-"):
        yield f"git {verb} is no command of git's own"
    if verb == "config" and not any(word in _READS_SETTING for word in rest[1:3]):
        named = [word for word in rest[1:] if not word.startswith("-") and word not in ("set", "unset")]
        yield from _setting(named[0]) if len(named) > 1 else ()
    if verb == "clone" and any(word == "-c" or _means(word.partition("=")[0], "--config") for word in rest):
        yield "git clone sets what can be a command"
    if any("ext::" in word for word in rest):
        yield "git is handed a command as an address"


def code(words: tuple[str, ...]) -> Iterator[str]:
    """Texts that a call of git hands to a shell."""
    rest = without_globals(words)
    options = _CODE.get(rest[0], frozenset()) if rest else frozenset()
    for at, word in enumerate(rest):
        name, equals, given = word.partition("=")
        meant = any(_means(name, option) for option in options)
        if meant and equals:
            yield given
        elif meant:
            yield from rest[at + 1 : at + 2]
        elif len(word) > 2 and word[:2] in options:
            yield word[2:]
    if rest[:1] == ("submodule",) and "foreach" in rest:
        yield " ".join(each for each in rest[rest.index("foreach") + 1 :] if not each.startswith("--"))


def _means(name: str, option: str) -> bool:
    """Git takes the beginning of a long option for all of it."""
    return name == option or (len(name) > 3 and name.startswith("--") and option.startswith(name))


def _setting(setting: str) -> Iterator[str]:
    """`git -c name=value`: some settings are commands."""
    name, _, given = setting.partition("=")
    name = name.lower()
    harmless = name.startswith(_HARMLESS)
    harmless = harmless or name in ("core.quotepath", "core.autocrlf", "log.showsignature", "gc.auto", "core.filemode")
    if not harmless and not (name == "core.pager" and given in ("", "cat")):
        yield "git -c sets what can be a command"
