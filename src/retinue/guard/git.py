"""The one module that starts git, without a shell or prompts, in bounded time.

No git of ours starts a program that a repository names. Programs under a fixed name are always off, by `ALWAYS` and
`VARIABLES`. Those under a name of the repository's choice (filters, remotes, merge drivers, hooks in settings:
`gitconfig.py`) are found by asking git which settings the files of the repository make, wherever they are
(`commondir`, `config.worktree`, includes), and each is set to the value in the user's own files, or to nothing.
`consented` leaves them in effect; hooks and monitors stay off. Nothing of the caller's GIT_* variables reaches git:
inside someone's git hook they would point every command at another repository or index.

`tracked_objects` finds the copies that a repository keeps of files that a rule hides. A copy can be in a commit, in
the index, in the reflog (an undone commit, an older stash), or be reached by nothing since `git add` was taken
back. A repository has all its objects in one folder and borrows others (`objects/info/alternates`), so either all
of them are hidden or none.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.files import read_text
from retinue.core.programs import CompletedProcess, TimeoutExpired, prepare, run
from retinue.guard.gitconfig import GitSetting, program_setting
from retinue.models.keys import without_keys
from retinue.settings.places import repository_root

SECONDS = 120.0
"""The longest one command may take, checking out a large tree included."""
_TAIL = 600
Done = CompletedProcess[bytes]

ALWAYS = (
    (f"core.hooksPath={os.devnull}", "hooks are programs"),
    ("core.fsmonitor=false", "a monitor is a program"),
    ("core.untrackedCache=false", "it belongs to the monitor"),
    ("core.pager=cat", "a pager is a program"),
    ("core.alternateRefsCommand=true", "it is a program"),
    ("gc.auto=0", "a collection outlives the command, and runs hooks"),
    ("maintenance.auto=false", "the same"),
    ("commit.gpgSign=false", "signing starts gpg.program"),
    ("tag.gpgSign=false", "the same"),
    ("log.showSignature=false", "checking starts gpg.program"),
    ("merge.verifySignatures=false", "the same"),
    ("submodule.recurse=false", "a git inside a submodule obeys that one's settings"),
    ("fetch.recurseSubmodules=false", "the same"),
    ("status.submoduleSummary=false", "the same"),
    ("diff.submodule=short", "the same"),
    ("safe.bareRepository=explicit", "a folder of the project may look like a repository (git 2.38)"),
    ("advice.detachedHead=false", "nobody reads it"),
    ("core.quotePath=false", "paths come as they are"),
    ("core.safecrlf=false", "a warning would be an error"),
)
"""Settings of every git of ours, and why."""
VARIABLES = (
    ("LC_ALL", "C", "its words are read"),
    ("GIT_TERMINAL_PROMPT", "0", "nobody answers"),
    ("GIT_ASKPASS", "true", "stands before core.askPass, a program"),
    ("SSH_ASKPASS", "true", "the same"),
    ("GIT_EDITOR", "true", "stands before core.editor, a program"),
    ("GIT_SEQUENCE_EDITOR", "true", "stands before sequence.editor, a program"),
    ("GIT_PAGER", "cat", "stands before pager.<command>, a program"),
    ("GIT_PROXY_COMMAND", "", "stands before core.gitProxy, a program"),
    ("GIT_OPTIONAL_LOCKS", "0", "the user's index is only read"),
    ("GIT_ALLOW_PROTOCOL", "none", "what is local stays local: no ssh, no upload-pack, no ext:: command"),
    ("GIT_NO_LAZY_FETCH", "1", "missing objects are not fetched from a promisor (git 2.39.4)"),
    ("GIT_LFS_SKIP_SMUDGE", "1", "large files stay pointers"),
)
"""Variables of every git of ours, and why. Callers override single ones with `having`."""
REMOTES = "file:git:http:https:ssh"
"""The value of GIT_ALLOW_PROTOCOL for a fetch: all protocols that run no command."""
_COMMANDS = {
    "status": ("--ignore-submodules=dirty",),
    "diff": ("--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty"),
    "log": ("--no-ext-diff", "--no-textconv"),
    "show": ("--no-ext-diff", "--no-textconv"),
}
"""Options that keep a command out of other repositories inside this one, and from converters."""
_NEEDED = ("checkout", "promisor", "elsewhere")
_OF_THE_REPOSITORY = ("local", "worktree")
_PROBE = "retinue.probe"
_HALF_MADE = re.compile(rb"failed to read [^\n]*worktrees/[^\n]+/commondir|bad object worktrees/[^\n]+/HEAD")
_WAITS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
_KEPT = ("GIT_EXEC_PATH", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH")


class GitError(Exception):
    """A git command failed or took too long. The message is git's own text, shortened."""

    def __init__(self, arguments: Sequence[str], why: str, code: int | None = None) -> None:
        self.command = "git " + " ".join(arguments[:3])
        self.why = why.strip()[-_TAIL:] or "it said nothing"
        self.code = code
        super().__init__(f"{self.command}: {self.why}")


