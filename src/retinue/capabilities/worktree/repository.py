"""The repository of a worktree: it can read the user's history and change nothing of the user's.

A worktree that git links to the main checkout shares its branches, stash, config and objects: `git stash`,
`git branch -D` or `git gc` in one affects the other. So the copy gets a separate repository that borrows the user's
objects (`objects/info/alternates`) and starts with the same branches and tags. Every change that an agent makes with
git stays in it until the work is brought home.

Nothing that an agent can write to is trusted: before Retinue itself runs git here, outside of any sandbox, `distrust`
restores everything that could make git run a program or write elsewhere.

Commits are made by plumbing alone: `git add` and `git commit` run hooks, ask for signatures and enter repositories
inside the folder with the settings of those. `discard` removes a worktree at whatever step its creation or an earlier
removal was interrupted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

from retinue.capabilities.worktree.home import WorktreeRecord, load
from retinue.core.files import read_text
from retinue.guard.git import BARE_CONFIG, Git, GitError, join_paths, make_repository, paths
from retinue.guard.sandbox.environment import repository_of

FALLBACK_NAME, FALLBACK_EMAIL = "Retinue", "retinue@localhost"

_COPIED = ("user.", "author.", "committer.", "remote.", "branch.", "filter.", "diff.", "merge.", "submodule.", "lfs.")
_COPIED_CORE = ("autocrlf", "eol", "filemode", "ignorecase", "symlinks", "precomposeunicode", "longpaths")
_EXTENSIONS = frozenset({"extensions.objectformat", "extensions.partialclone"})
_NOT_OURS = ("commondir", "config.worktree", "gitdir", "hooks")
"""A repository of ours never has these, which would lead git elsewhere or run programs."""


def create(record: WorktreeRecord, source: Git, head: str) -> Git:
    """Make the repository, detached at `head`, without a checkout."""
    git = record.git
    git.mkdir(mode=0o700)
    for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "logs", "info"):
        (git / folder).mkdir(parents=True)
    _configure(record)
    (git / "HEAD").write_text(f"{head}\n")
    listed = source("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/tags", "refs/remotes")
    (git / "packed-refs").write_bytes(b"# pack-refs with: sorted \n" + listed)
    _copy_info(record, git, ("shallow", "info/exclude", "info/attributes"))
    return open_git(record, source.environment, consented=source.consented)


def open_git(record: WorktreeRecord, environment: Mapping[str, str], *, consented: bool = False) -> Git:
    """Return git in the worktree, with the worktree's own repository."""
    folder = record.path
    if folder.is_symlink() or not folder.is_dir():
        # Its commits can be saved without the directory.
        folder = record.git
    return Git(folder, environment, git_dir=record.git, consented=consented)


def source_git(record: WorktreeRecord, environment: Mapping[str, str]) -> Git:
    """Return git in the checkout that the worktree was made from. A checkout that is a worktree of ours itself
    is not trusted either."""
    above = above_of(record)
    return Git(Path(record.repository), environment) if above is None else distrust(above, environment)


def borrowed_from(record: WorktreeRecord) -> tuple[Path, ...]:
    """Return what this repository borrows objects from: repositories of ours, nearest first, then the objects of
    the user's."""
    above = above_of(record)
    if above is not None:
        return (above.git, *borrowed_from(above))
    top = os.path.realpath(record.repository)
    common = os.path.realpath(record.common)
    objects = Path(common, "objects")
    # A file of the project could name another repository, which programs of the run must not see.
    if common.startswith(f"{top}{os.sep}") or common in repository_of(top):
        return (objects,)
    return ()


@contextlib.contextmanager
def guarded_git(record: WorktreeRecord, environment: Mapping[str, str]) -> Iterator[Git]:
    """Yield git on the files and objects of a worktree, with a configuration that nobody but us can reach:
    reading files into objects runs the filters it names, and a program of the agent's that is
    still alive could change any other under our hands."""
    folder = record.path.with_name(f"{record.run}.aside")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        make_repository(folder, _config_of(record))
        _copy_info(record, folder, ("info/exclude", "info/attributes"))
        objects = str(record.git / "objects")
        yield Git(record.path, environment, git_dir=folder).having(GIT_OBJECT_DIRECTORY=objects)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def above_of(record: WorktreeRecord) -> WorktreeRecord | None:
    """Return the worktree that this one was made from, if that is one of ours."""
    common = Path(record.common)
    if common.suffix != ".git":
        return None
    above = load(common.with_suffix(".json"))
    return above if above is not None and above.git == common else None


