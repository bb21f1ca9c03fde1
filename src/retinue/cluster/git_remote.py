"""Commits of workspaces in a git repository that all machines can access, in place of the database.

| ref in that repository | contents |
|---|---|
| `refs/retinue/<run>/base/<commit>` | the files at the start of a run |
| `refs/retinue/<run>/increment/<commit>` | its files after its last turn that wrote, and after the one before |
| `refs/retinue/<run>/result/<commit>` | its files at the end |
| `refs/heads/<branch>` | the same for people: never forced, and never removed by us |

git uses the settings, keys and credentials of this machine's own home. The settings of a workspace have no effect: each
command runs in an empty repository that shares the objects. All functions block: call them in a thread.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from retinue.capabilities.worktree.worktree import CHECKOUT_SECONDS
from retinue.errors import StateError, UsageError
from retinue.guard.git import REMOTES, Git, GitError, make_repository

_URL = re.compile(r"(?P<scheme>https?|ssh|git|file)://(?:(?P<user>[^/@]*)@)?(?!-)\S+")
_SHORT_SSH = re.compile(r"(?:[\w.-]+@)?\w[\w.-]*:(?!//|-)\S*")
_REMOTE_NAME = re.compile(r"\w[\w./-]*")
_GIT_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": REMOTES,
    # Otherwise ssh asks on the terminal of the worker whether to trust a host.
    "SSH_ASKPASS_REQUIRE": "force",
    "GIT_HTTP_LOW_SPEED_LIMIT": "1000",
    "GIT_HTTP_LOW_SPEED_TIME": "30",
}
_RETRY_PAUSES_SECONDS = (1.0, 3.0)
"""The pauses between attempts while a server is unavailable."""
_MAX_RETRIED_SECONDS = 20.0
"""A command that took longer to fail is not tried again."""
_PERMANENT_ERRORS = re.compile(
    r"rejected|denied|not found|does not exist|not appear to be|Authentication failed|verification failed|not allowed"
)
"""Words in git's messages about failures that a retry would not resolve."""
_MAX_BRANCH_NAMES = 20
FETCH_OPTIONS = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
"""Options of every fetch, so that it adds objects and changes nothing else."""


class RemoteAwayError(StateError):
    """A git remote is temporarily unavailable."""


def find_remote(name: str | None, git: Git) -> str:
    """Return the URL of the repository that a setting names by its URL or as a remote of the checkout; "" if `name` is
    empty. Raise UsageError, also for a URL with a password, which would get into the database."""
    if not name:
        return ""
    url = name
    if not _is_url(name):
        url = next((entry.value for entry in git.settings() if entry.name == f"remote.{name}.url"), "")
        if not _REMOTE_NAME.fullmatch(name) or not url:
            raise UsageError(
                f"The setting workspaceRemote is {name!r}, which is neither a URL nor a remote of {git.folder}.",
                remedy="Name a repository that all workers can access, or one of: git remote.",
            )
    check_url(url)
    return url


def check_url(url: str) -> None:
    """Raise UsageError unless `url` names a repository that other machines can use, without a secret."""
    if not _is_url(url) or ".." in url.split("/"):
        raise UsageError(
            f"{url!r} is not the URL of a git repository for workers.",
            remedy="Use https://HOST/PATH, ssh://USER@HOST/PATH, USER@HOST:PATH, or a whole path that is shared.",
        )
    match = _URL.fullmatch(url)
    user = match["user"] if match is not None else None
    if match is not None and user and (":" in user or match["scheme"].startswith("http")):
        hidden = url.replace(f"{user}@", "", 1)
        raise UsageError(
            f"The git remote {hidden} has a user or a password in its URL, which would be in the database.",
            remedy="Leave it out, and give git a credential helper on each machine (man gitcredentials).",
        )


