"""The repository of a worktree: it reads the user's history and cannot change the user's repository.

A normal git worktree shares branches, stash, config and objects with the main checkout: `git stash`, `git branch -D` or
`git gc` in one affects the other. So the worktree gets a separate repository that borrows the user's objects
(`objects/info/alternates`) and starts with the same branches and tags. All changes of an agent with git stay in it
until its work is saved.

Files that an agent can write are not trusted. Before Retinue itself runs git here, outside of any sandbox, `distrust`
restores every file that could make git run a program or write elsewhere.

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

from retinue.capabilities.worktree.record import WorktreeRecord, load
from retinue.core.files import read_text
from retinue.guard.git import BARE_CONFIG, Git, GitError, join_paths, make_repository, paths
from retinue.guard.sandbox.environment import repository_of

FALLBACK_NAME, FALLBACK_EMAIL = "Retinue", "retinue@localhost"

_COPIED_SECTIONS = (
    "user.",
    "author.",
    "committer.",
    "remote.",
    "branch.",
    "filter.",
    "diff.",
    "merge.",
    "submodule.",
    "lfs.",
)
_COPIED_CORE_KEYS = ("autocrlf", "eol", "filemode", "ignorecase", "symlinks", "precomposeunicode", "longpaths")
_EXTENSIONS = frozenset({"extensions.objectformat", "extensions.partialclone"})
_FORBIDDEN_FILES = ("commondir", "config.worktree", "gitdir", "hooks")
"""Files that our repositories never have, and that would redirect git or run programs."""


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
        # Commits can be saved even if the directory is gone.
        folder = record.git
    return Git(folder, environment, git_dir=record.git, consented=consented)


def source_git(record: WorktreeRecord, environment: Mapping[str, str]) -> Git:
    """Return git in the checkout that the worktree was made from. If that is a worktree of ours, it is not trusted
    either."""
    above = above_of(record)
    return Git(Path(record.repository), environment) if above is None else distrust(above, environment)


def borrowed_from(record: WorktreeRecord) -> tuple[Path, ...]:
    """Return the folders from which this repository borrows objects: repositories of ours, nearest first, then the
    user's objects."""
    above = above_of(record)
    if above is not None:
        return (above.git, *borrowed_from(above))
    top = os.path.realpath(record.repository)
    common = os.path.realpath(record.common)
    objects = Path(common, "objects")
    # A .git file in the project could name another repository, which the run must not see.
    if common.startswith(f"{top}{os.sep}") or common in repository_of(top):
        return (objects,)
    return ()


@contextlib.contextmanager
def guarded_git(record: WorktreeRecord, environment: Mapping[str, str]) -> Iterator[Git]:
    """Yield git on the files and objects of a worktree, with a configuration outside of it. Adding files runs the
    filters of the configuration, and a program of the agent that is still alive could change the worktree's own."""
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
    """Return the repository after removing everything that its agent could have added to make us run a program or write
    elsewhere. Raise GitError if it contains symbolic links."""
    git = record.git
    if git.is_symlink() or not git.is_dir():
        raise GitError(("open", str(git)), "the repository of the worktree is gone")
    for folder, folders, files in os.walk(git):
        for name in (*folders, *files):
            if (Path(folder) / name).is_symlink():
                raise GitError(("open", str(git)), f"there is a symbolic link in it: {Path(folder) / name}")
    for name in _FORBIDDEN_FILES:
        path = git / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    _configure(record)
    return open_git(record, environment).having(GIT_ALLOW_PROTOCOL="file")


def unlock(record: WorktreeRecord) -> None:
    """Remove the locks of a killed git in the repository. Call it only if no program of its run is running."""
    if record.git.is_symlink():
        return
    for folder, _, files in os.walk(record.git):
        for name in files:
            if name.endswith(".lock"):
                (Path(folder) / name).unlink(missing_ok=True)


def identity(git: Git) -> dict[str, str]:
    """Return variables that name Retinue as author, if git has no configured user."""
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
    """Return the configuration for the repository of a worktree: some settings of `source`, the checkout it is made
    from, without programs that have no consent. It is computed once, at the creation, so that a later change of the
    settings cannot start a program when the worktree is saved."""
    above = above_of(record)
    if above is not None:
        return above.config
    settings = source.settings()
    lines = ["\tlogallrefupdates = true", "[gc]", "\tauto = 0", "\tpruneExpire = never"]
    version = 0
    for setting in settings:
        is_own = setting.scope in ("local", "worktree") and (source.consented or setting.starts is None)
        name = setting.name
        is_needed = (
            name.startswith(_COPIED_SECTIONS) or name in _EXTENSIONS or name.removeprefix("core.") in _COPIED_CORE_KEYS
        )
        if is_own and is_needed:
            lines += _config_entry(name, setting.value)
            # A repository of version 0 has no extensions.
            version = max(version, int(name in _EXTENSIONS))
    if all(setting.name != "user.email" for setting in settings):
        lines += ["[user]", f"\tname = {FALLBACK_NAME}", f"\temail = {FALLBACK_EMAIL}"]
    return "\n".join(["[core]", f"\trepositoryformatversion = {version}", "\tbare = false", *lines, ""])