def distrust(record: WorktreeRecord, environment: Mapping[str, str]) -> Git:
    """Return the repository without anything that its agent could have put there to be run or written to
    by us. Raise GitError when it holds links: then nothing in it is where it seems to be."""
    git = record.git
    if git.is_symlink() or not git.is_dir():
        raise GitError(("open", str(git)), "the repository of the worktree is gone")
    for folder, folders, files in os.walk(git):
        for name in (*folders, *files):
            if (Path(folder) / name).is_symlink():
                raise GitError(("open", str(git)), f"there is a symbolic link in it: {Path(folder) / name}")
    for name in _NOT_OURS:
        path = git / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    _configure(record)
    return open_git(record, environment).having(GIT_ALLOW_PROTOCOL="file")


def unlock(record: WorktreeRecord) -> None:
    """Remove what a git that was killed left locked in the repository. Only for one in which no
    program of its run is at work."""
    if record.git.is_symlink():
        return
    for folder, _, files in os.walk(record.git):
        for name in files:
            if name.endswith(".lock"):
                (Path(folder) / name).unlink(missing_ok=True)


def identity(git: Git) -> dict[str, str]:
    """Return the variables that name Retinue as author where git knows no user, or would have to guess one."""
    if git.ask("var", "GIT_COMMITTER_IDENT") is not None and git.ask("config", "user.email"):
        return {}
    names = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), FALLBACK_NAME)
    return names | dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), FALLBACK_EMAIL)


def _copy_info(record: WorktreeRecord, target: Path, names: tuple[str, ...]) -> None:
    for name in names:
        theirs = Path(record.common) / name
        if theirs.is_file() and not theirs.is_symlink():
            shutil.copyfile(theirs, target / name)


def configuration(record: WorktreeRecord, source: Git) -> str:
    """Return the configuration of the repository of a worktree: a part of the settings of `source`, the checkout
    it is made from, and no program that nobody has consented to. Decided once, when it is made, so
    that nothing which changes there later can start one when it is saved."""
    above = above_of(record)
    if above is not None:
        return above.config
    settings = source.settings()
    lines = ["\tlogallrefupdates = true", "[gc]", "\tauto = 0", "\tpruneExpire = never"]
    version = 0
    for setting in settings:
        is_own = setting.scope in ("local", "worktree") and (source.consented or setting.starts is None)
        name = setting.name
        is_needed = name.startswith(_COPIED) or name in _EXTENSIONS or name.removeprefix("core.") in _COPIED_CORE
        if is_own and is_needed:
            lines += _config_entry(name, setting.value)
            # A repository of version 0 has no extensions.
            version = max(version, int(name in _EXTENSIONS))
    if all(setting.name != "user.email" for setting in settings):
        lines += ["[user]", f"\tname = {FALLBACK_NAME}", f"\temail = {FALLBACK_EMAIL}"]
    return "\n".join(["[core]", f"\trepositoryformatversion = {version}", "\tbare = false", *lines, ""])


def _config_of(record: WorktreeRecord) -> bytes:
    # A record of an older version has none: then the barest settings that git can work with.
    return (record.config or BARE_CONFIG).encode("utf-8", "surrogateescape")


def _configure(record: WorktreeRecord) -> None:
    objects = Path(record.common) / "objects"
    if "\n" in str(objects) or str(objects).startswith('"'):
        raise GitError(("worktree", "add"), f"the folder {str(objects)!r} has a name that git cannot borrow from")
    (record.git / "objects" / "info").mkdir(parents=True, exist_ok=True)
    (record.git / "objects" / "info" / "alternates").write_bytes(os.fsencode(objects) + b"\n")
    (record.git / "config").write_bytes(_config_of(record))


def _config_entry(key: str, value: str) -> list[str]:
    section, _, rest = key.partition(".")
    below, _, name = rest.rpartition(".")
    head = f'[{section} "{_escape(below)}"]' if below else f"[{section}]"
    return [head, f'\t{name} = "{_escape(value)}"']


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")


MAX_SUBJECT_LENGTH = 200


def tree_of(git: Git, index: Path, left_out: Collection[str] = ()) -> str:
    """Return the tree of the folder as it is: tracked files, and others that are neither ignored nor
    `left_out`. `index` is a copy of its index, and is brought up to date."""
    git = git.having(GIT_INDEX_FILE=str(index))
    tracked = paths(git("ls-files", "-z", "--cached"))
    untracked = paths(git("ls-files", "-z", "--others", "--exclude-standard"))
    root = str(git.folder)

    @cache
    def is_hidden(folder: str) -> bool:
        """Return whether a folder, or one above it, is a link or gone. Git refuses to look behind links."""
        path = f"{root}/{folder}"
        gone = os.path.islink(path) or not os.path.isdir(path)  # noqa: PTH112,PTH114 - for every folder
        return bool(folder) and (is_hidden(folder.rpartition("/")[0]) or gone)

    gone = dict.fromkeys(name for name in tracked if is_hidden(name.rpartition("/")[0]))
    present = dict.fromkeys(name for name in tracked if name not in gone)
    for name in untracked:
        if name[-1] != "/" and name not in left_out and name not in gone:
            present[name] = None
    if gone:
        git("update-index", "-z", "--force-remove", "--stdin", given=join_paths(gone))
    if present:
        options = ("--add", "--remove", "--replace", "--ignore-skip-worktree-entries")
        git("update-index", "-z", *options, "--stdin", given=join_paths(present))
    return git.text("write-tree")


