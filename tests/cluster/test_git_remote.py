"""Commits of workspaces in a git repository that machines reach over HTTP, each with credentials of its own home."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.git_server import PASSWORD, GitServer

from retinue.cluster.git_remote import check_url, fetch, find_remote, push, push_branch, remove
from retinue.core.request import WorkerView
from retinue.errors import UsageError
from retinue.guard.git import Git, GitError

RUN = "run-1"


def sh(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@t")
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, text: str) -> str:
    (folder / "a.txt").write_text(text)
    sh(folder, "add", "-A")
    sh(folder, "commit", "-qm", text)
    return sh(folder, "rev-parse", "HEAD")


@pytest.fixture
def server(tmp_path):
    made = GitServer(tmp_path / "server")
    yield made
    made.close()


@pytest.fixture
def here(tmp_path, server):
    """A repository with one commit, on a machine that the server lets in."""
    return machine(tmp_path, server, "here")


def machine(tmp_path: Path, server: GitServer, name: str) -> Git:
    home, folder = tmp_path / f"home-{name}", tmp_path / name
    server.let_in(home)
    folder.mkdir()
    sh(folder, "init", "-q", "-b", "main")
    commit(folder, "one")
    return Git(folder, {"PATH": os.environ["PATH"], "HOME": str(home)})


def test_a_commit_gets_to_another_machine_with_its_history_and_nothing_else_there(tmp_path, server, here):
    second = commit(here.folder, "two")
    push(here, server.url, RUN, "base", [second])
    assert server.refs() == [f"refs/retinue/{RUN}/base/{second}"]
    there = machine(tmp_path, server, "there")
    before = sh(there.folder, "for-each-ref")
    fetch(there, server.url, RUN, "base", second)
    assert sh(there.folder, "log", "--format=%s", second).split() == ["two", "one"]
    assert sh(there.folder, "for-each-ref") == before
    assert not (there.folder / ".git" / "FETCH_HEAD").exists()


def test_a_newer_increment_takes_the_place_of_the_one_before_the_last(server, here):
    saved = [commit(here.folder, f"turn {number}") for number in range(3)]
    push(here, server.url, RUN, "increment", saved[:1])
    push(here, server.url, RUN, "increment", saved[:2])
    push(here, server.url, RUN, "increment", saved[1:])
    push(here, server.url, RUN, "base", saved[:1])
    assert server.refs() == [
        f"refs/retinue/{RUN}/base/{saved[0]}",
        *sorted(f"refs/retinue/{RUN}/increment/{each}" for each in saved[1:]),
    ]
    remove(server.url, RUN, here.environment)
    assert server.refs() == []
    remove(server.url, RUN, here.environment)


def test_a_branch_for_people_goes_on_is_never_overwritten_and_stays(server, here):
    first, second = commit(here.folder, "work"), commit(here.folder, "more")
    assert push_branch(here, server.url, "agent", first) == "agent"
    assert push_branch(here, server.url, "agent", second) == "agent"
    sh(here.folder, "checkout", "-q", "--orphan", "other")
    other = commit(here.folder, "something else")
    assert push_branch(here, server.url, "agent", other) == "agent-2"
    assert (server.git("rev-parse", "agent"), server.git("rev-parse", "agent-2")) == (second, other)
    remove(server.url, RUN, here.environment)
    assert server.refs() == ["refs/heads/agent", "refs/heads/agent-2"]


def test_what_someone_else_pushed_under_the_name_of_a_run_is_not_taken(tmp_path, server, here):
    first, second = commit(here.folder, "two"), commit(here.folder, "three")
    push(here, server.url, RUN, "base", [first])
    server.git("update-ref", f"refs/retinue/{RUN}/base/{second}", first)
    with pytest.raises(GitError):
        fetch(machine(tmp_path, server, "there"), server.url, RUN, "base", second)


def test_a_server_that_is_away_for_a_moment_is_asked_again(server, here):
    server.down = 1
    push(here, server.url, RUN, "base", [commit(here.folder, "two")])
    assert len(server.refs()) == 1


def test_without_credentials_it_fails_at_once_and_asks_nobody(server, here, tmp_path):
    stranger = Git(here.folder, {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "nobody")})
    with pytest.raises(GitError, match="Authentication failed"):
        push(stranger, server.url, RUN, "base", [commit(here.folder, "two")])
    assert len(server.requests) <= 3


def test_settings_of_the_repository_lead_nowhere(server, here, tmp_path):
    elsewhere = tmp_path / "elsewhere.git"
    sh(tmp_path, "init", "-q", "--bare", str(elsewhere))
    sh(here.folder, "config", f"url.{elsewhere}.insteadOf", server.url)
    sh(here.folder, "config", f"remote.{server.url}.receivepack", f"touch {tmp_path / 'started'}; git-receive-pack")
    sh(here.folder, "config", "core.sshCommand", f"touch {tmp_path / 'started'}")
    push(here, server.url, RUN, "base", [commit(here.folder, "two")])
    assert len(server.refs()) == 1
    assert sh(elsewhere, "for-each-ref") == ""
    assert not (tmp_path / "started").exists()


def test_a_shallow_clone_pushes_to_where_its_history_is(server, here, tmp_path):
    commit(here.folder, "two")
    push_branch(here, server.url, "main", sh(here.folder, "rev-parse", "HEAD"))
    clone = tmp_path / "clone"
    sh(tmp_path, "clone", "-q", "--depth", "1", server.repository.as_uri(), str(clone))
    third = commit(clone, "three")
    git = Git(clone, here.environment)
    push(git, server.url, RUN, "base", [third])
    there = machine(tmp_path, server, "there")
    fetch(there, server.url, RUN, "base", third)
    assert sh(there.folder, "log", "--format=%s", third).split() == ["three", "two", "one"]
    sh(there.folder, "checkout", "-q", third)
    fourth = commit(there.folder, "four")
    push(there, server.url, RUN, "result", [fourth])
    fetch(git, server.url, RUN, "result", fourth)
    assert sh(clone, "log", "--format=%s", fourth).split() == ["four", "three", "two"]


def test_a_remote_is_a_url_or_a_name_of_the_checkout(here):
    for url in ("https://h.example/team/a.git", "ssh://git@h.example/a", "git@h.example:team/a.git", "/srv/git/a.git"):
        assert find_remote(url, here) == url
    sh(here.folder, "remote", "add", "origin", "git@h.example:team/a.git")
    assert find_remote("origin", Git(here.folder, here.environment)) == "git@h.example:team/a.git"
    with pytest.raises(UsageError, match="neither a URL nor a remote"):
        find_remote("upstream", here)


@pytest.mark.parametrize(
    "url", ["ext::sh -c id", "-oProxyCommand=id", "ssh://-oProxyCommand=id/a", "a/b", "/srv/../etc", "https://h/a/../b"]
)
def test_what_is_no_url_for_other_machines_is_refused(url):
    with pytest.raises(UsageError, match="is not the URL"):
        check_url(url)


@pytest.mark.parametrize("who", [f"deploy:{PASSWORD}", "token-as-a-user"])
def test_a_url_with_a_secret_is_refused_without_repeating_it(who):
    with pytest.raises(UsageError, match="in its URL") as refused:
        check_url(f"https://{who}@h.example/a.git")
    assert who not in str(refused.value)


def test_a_worker_uses_only_what_its_operator_named():
    remotes = ("https://h.example/team", "git@h.example:", "/srv/git/one")
    for each in remotes:
        check_url(each)
    worker = WorkerView(id="a", host="h", pid=1, remotes=remotes)
    for url in ("https://h.example/team", "https://h.example/team/a.git", "git@h.example:x/y", "/srv/git/one"):
        assert worker.may_use(url)
    for url in (
        "https://h.example/teams/a.git",
        "https://h.example.evil/team/a",
        "git@h.example.evil:x",
        "/srv/git/two",
    ):
        assert not worker.may_use(url)