def _config_of(record: WorktreeRecord) -> bytes:
    # A record of an older version has none: then the minimal configuration is used.
    return (record.config or BARE_CONFIG).encode("utf-8", "surrogateescape")


def _configure(record: WorktreeRecord) -> None:
    objects = Path(record.common) / "objects"
    if "\n" in str(objects) or str(objects).startswith('"'):
        raise GitError(("worktree", "add"), f"the folder {str(objects)!r} has a name that git cannot borrow from")
    (record.git / "objects" / "info").mkdir(parents=True, exist_ok=True)
    (record.git / "objects" / "info" / "alternates").write_bytes(os.fsencode(objects) + b"\n")
    (record.git / "config").write_bytes(_config_of(record))


def _config_entry(key: str, value: str) -> list[str]:
    section, _, remainder = key.partition(".")
    below, _, name = remainder.rpartition(".")
    head = f'[{section} "{_escape(below)}"]' if below else f"[{section}]"
    return [head, f'\t{name} = "{_escape(value)}"']


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")


MAX_SUBJECT_LENGTH = 200


def tree_of(git: Git, index: Path, left_out: Collection[str] = ()) -> str:
    """Return a tree of the present files: tracked ones, and others that are neither ignored nor `left_out`. `index` is
    a copy of the worktree's index and is updated."""
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
        git("update-index", "-z", "--force-remove", "--stdin", stdin=join_paths(gone))
    if present:
        options = ("--add", "--remove", "--replace", "--ignore-skip-worktree-entries")
        git("update-index", "-z", *options, "--stdin", stdin=join_paths(present))
    return git.text("write-tree")


def commit_tree(git: Git, tree: str, parent: str, message: str) -> str:
    command, text = ("commit-tree", tree, "-p", parent), message.encode("utf-8", "replace")
    try:
        return git("-c", "user.useConfigOnly=true", *command, stdin=text).decode().strip()
    except GitError:
        # Git does not know who the user is.
        return git.having(**identity(git))(*command, stdin=text).decode().strip()


@contextlib.contextmanager
def copied_index(source: Path, target: Path) -> Iterator[Path]:
    """Yield a temporary copy of an index; without a source git starts with an empty one."""
    target.unlink(missing_ok=True)
    if source.is_file() and not source.is_symlink():
        with source.open("rb") as theirs, target.open("wb") as ours:
            shutil.copyfileobj(theirs, ours)
            written = os.fstat(theirs.fileno())
        # Git reads files again that are not older than the index. With a newer time on the copy it would miss a file
        # that was changed at the same moment.
        os.utime(target, ns=(written.st_atime_ns, written.st_mtime_ns))
    try:
        yield target
    finally:
        target.unlink(missing_ok=True)
        target.with_name(f"{target.name}.lock").unlink(missing_ok=True)


def commit_subject(description: str) -> str:
    """Return the message of a commit with the uncommitted changes of an agent."""
    words = " ".join(description.split())[:MAX_SUBJECT_LENGTH]
    return f"retinue: {words or 'changes of an agent'}"


LOCK_REASON = "retinue run "
"""The beginning of the reason in our locks. Other locks are of people."""
TEMPORARY_SUFFIXES = (".aside", ".index", ".index.lock", ".json.new")
"""Suffixes of temporary files that a killed process may leave beside a worktree."""


def discard(record: WorktreeRecord, environment: Mapping[str, str]) -> None:
    """Remove a worktree and all its files. Call it only if all its work is saved elsewhere. It does not fail: a
    worktree that cannot be removed stays listed."""
    try:
        main: Git | None = source_git(record, environment)
    except GitError:
        main = None
    remove_folder(record.path)
    if main is not None:
        with contextlib.suppress(GitError):
            main("worktree", "remove", "--force", "--force", record.folder)
    # Git does not remove the incomplete entry of a killed git.
    for entry in entries_of(record):
        remove_folder(entry)
    remove_folder(record.git)
    for beside in TEMPORARY_SUFFIXES:
        remove_folder(record.path.with_name(f"{record.run}{beside}"))
    if not record.path.exists() and not record.git.exists():
        record.file.unlink(missing_ok=True)


def locked_by_user(record: WorktreeRecord) -> bool:
    """Return whether a person has locked it."""
    for entry in entries_of(record):
        try:
            return not read_text(entry / "locked", errors="replace").startswith(LOCK_REASON)
        except OSError:
            continue
    return False


def entries_of(record: WorktreeRecord) -> list[Path]:
    """Return the folders in which git has registered the worktree."""
    return find_entries(Path(record.common), record.path)


def find_entries(common: Path, folder: Path) -> list[Path]:
    """Return the entries of the repository at `common` for a worktree at `folder`. Git adds a number to the folder's
    name if that is taken."""
    return [path for path in (common / "worktrees").glob(f"{folder.name}*") if _is_of(path, folder)]


def _is_of(entry: Path, folder: Path) -> bool:
    pointer = ""
    with contextlib.suppress(OSError):
        pointer = read_text(entry / "gitdir", errors="surrogateescape").strip()
    if not pointer:
        return entry.name == folder.name
    return os.path.realpath(entry / Path(pointer).parent) == os.path.realpath(folder)


def remove_folder(path: Path) -> None:
    """Remove a folder as far as possible, including read-only ones inside. Links are not followed."""
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