class ScopedSetting(Struct, frozen=True):
    """One setting, and the scope of the file that contains it."""

    scope: str
    name: str
    value: str

    @property
    def starts(self) -> GitSetting | None:
        """The table row of the setting, if the repository sets it and it can start a program."""
        if self.scope in _OF_THE_REPOSITORY:
            return program_setting(self.name, self.value)
        return None


class Git(Struct, frozen=True):
    """git in one folder. With `git_dir` it works on that repository, one of our own, with `folder`
    as the checkout, whatever files in it claim; `variables` are added to its environment.
    `consented`: someone has consented to the programs that the repository names."""

    folder: Path
    environment: Mapping[str, str]
    git_dir: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    consented: bool = False
    _scoped_settings: list[tuple[ScopedSetting, ...]] = field(default_factory=list)

    def having(self, **variables: str) -> Git:
        """Return the same git with further variables in its environment."""
        return replace(self, variables={**self.variables, **variables})

    def at(self, folder: Path) -> Git:
        """Return git for another checkout of the same repository. Settings of the same checkout are not read again."""
        # The settings were read through another spelling of the same path.
        if os.path.realpath(folder) == os.path.realpath(self.folder):
            return replace(self, folder=folder)
        return Git(folder, self.environment, consented=self.consented)

    def __call__(self, *arguments: str, stdin: bytes | None = None, seconds: float = SECONDS) -> bytes:
        """Run a command and return its output. Raise GitError."""
        done = self._run(arguments, stdin, seconds)
        if done.returncode != 0:
            raise GitError(arguments, done.stderr.decode("utf-8", "replace"), done.returncode)
        return done.stdout

    def text(self, *arguments: str) -> str:
        """Run a command and return its output as text, without the final newline."""
        return os.fsdecode(self(*arguments)).rstrip("\n")

    def ask(self, *arguments: str) -> str | None:
        """Run a command and return its output as text, or None if it fails."""
        done = self._run(arguments, None, SECONDS)
        if done.returncode == 0:
            return os.fsdecode(done.stdout).rstrip("\n")
        return None

    def holds(self, *arguments: str) -> bool:
        """Return whether a command that only answers yes or no says yes. Raise GitError on neither."""
        done = self._run(arguments, None, SECONDS)
        if done.returncode not in (0, 1):
            raise GitError(arguments, done.stderr.decode("utf-8", "replace"), done.returncode)
        return done.returncode == 0

    def settings(self) -> tuple[ScopedSetting, ...]:
        """Return every setting in effect here, the weakest first, as git itself reads them. Asked once
        for each object and its copies. Raise GitError."""
        if not self._scoped_settings:
            self._scoped_settings.append(self._ask_for_settings())
        return self._scoped_settings[0]

    def needing_consent(self) -> list[str]:
        """Return the settings of the repository without which its files cannot be checked out as they are
        meant to be, and which nobody has consented to; one line each."""
        if self.consented:
            return []
        lines: list[str] = []
        for setting in self.settings():
            row = setting.starts
            if row is not None and row.kind in _NEEDED and not self._leads_home(setting):
                lines.append(f"{setting.name}: {setting.value[:200]}")
        return lines

    def _leads_home(self, setting: ScopedSetting) -> bool:
        """Return whether a `core.worktree` names the folder it is used in, as that of a submodule does."""
        top = repository_root(self.folder)
        if setting.name.lower() != "core.worktree" or top is None:
            return False
        meant = Path(self.text("rev-parse", "--absolute-git-dir"), setting.value)
        return os.path.realpath(meant) == os.path.realpath(top)

    def _ask_for_settings(self) -> tuple[ScopedSetting, ...]:
        arguments = ("config", "--list", "-z", "--show-scope")
        done = self._start(arguments, self._environment({_PROBE: "1"}), None, SECONDS)
        if done.returncode != 0:
            raise GitError(arguments, done.stderr.decode("utf-8", "replace"), done.returncode)
        fields = os.fsdecode(done.stdout).split("\0")[:-1]
        settings = []
        probed = False
        for scope, entry in zip(fields[::2], fields[1::2], strict=True):
            name, _, value = entry.partition("\n")
            settings.append(ScopedSetting(scope, name, value))
            probed = probed or name == _PROBE
        # An old git ignores settings in variables, and so would ignore our overrides.
        if not probed:
            raise GitError(arguments, "this git cannot be kept from programs of a repository: install 2.31 or newer")
        return tuple(settings)

    def _overrides(self) -> dict[str, str]:
        """Return settings that override those of the repository with the user's values, or with empty ones."""
        # A repository of our own has only settings that we made.
        if self.git_dir is not None:
            return {}
        over = self._hooks_off()
        if self.consented:
            return over
        own = {setting.name: setting.value for setting in self.settings() if setting.scope not in _OF_THE_REPOSITORY}
        for setting in self.settings():
            row = setting.starts
            if row is None or row.kind == "elsewhere" or setting.name in over:
                continue
            section, _, tail = setting.name.partition(".")
            # Helpers add up, and only an empty one ends the list of those before it.
            over[setting.name] = row.off if section == "credential" else own.get(setting.name, row.off)
            if section == "filter":
                over[f"filter.{tail.rpartition('.')[0]}.required"] = "false"
            # Then git-lfs itself is not started.
            if section == "lfs":
                over |= dict.fromkeys(("filter.lfs.clean", "filter.lfs.smudge", "filter.lfs.process"), "")
                over["filter.lfs.required"] = "false"
        return over

    def _hooks_off(self) -> dict[str, str]:
        """Return what switches off the hooks that stand in settings, the user's own too, as `core.hooksPath` does
        with those in files."""
        over: dict[str, str] = {}
        for setting in self.settings():
            section, _, tail = setting.name.partition(".")
            hook, _, key = tail.rpartition(".")
            if section == "hook" and key == "command":
                over |= {f"hook.{hook}.enabled": "false", setting.name: "true"}
        return over

    def _run(self, arguments: Sequence[str], stdin: bytes | None, seconds: float) -> Done:
        """Try again where another git was making a worktree at the same moment."""
        environment = self._environment(self._overrides())
        for wait in _WAITS:
            done = self._start(arguments, environment, stdin, seconds)
            if done.returncode == 0 or not _HALF_MADE.search(done.stderr):
                return done
            time.sleep(wait)
        return self._start(arguments, environment, stdin, seconds)

    def _environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        environment = clean(self.environment)
        if self.consented:
            environment |= {"GIT_ALLOW_PROTOCOL": REMOTES, "GIT_NO_LAZY_FETCH": "0"}
        environment |= self.variables
        if self.git_dir is not None:
            environment |= dict.fromkeys(("GIT_DIR", "GIT_COMMON_DIR"), str(self.git_dir))
            environment["GIT_WORK_TREE"] = str(self.folder)
        if settings:
            environment["GIT_CONFIG_COUNT"] = str(len(settings))
        for number, (name, value) in enumerate(settings.items()):
            environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        return environment

    def _start(
        self, arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes | None, seconds: float
    ) -> Done:
        try:
            program = prepare(
                command_line(arguments),
                # Without consent its settings are such that it starts nothing of the repository's.
                clearance="consent" if self.consented else "own",
                environment=environment,
                cwd=self.folder,
            )
            return run(program, stdin_bytes=stdin, seconds=seconds)
        except FileNotFoundError as error:
            missing = "git is not installed, or not in PATH" if self.folder.is_dir() else f"{self.folder} is gone"
            raise GitError(arguments, missing) from error
        except TimeoutExpired as error:
            raise GitError(arguments, f"it took longer than {seconds:g} s") from error
        except OSError as error:
            raise GitError(arguments, str(error)) from error


