"""Files of a workspace with which git would start programs by itself.

A confined program that may write a workspace could leave something there that starts a program
when the user next types `git status`, outside of all walls: settings and hooks of a repository.
Those that exist are read-only for it. New ones cannot be prevented by the system, because git
itself makes repositories all the time, so they are looked at after each command: settings that
only say where a repository comes from stay, everything else is renamed and reported.

The launcher imports this for each command, and Retinue itself at the end of a run. Folders are
opened one by one and links are not followed, so that nobody can lead it out of the workspace.
"""

import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

DISABLED = ".disabled-by-retinue"
_MAX_FOLDERS, _MAX_FOLDER_DEPTH, _MAX_SETTINGS_BYTES = 200_000, 200, 65_536
_SETTINGS_FILES = ("config", "config.worktree", "commondir")
_SKIPPED_FOLDERS = ("objects", "refs", "logs", "lfs")
_FOLDER_FLAGS = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC

_HARMLESS_SETTINGS = {
    "core": "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks worktree "
    "autocrlf eol safecrlf sparsecheckout sparsecheckoutcone compression abbrev",
    "extensions": "objectformat refstorage partialclone worktreeconfig",
    "remote": "url pushurl fetch tagopt mirror promisor partialclonefilter skipdefaultupdate skipfetchall",
    "branch": "remote merge rebase description pushremote",
    "submodule": "url active branch",
    "user": "name email",
    "init": "defaultbranch",
    "pull": "rebase ff",
    "push": "default autosetupremote",
    "gc": "auto",
    "lfs": "repositoryformatversion",
}
"""Settings that start nothing, by section. All others may."""


class GitFile:
    """A file that git acts on: where it is, and which settings or hook of a repository it is."""

    __slots__ = ("at", "changed", "kind", "name", "path")

    def __init__(self, path: str, at: int, name: str, kind: str, changed: int) -> None:
        self.path = path
        self.at = at
        """The open folder it is in."""
        self.name = name
        self.kind = kind
        self.changed = changed
        """When it or its folder last changed, in nanoseconds."""


def find_git_files(root: str, hook_folders: "tuple[str, ...]" = ()) -> "list[str]":
    """Return everything below a folder that git acts on by itself, hooks and settings."""
    return [file.path for file in _walk(root, hook_folders)]


def disable_new_files(
    root: str, known_files: "frozenset[str]", since: int, hook_folders: "tuple[str, ...]" = ()
) -> "list[str]":
    """Rename what is not known, has changed since a time in nanoseconds, and could start a program.
    Return a sentence for each."""
    sentences = []
    for file in _walk(root, hook_folders):
        if file.path in known_files or file.changed < since or file.name.endswith(DISABLED):
            continue
        reason = _danger(file, root)
        if reason:
            sentences.append(_rename(file, reason))
    return sentences


def _walk(root: str, hook_folders: "tuple[str, ...]") -> "Iterator[GitFile]":
    budget = [_MAX_FOLDERS]
    try:
        top = posix.open(root, _FOLDER_FLAGS)
    except OSError:
        return
    try:
        yield from _visit(top, root, 0, budget)
        for folder in hook_folders:
            if folder.startswith(root + "/"):
                yield from _hooks(top, folder[len(root) + 1 :], folder, 0)
    finally:
        posix.close(top)


def _visit(at: int, path: str, depth: int, budget: "list[int]") -> "Iterator[GitFile]":
    budget[0] -= 1
    if depth > _MAX_FOLDER_DEPTH or budget[0] < 0:
        return
    names, folders = _entries(at)
    if ".git" in names and ".git" not in folders:
        yield GitFile(f"{path}/.git", at, ".git", "link", _change_time(at, ".git"))
    is_repository = "HEAD" in names and ("commondir" in names or ("objects" in names and "refs" in names))
    if is_repository:
        changed = posix.fstat(at).st_ctime_ns
        for name in _SETTINGS_FILES:
            if name in names:
                yield GitFile(f"{path}/{name}", at, name, name, max(changed, _change_time(at, name)))
        if "hooks" in names:
            yield from _hooks(at, "hooks", f"{path}/hooks", changed)
    for name in folders:
        if is_repository and name in _SKIPPED_FOLDERS:
            continue
        try:
            inner = posix.open(name, _FOLDER_FLAGS, dir_fd=at)
        except OSError:
            continue
        try:
            yield from _visit(inner, f"{path}/{name}", depth + 1, budget)
        finally:
            posix.close(inner)