def commit_tree(git: Git, tree: str, parent: str, message: str) -> str:
    command, text = ("commit-tree", tree, "-p", parent), message.encode("utf-8", "replace")
    try:
        return git("-c", "user.useConfigOnly=true", *command, given=text).decode().strip()
    except GitError:
        # Git does not know who the user is.
        return git.having(**identity(git))(*command, given=text).decode().strip()


@contextlib.contextmanager
def copied_index(source: Path, target: Path) -> Iterator[Path]:
    """Yield a copy of an index to work with, which is removed at the end; without a source git starts with an empty
    one."""
    target.unlink(missing_ok=True)
    if source.is_file() and not source.is_symlink():
        with source.open("rb") as theirs, target.open("wb") as ours:
            shutil.copyfileobj(theirs, ours)
            written = os.fstat(theirs.fileno())
        # Git compares the time of the index with those of files: what was changed in the same instant, it reads again.
        # A copy with a newer time would let such a change pass for none.
        os.utime(target, ns=(written.st_atime_ns, written.st_mtime_ns))
    try:
        yield target
    finally:
        target.unlink(missing_ok=True)
        target.with_name(f"{target.name}.lock").unlink(missing_ok=True)


def commit_subject(description: str) -> str:
    """Return the message of a commit that saves what an agent left."""
    words = " ".join(description.split())[:MAX_SUBJECT_LENGTH]
    return f"retinue: {words or 'changes of an agent'}"


LOCKED = "retinue run "
"""The first words in the reason of our locks. Any other lock is a person's."""
BESIDE = (".aside", ".index", ".index.lock", ".json.new")
"""Files that a killed process may leave beside a worktree, and nobody needs."""


def discard(record: WorktreeRecord, environment: Mapping[str, str]) -> None:
    """Remove a worktree with everything in it. Only for one that holds nothing, or nothing that
    is not reachable elsewhere. Does not fail: what cannot be removed stays listed."""
    try:
        main: Git | None = source_git(record, environment)
    except GitError:
        main = None
    remove_folder(record.path)
    if main is not None:
        with contextlib.suppress(GitError):
            main("worktree", "remove", "--force", "--force", record.folder)
    # Git does not remove the half-written entry of a git that was killed.
    for entry in entries_of(record):
        remove_folder(entry)
    remove_folder(record.git)
    for beside in BESIDE:
        remove_folder(record.path.with_name(f"{record.run}{beside}"))
    if not record.path.exists() and not record.git.exists():
        record.file.unlink(missing_ok=True)


def locked_by_user(record: WorktreeRecord) -> bool:
    """Return whether a person has put a lock of their own on it."""
    for entry in entries_of(record):
        try:
            return not read_text(entry / "locked", errors="replace").startswith(LOCKED)
        except OSError:
            continue
    return False


def entries_of(record: WorktreeRecord) -> list[Path]:
    """Return where git has the worktree registered."""
    return find_entries(Path(record.common), record.path)


def find_entries(common: Path, folder: Path) -> list[Path]:
    """Return the entries that the repository at `common` has for a worktree at `folder`. Git chooses
    another name than the folder's when that is taken."""
    return [path for path in (common / "worktrees").glob(f"{folder.name}*") if _is_of(path, folder)]


def _is_of(entry: Path, folder: Path) -> bool:
    pointer = ""
    with contextlib.suppress(OSError):
        pointer = read_text(entry / "gitdir", errors="surrogateescape").strip()
    if not pointer:
        return entry.name == folder.name
    return os.path.realpath(entry / Path(pointer).parent) == os.path.realpath(folder)


def remove_folder(path: Path) -> None:
    """Remove a folder as far as possible, read-only folders inside included; links are removed, not followed."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return

    def writable(function: object, name: str, error: object) -> None:
        for entry in (Path(name).parent, Path(name)):
            if not entry.is_symlink() and entry.exists() and path in (entry, *entry.parents):
                entry.chmod(entry.stat().st_mode | stat.S_IRWXU)

    shutil.rmtree(path, onerror=writable)
    if path.exists():
        shutil.rmtree(path, ignore_errors=True)
