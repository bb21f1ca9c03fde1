"""Commits of workspaces in a git repository that all machines reach, in place of the database.

| ref there | what it holds |
|---|---|
| `refs/retinue/<run>/base/<commit>` | the files that a run began with |
| `refs/retinue/<run>/increment/<commit>` | its files after its last turn that wrote, and after the one before |
| `refs/retinue/<run>/result/<commit>` | what it ended with |
| `refs/heads/<branch>` | the same for people: never forced, and never removed by us |

git uses the settings, keys and credentials of this machine's own home. Nothing that a repository says counts: each
command works in an empty one that shares the objects. All functions block: call them in a thread.
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
_NAME = re.compile(r"\w[\w./-]*")
_REACHING = {
    "GIT_ALLOW_PROTOCOL": REMOTES,
    # ssh would ask the terminal of the worker whether it may trust a host.
    "SSH_ASKPASS_REQUIRE": "force",
    "GIT_HTTP_LOW_SPEED_LIMIT": "1000",
    "GIT_HTTP_LOW_SPEED_TIME": "30",
}
_WAIT_SECONDS = (1.0, 3.0)
"""A server that is away for a moment is asked again."""
_SLOW_SECONDS = 20.0
"""Not one that takes so long to fail."""
_PERMANENT = re.compile(
    r"rejected|denied|not found|does not exist|not appear to be|Authentication failed|verification failed|not allowed"
)
"""What git says when asking again would not help."""
_MAX_BRANCH_NAMES = 20
FETCH = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
"""Options of every fetch: objects come, and nothing else changes."""


class RemoteAwayError(StateError):
    """A git remote does not answer now, and may later."""


def find_remote(name: str | None, git: Git) -> str:
    """Return the URL of the repository that a setting names: a URL, or the name of a remote of the checkout; empty
    without one. Raise UsageError, for a URL with a password too: it would be in the database."""
    if not name:
        return ""
    url = name
    if not _is_url(name):
        url = next((entry.value for entry in git.settings() if entry.name == f"remote.{name}.url"), "")
        if not _NAME.fullmatch(name) or not url:
            raise UsageError(
                f"The setting workspaceRemote is {name!r}, which is neither a URL nor a remote of {git.folder}.",
                remedy="Name a repository that all workers reach, or one of: git remote.",
            )
    check_url(url)
    return url


def check_url(url: str) -> None:
    """Raise UsageError for what is not the URL of a repository that other machines could use, or holds a secret."""
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
    """Let the repository at `url` have these commits of a run, and no others of that kind. Raise GitError or
    RemoteAwayError."""
    with reaching(git) as near:
        for commit in commits:
            near("update-ref", f"refs/retinue/keep/{commit}", commit)
        refs = f"+refs/retinue/keep/*:refs/retinue/{run_id}/{kind}/*"
        _patiently(near, "push", "--quiet", "--prune", "--", url, refs)


def push_branch(git: Git, url: str, branch: str, commit: str) -> str:
    """Push `commit` as a branch for people, and return its name. A name that has something else there gets a number.
    Raise GitError or RemoteAwayError."""
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
        raise GitError(("push", url), f"{branch} and {_MAX_BRANCH_NAMES - 1} other names are taken there")


def fetch(git: Git, url: str, run_id: str, kind: str, commit: str) -> None:
    """Put a commit of a run, with its history, into the repository of `git`. Raise GitError or RemoteAwayError."""
    with reaching(git) as near:
        ref = f"refs/retinue/{run_id}/{kind}/{commit}"
        _patiently(near, "fetch", *FETCH, "--", url, ref)
        # Someone else may push there: what counts is the commit that the database names.
        near("cat-file", "-e", f"{commit}^{{commit}}")


def remove(url: str, run_id: str, environment: Mapping[str, str]) -> None:
    """Remove the commits of a run from the repository at `url`; branches for people stay. Raise GitError or
    RemoteAwayError."""
    with tempfile.TemporaryDirectory(prefix="retinue-remote-") as temporary:
        folder = Path(temporary) / "none.git"
        make_repository(folder)
        near = Git(Path(temporary), environment, git_dir=folder).having(**_REACHING)
        listed = _patiently(near, "ls-remote", "--quiet", "--", url, f"refs/retinue/{run_id}/*").decode()
        refs = [line.split("\t")[1] for line in listed.splitlines()]
        if refs:
            _patiently(near, "push", "--quiet", "--delete", "--", url, *refs)


@contextmanager
def reaching(git: Git) -> Iterator[Git]:
    """Yield git in an empty repository that shares the objects of another, and reaches other machines."""
    with tempfile.TemporaryDirectory(prefix="retinue-remote-") as temporary:
        folder = Path(temporary) / "shared.git"
        make_repository(folder)
        objects, shallow = git.text("rev-parse", "--git-path", "objects", "--git-path", "shallow").split("\n")
        if (git.folder / shallow).is_file():
            shutil.copyfile(git.folder / shallow, folder / "shallow")
        # What it has need not be fetched again.
        listed = git("for-each-ref", "--format=%(objectname) %(refname)")
        (folder / "packed-refs").write_bytes(b"# pack-refs with: sorted \n" + listed)
        variables = {**git.variables, **_REACHING, "GIT_OBJECT_DIRECTORY": str((git.folder / objects).resolve())}
        yield Git(Path(temporary), git.environment, git_dir=folder, variables=variables)


def _patiently(git: Git, *arguments: str) -> bytes:
    waits = iter(_WAIT_SECONDS)
    while True:
        began = time.monotonic()
        try:
            return git(*arguments, seconds=CHECKOUT_SECONDS)
        except GitError as error:
            if _PERMANENT.search(error.why):
                raise
            wait = next(waits, None)
            if wait is None or time.monotonic() - began > _SLOW_SECONDS:
                raise RemoteAwayError(f"The git remote does not answer: {error}") from error
        time.sleep(wait)


def _is_url(text: str) -> bool:
    return text.startswith("/") or any(form.fullmatch(text) for form in (_URL, _SHORT_SSH))