def _entries(at: int) -> "tuple[set[str], list[str]]":
    names, folders = set(), []
    try:
        with posix.scandir(at) as entries:
            for entry in entries:
                names.add(entry.name)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
    except OSError:
        pass
    return names, folders


def _hooks(at: int, name: str, path: str, changed: int) -> "Iterator[GitFile]":
    try:
        folder = posix.open(name, _FOLDER_FLAGS, dir_fd=at)
    except OSError:
        if "/" not in name:
            # A link, or nothing that git would take.
            yield GitFile(path, at, name, "hooks", changed)
        return
    try:
        names, folders = _entries(folder)
        for hook in sorted(names - set(folders)):
            if not hook.endswith(".sample"):
                yield GitFile(f"{path}/{hook}", folder, hook, "hook", max(changed, _change_time(folder, hook)))
    finally:
        posix.close(folder)


def _change_time(at: int, name: str) -> int:
    try:
        return posix.stat(name, dir_fd=at, follow_symlinks=False).st_ctime_ns
    except OSError:
        return 0


def _danger(file: GitFile, root: str) -> str:
    """Return what git would do with it; empty if nothing is started."""
    if file.kind == "hook":
        return "is a hook that git would run"
    if file.kind == "hooks":
        return "leads git to hooks elsewhere"
    text = _text(file)
    if text is None:
        return "cannot be read as settings of git"
    if file.kind == "link":
        return _danger_of_link(file, text, root)
    if file.kind == "commondir":
        linked = file.path.rsplit("/", 3)[1] == "worktrees" and text.strip() == "../.."
        if linked:
            return ""
        return "leads git to settings elsewhere"
    setting = find_unknown_setting(text)
    if setting:
        return f"has a setting that could start a program ({setting})"
    return ""


def _danger_of_link(file: GitFile, text: str, root: str) -> str:
    """A `.git` that is a file leads to a repository. One in the workspace has been looked at."""
    target = text.strip().removeprefix("gitdir:").strip()
    folder = file.path.rpartition("/")[0]
    parts = _resolve(target if target.startswith("/") else f"{folder}/{target}")
    inside = "/".join(parts).startswith(root.strip("/") + "/")
    if inside and not set(parts) & set(_SKIPPED_FOLDERS):
        return ""
    return "leads git to a repository elsewhere"


def _resolve(path: str) -> "list[str]":
    parts: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del parts[-1:]
        elif segment not in ("", "."):
            parts.append(segment)
    return parts


def _text(file: GitFile) -> "str | None":
    """None for a link, a pipe, or something too long."""
    try:
        descriptor = posix.open(file.name, posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_NONBLOCK, dir_fd=file.at)
    except OSError:
        return None
    try:
        status = posix.fstat(descriptor)
        if status.st_mode & 0o170000 != 0o100000 or status.st_size > _MAX_SETTINGS_BYTES:
            return None
        return posix.read(descriptor, _MAX_SETTINGS_BYTES + 1).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        posix.close(descriptor)


def find_unknown_setting(text: str) -> str:
    """Return the first setting that is not known to be harmless, or the line that is not understood."""
    section = ""
    for line in text.replace("\r\n", "\n").split("\n"):
        pack_numbers = line.strip(" \t")
        if not pack_numbers or pack_numbers[0] in "#;":
            continue
        if pack_numbers.startswith("["):
            head = pack_numbers[1:-1].partition(" ")[0]
            if not pack_numbers.endswith("]") or pack_numbers.count("[") > 1 or not head.isalnum():
                return pack_numbers[:60]
            section = head.lower()
            continue
        key = pack_numbers.partition("=")[0].strip(" \t").lower()
        if pack_numbers.endswith("\\") or key not in _HARMLESS_SETTINGS.get(section, "").split():
            return f"{section}.{key}"[:60]
    return ""


def _rename(file: GitFile, reason: str) -> str:
    try:
        posix.rename(file.name, file.name + DISABLED, src_dir_fd=file.at, dst_dir_fd=file.at)
    except OSError as error:
        return f"{file.path} {reason}, and could not be renamed: {error.strerror}. Remove it before you use git there."
    return f"{file.path} {reason}, so it was renamed to {file.name}{DISABLED}"