def command_line(arguments: Sequence[str], settings: Sequence[str] = ()) -> list[str]:
    """Return the command line of a git of ours, with further settings before the caller's own."""
    words = ["git", "--no-pager"]
    for option, _ in ALWAYS:
        words += ["-c", option]
    for option in settings:
        words += ["-c", option]
    remaining = list(arguments)
    at = 0
    while at < len(remaining) and remaining[at] == "-c":
        at += 2
    verb, operands = remaining[: at + 1], remaining[at + 1 :]
    return [*words, *verb, *_COMMANDS.get("".join(verb[at:]), ()), *operands]


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` without what would lead git elsewhere or make it wait for a person."""
    # git starts other programs, which must not see keys of model servers.
    inherited = without_keys(environment)
    cleaned = {name: value for name, value in inherited.items() if not name.startswith("GIT_") or name in _KEPT}
    cleaned.setdefault("PATH", os.environ.get("PATH", os.defpath))
    return cleaned | {name: value for name, value, _ in VARIABLES}


def paths(listed: bytes) -> list[str]:
    """Return file names as git lists them with -z."""
    return list(map(os.fsdecode, filter(None, listed.split(b"\0"))))


def join_paths(names: Iterable[str]) -> bytes:
    """Return file names as git reads them with -z."""
    return b"".join(os.fsencode(name) + b"\0" for name in names)


def literal_pattern(name: str) -> str:
    """Return `name` as a part of an ignore pattern that matches nothing else."""
    escaped = "".join(f"\\{letter}" if letter in "\\*?[" else letter for letter in name)
    bare = escaped.rstrip(" ")
    return bare + "\\ " * (len(escaped) - len(bare))


BARE_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tlogallrefupdates = true\n"


def make_repository(folder: Path, config: bytes = BARE_CONFIG.encode()) -> None:
    """Create an empty repository without starting git."""
    for name in ("objects/info", "refs/heads", "info"):
        (folder / name).mkdir(parents=True, mode=0o700)
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    (folder / "config").write_bytes(config)


_SEARCH_SECONDS = 10.0
_MAX_BORROWING_DEPTH = 5
_MAX_HASHED_FILES = 500


def tracked_objects(folder: Path, paths: Sequence[str], environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the folders of a repository's objects, its own and borrowed ones, if it keeps a copy of one of these
    files, or where that cannot be told; nothing if it keeps none."""
    top = repository_root(folder)
    if top is None:
        return ()
    inside = [os.path.relpath(path, top) for path in paths if path.startswith(f"{top}{os.sep}")]
    if not inside:
        return ()
    git = Git(top, environment)
    objects = Path(top, ".git", "objects")
    try:
        objects = Path(git.text("rev-parse", "--path-format=absolute", "--git-path", "objects"))
        stored = _is_reached(git, inside) or _is_stored(git, top, inside)
    except GitError:
        stored = True
    if stored:
        return tuple(_with_borrowed(objects))
    return ()


def _is_reached(git: Git, paths: Sequence[str]) -> bool:
    """Return whether the index, a commit or the reflog has one of these paths. Raise GitError."""
    if git("--literal-pathspecs", "ls-files", "-z", "--", *paths):
        return True
    every = ("rev-list", "--all", "--reflog", "--ignore-missing", "-n", "1", "--")
    return bool(git("--literal-pathspecs", *every, *paths, seconds=_SEARCH_SECONDS))


def _is_stored(git: Git, top: Path, paths: Sequence[str]) -> bool:
    """Return whether an object has the content that one of these files has now. Raise GitError."""
    files = list(_files(top, paths))
    # Too many files to check are treated as stored.
    if len(files) > _MAX_HASHED_FILES:
        return True
    # A line break in a name cannot be told from the end of it.
    named = [file for file in files if "\n" not in file]
    if not named:
        return False
    listed = os.fsencode("\n".join(named))
    ids = git("hash-object", "--no-filters", "--stdin-paths", stdin=listed, seconds=_SEARCH_SECONDS)
    types = git("cat-file", "--batch-check=%(objecttype)", stdin=ids, seconds=_SEARCH_SECONDS)
    return any(line == b"blob" for line in types.splitlines())


def _files(top: Path, paths: Sequence[str]) -> Iterator[str]:
    """Yield the files that exist, those in folders too, at most one more than are looked at."""
    count = 0
    for path in paths:
        start = Path(top, path)
        inner = (Path(folder, name) for folder, _, names in os.walk(start) for name in names)
        for file in inner if start.is_dir() else (start,):
            if file.is_file() and not file.is_symlink():
                yield str(file)
                count += 1
            if count > _MAX_HASHED_FILES:
                return


def _with_borrowed(objects: Path) -> list[Path]:
    """Return a folder of objects and those that it borrows from, as git follows them."""
    folders = [Path(os.path.realpath(objects))]
    level = folders
    for _ in range(_MAX_BORROWING_DEPTH):
        level = [lender for folder in level for lender in _lenders(folder) if lender not in folders]
        folders = [*folders, *level]
    return folders


def _lenders(objects: Path) -> Iterator[Path]:
    try:
        lines = read_text(objects / "info/alternates", errors="surrogateescape").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        if line and not line.startswith("#"):
            yield Path(os.path.realpath(objects / line.strip('"')))