def push(git: Git, url: str, run_id: str, kind: str, commits: Collection[str]) -> None:
    """Push these commits of a run to the repository at `url`, and remove its others of that kind. Raise GitError or
    RemoteAwayError."""
    with reaching(git) as near:
        for commit in commits:
            near("update-ref", f"refs/retinue/keep/{commit}", commit)
        refs = f"+refs/retinue/keep/*:refs/retinue/{run_id}/{kind}/*"
        _patiently(near, "push", "--quiet", "--prune", "--", url, refs)


def push_branch(git: Git, url: str, branch: str, commit: str) -> str:
    """Push `commit` as a branch for people, and return its name. A name that another commit has gets a number. Raise
    GitError or RemoteAwayError."""
    with reaching(git) as near:
        for number in range(1, _MAX_BRANCH_NAMES):
            name = branch if number == 1 else f"{branch}-{number}"
            try:
                _patiently(near, "push", "--quiet", "--", url, f"{commit}:refs/heads/{name}")
            except GitError as error:
                if "[rejected]" not in error.why:
                    raise
            else:
                return name
        raise GitError(("push", url), f"{branch} and {_MAX_BRANCH_NAMES - 1} other names are taken")


def fetch(git: Git, url: str, run_id: str, kind: str, commit: str) -> None:
    """Fetch a commit of a run, with its history, into the repository of `git`. Raise GitError or RemoteAwayError."""
    with reaching(git) as near:
        ref = f"refs/retinue/{run_id}/{kind}/{commit}"
        _patiently(near, "fetch", *FETCH_OPTIONS, "--", url, ref)
        # Others may push to that ref. Check that the commit named by the database has arrived.
        near("cat-file", "-e", f"{commit}^{{commit}}")


def remove(url: str, run_id: str, environment: Mapping[str, str]) -> None:
    """Remove the commits of a run from the repository at `url`; branches for people stay. Raise GitError or
    RemoteAwayError."""
    with tempfile.TemporaryDirectory(prefix="retinue-remote-") as temporary:
        folder = Path(temporary) / "none.git"
        make_repository(folder)
        near = Git(Path(temporary), environment, git_dir=folder).having(**_GIT_VARIABLES)
        listed = _patiently(near, "ls-remote", "--quiet", "--", url, f"refs/retinue/{run_id}/*").decode()
        refs = [line.split("\t")[1] for line in listed.splitlines()]
        if refs:
            _patiently(near, "push", "--quiet", "--delete", "--", url, *refs)


@contextmanager
def reaching(git: Git) -> Iterator[Git]:
    """Yield git in an empty repository that shares the objects of another, with access to other machines."""
    with tempfile.TemporaryDirectory(prefix="retinue-remote-") as temporary:
        folder = Path(temporary) / "shared.git"
        make_repository(folder)
        objects, shallow = git.text("rev-parse", "--git-path", "objects", "--git-path", "shallow").split("\n")
        if (git.folder / shallow).is_file():
            shutil.copyfile(git.folder / shallow, folder / "shallow")
        # With its refs, existing objects are not fetched again.
        listed = git("for-each-ref", "--format=%(objectname) %(refname)")
        (folder / "packed-refs").write_bytes(b"# pack-refs with: sorted \n" + listed)
        variables = {**git.variables, **_GIT_VARIABLES, "GIT_OBJECT_DIRECTORY": str((git.folder / objects).resolve())}
        yield Git(Path(temporary), git.environment, git_dir=folder, variables=variables)


def _patiently(git: Git, *arguments: str) -> bytes:
    pauses = iter(_RETRY_PAUSES_SECONDS)
    while True:
        began = time.monotonic()
        try:
            return git(*arguments, seconds=CHECKOUT_SECONDS)
        except GitError as error:
            if _PERMANENT_ERRORS.search(error.why):
                raise
            pause = next(pauses, None)
            if pause is None or time.monotonic() - began > _MAX_RETRIED_SECONDS:
                raise RemoteAwayError(f"The git remote does not answer: {error}") from error
        time.sleep(pause)


def _is_url(text: str) -> bool:
    return text.startswith("/") or any(form.fullmatch(text) for form in (_URL, _SHORT_SSH))
