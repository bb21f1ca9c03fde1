"""Q02: how worktrees end. Nothing in them is lost, whatever state the agent left them in."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading

import pytest
from msgspec import to_builtins

from retinue.capabilities.worktree import save as worktree_save
from retinue.capabilities.worktree.record import load, load_records, store
from retinue.guard.git import GitError
from retinue.testing.fixtures import temporary_repository


def test_no_changes_leaves_no_branch_and_no_directory(scene):
    before = scene.snapshot()
    saved = scene.finish(scene.make())
    assert (saved.branch, saved.remaining_folder, saved.notes) == (None, None, ())
    assert scene.left() == []
    assert scene.git("worktree", "list").count("\n") == 0
    assert scene.git("for-each-ref", "refs/heads/retinue-agent-*", "refs/retinue") == ""
    assert scene.snapshot() == before


def test_changes_become_a_commit_on_a_branch(scene):
    worktree = scene.make(description="Fix the\nlogin " + "x" * 300)
    scene.shell(
        worktree, "echo b >> a.txt; rm sub/b.txt; echo n > new.txt; mkdir d; ln -s ../a.txt d/link; chmod +x a.txt"
    )
    before = scene.snapshot()
    saved = scene.finish(worktree)
    assert saved.branch == f"retinue-agent-{worktree.run}"
    assert saved.remaining_folder is None and scene.left() == []
    assert scene.git("diff", "--name-status", f"main..{saved.branch}").split() == (
        ["M", "a.txt", "A", "d/link", "A", "new.txt", "D", "sub/b.txt"]
    )
    subject = scene.git("log", "-1", "--format=%s", saved.branch)
    assert subject.startswith("retinue: Fix the login xxx") and len(subject) == len("retinue: ") + 200
    assert scene.git("ls-tree", saved.branch, "a.txt").startswith("100755")
    assert scene.snapshot() == before


def test_work_is_saved_while_another_git_makes_a_worktree(scene):
    """git names no commit in the HEAD of a new worktree at first, and a git that looks at all of them dies of it."""
    worktree = scene.make()
    scene.shell(worktree, "echo b >> a.txt")
    scene.git("worktree", "add", "-q", "--detach", str(scene.path.with_name("theirs")))
    head = scene.path / ".git" / "worktrees" / "theirs" / "HEAD"
    whole = head.read_text()
    head.write_text("0" * 40 + "\n")
    pending = threading.Timer(0.3, lambda: head.write_text(whole))
    pending.start()
    saved = scene.finish(worktree)
    pending.join()
    assert saved.remaining_folder is None
    assert scene.show(f"{saved.branch}:a.txt") == "a\nb"


def test_the_author_is_the_user_or_a_fallback(scene):
    first = scene.make()
    (first.path / "x").write_text("x")
    assert scene.git("log", "-1", "--format=%an <%ae>", scene.finish(first).branch) == "Retinue <retinue@localhost>"
    scene.git("config", "user.name", "Ada")
    scene.git("config", "user.email", "ada@example.invalid")
    second = scene.make()
    (second.path / "x").write_text("x")
    assert scene.git("log", "-1", "--format=%an <%ae>", scene.finish(second).branch) == "Ada <ada@example.invalid>"


def test_a_failing_pre_commit_hook_and_signing_do_not_matter(scene):
    hook = scene.path / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    scene.git("config", "commit.gpgSign", "true")
    scene.git("config", "gpg.program", "false")
    worktree = scene.make()
    (worktree.path / "x").write_text("x")
    assert scene.show(f"{scene.finish(worktree).branch}:x") == "x"


def test_clean_but_head_moved_is_a_branch(scene):
    worktree = scene.make()
    scene.shell(worktree, "echo 1 > one; git add one; git commit -qm one")
    saved = scene.finish(worktree)
    assert scene.git("log", "--format=%s", f"main..{saved.branch}") == "one"


def test_what_is_left_uncommitted_comes_on_top_of_the_agents_own_commits(scene):
    worktree = scene.make(description="Fix it")
    scene.shell(worktree, "echo 1 > one; git add one; git commit -qm one; echo 2 > two")
    saved = scene.finish(worktree)
    assert scene.git("log", "--format=%s", f"main..{saved.branch}").splitlines() == ["retinue: Fix it", "one"]
    assert scene.show(f"{saved.branch}:two") == "2"


def test_an_existing_branch_is_never_moved(scene):
    worktree = scene.make()
    taken = f"retinue-agent-{worktree.run}"
    scene.git("branch", taken, "main")
    (worktree.path / "x").write_text("x")
    saved = scene.finish(worktree)
    assert saved.branch == f"{taken}-2"
    assert scene.git("rev-parse", taken) == scene.git("rev-parse", "main")


def test_a_branch_folder_of_that_name_gets_another_name(scene):
    worktree = scene.make()
    scene.git("branch", f"retinue-agent-{worktree.run}/below", "main")
    (worktree.path / "x").write_text("x")
    saved = scene.finish(worktree)
    assert saved.remaining_folder is None and scene.show(f"{saved.branch}:x") == "x"


def test_a_deleted_directory_is_fine_and_its_commits_are_kept(scene):
    empty, worked = scene.make(), scene.make()
    scene.shell(worked, "echo 1 > one; git add one; git commit -qm one")
    for worktree in (empty, worked):
        subprocess.run(["rm", "-rf", str(worktree.path)], check=True)
    assert scene.finish(empty).branch is None
    assert scene.show(f"{scene.finish(worked).branch}:one") == "1"
    assert scene.left() == [] and "locked" not in scene.git("worktree", "list", "--porcelain")


def test_everything_deleted_is_fine_too(scene):
    worktree = scene.make()
    subprocess.run(["rm", "-rf", str(worktree.path), str(worktree.git)], check=True)
    assert scene.finish(worktree).remaining_folder is None
    assert scene.left() == []


def test_staged_only_unstaged_only_and_both_at_once(scene):
    worktree = scene.make()
    scene.shell(worktree, "echo staged > a.txt; git add a.txt; echo later >> a.txt; echo s > s; git add s; echo u > u")
    saved = scene.finish(worktree)
    assert scene.show(f"{saved.branch}:a.txt") == "staged\nlater"
    assert scene.git("diff", "--name-only", f"main..{saved.branch}").split() == ["a.txt", "s", "u"]


def test_ignored_files_are_not_committed_and_named_before_they_go(scene):
    worktree = scene.make()
    scene.shell(worktree, "echo l > x.log; mkdir build; echo b > build/b")
    saved = scene.finish(worktree)
    assert saved.branch is None
    assert saved.notes == ("ignored files it wrote are not in the branch and went with its worktree: build/, x.log",)


def test_of_many_ignored_files_a_few_are_named_and_the_others_counted(scene):
    worktree = scene.make()
    scene.shell(worktree, "for n in $(seq -w 1 14); do echo l > $n.log; done")
    (note,) = scene.finish(worktree).notes
    assert note.endswith("09.log, 10.log and 4 more")


def test_files_in_the_folder_of_an_unfilled_submodule_keep_the_directory(scene, tmp_path):
    with temporary_repository({"s": "1\n"}, path=tmp_path / "module") as module:
        scene.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(module.path), "mod")
        scene.repository.commit("with a submodule")
    untouched, written = scene.make(), scene.make()
    assert scene.finish(untouched).remaining_folder is None
    scene.shell(written, "mkdir -p mod/deep; echo work > mod/deep/x; echo y > y")
    saved = scene.finish(written)
    assert saved.remaining_folder == written.path
    assert (saved.remaining_folder / "mod/deep/x").read_text() == "work\n"
    assert scene.show(f"{saved.branch}:y") == "y"
    assert any("where a submodule belongs, which cannot be committed: mod" in note for note in saved.notes)


@pytest.mark.parametrize("commit", ["true", "git add -A && git commit -qm all"])
def test_files_that_were_copied_in_never_get_into_the_branch(scene, commit):
    """Also where the .gitignore that names them is not committed."""
    scene.repository.write({".gitignore": "*.log\nbuild/\n.env\n\\[odd] \\*\n", ".env": "KEY=1\n", "[odd] *": "x"})
    scene.repository.write({".worktreeinclude": ".env\n\\[odd] \\*\n"})
    worktree = scene.make()
    assert (worktree.path / ".env").read_text() == "KEY=1\n"
    assert (worktree.path / "[odd] *").exists()
    scene.shell(worktree, f"echo mine > mine; echo o > 'o 1'; {commit}")
    saved = scene.finish(worktree)
    assert saved.branch is not None
    assert scene.git("diff", "--name-only", f"main..{saved.branch}").split("\n") == ["mine", "o 1"]


def test_files_become_folders_links_and_back(scene):
    worktree = scene.make()
    scene.shell(worktree, "rm a.txt; mkdir a.txt; echo in > a.txt/in; rm -r sub; ln -s /etc sub; mkdir empty")
    saved = scene.finish(worktree)
    assert saved.remaining_folder is None, saved.notes
    assert scene.git("ls-tree", "-r", "--name-only", saved.branch).split() == [".gitignore", "a.txt/in", "sub"]
    again = scene.make(start=scene.git("rev-parse", saved.branch))
    scene.shell(again, "rm -r a.txt sub; echo f > a.txt; mkdir sub; echo b > sub/b")
    assert scene.git("ls-tree", "-r", "--name-only", scene.finish(again).branch).split() == [
        ".gitignore",
        "a.txt",
        "sub/b",
    ]


def test_large_and_binary_files(scene):
    worktree = scene.make()
    (worktree.path / "large.bin").write_bytes(os.urandom(1 << 20) * 8)
    (worktree.path / "zeros").write_bytes(bytes(1000))
    saved = scene.finish(worktree)
    assert scene.git("cat-file", "-s", f"{saved.branch}:large.bin") == str(8 << 20)


def test_detached_commits_other_branches_tags_stash_and_amends_stay_reachable(scene):
    worktree = scene.make()
    made = scene.shell(
        worktree,
        """
        c() { echo $1 > $1; git add $1; git commit -qm $1; git rev-parse HEAD; }
        git checkout -q -b feature; c one; c two
        git checkout -q --detach main; c abandoned
        git checkout -q main; c onmain; git reset -q --hard HEAD~1
        c before; git commit -q --amend -m after; git rev-parse HEAD
        git tag -a -m tagged v1; git tag light; git checkout -q --orphan fresh; c root
        git checkout -q main; echo stash > a.txt; git stash -q; git rev-parse refs/stash
        git branch -D feature; git reflog expire --expire=now --all
        """,
    )
    shas = [line for line in made.split() if len(line) == 40]
    assert len(shas) == 8
    saved = scene.finish(worktree)
    assert saved.remaining_folder is None, saved.notes
    reachable = set(scene.git("rev-list", "--all").split())
    assert set(shas) <= reachable
    assert scene.git("fsck", "--unreachable", "--no-reflogs") == ""
    assert any("abandoned" in note for note in saved.notes)
    assert any("its branch fresh is saved as" in note for note in saved.notes)


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("git merge other", "merge"),
        ("git rebase other", "rebase"),
        ("git cherry-pick other", "pick"),
    ],
)
def test_unfinished_merges_are_committed_as_they_are(scene, script, what):
    scene.git("checkout", "-q", "-b", "other")
    scene.repository.commit("theirs", {"a.txt": "theirs\n"})
    scene.git("checkout", "-q", "main")
    worktree = scene.make()
    scene.shell(worktree, f"echo ours > a.txt; git commit -qam ours; {script}", good=False)
    saved = scene.finish(worktree)
    assert saved.remaining_folder is None and any(what in note for note in saved.notes)
    assert "<<<<<<<" in scene.show(f"{saved.branch}:a.txt")
    assert "ours" in scene.git("log", "--all", "--format=%s")


@pytest.mark.parametrize("where", ["nested", "build/nested"])
def test_a_repository_inside_keeps_the_directory(scene, where):
    worktree = scene.make()
    commit = "git add i; git -c user.name=t -c user.email=t@t commit -qm inner"
    inside = f"mkdir -p {where}; cd {where}; git init -q; echo i > i; {commit}"
    scene.shell(worktree, f"echo x > x; {inside}")
    saved = scene.finish(worktree)
    assert saved.remaining_folder == worktree.path
    assert str(saved.remaining_folder / where) in saved.notes[-1]
    assert scene.show(f"{saved.branch}:x") == "x"
    assert (saved.remaining_folder / where / "i").exists()
    assert [each.reason for each in load_records(scene.state)]


def test_a_repository_in_the_place_of_ours_keeps_the_directory(scene):
    worktree = scene.make()
    commit = "git add -A; git -c user.name=t -c user.email=t@t commit -qm inner"
    scene.shell(worktree, f"rm .git; git init -q; echo x > x; {commit}")
    saved = scene.finish(worktree)
    assert saved.remaining_folder == worktree.path and "another repository" in saved.notes[-1]
    assert scene.show(f"{saved.branch}:x") == "x"


def test_a_git_error_keeps_the_directory_and_says_where(scene, monkeypatch):
    worktree = scene.make()
    (worktree.path / "x").write_text("x")

    def fails(*_):
        raise GitError(("fetch",), "the disk is full")

    monkeypatch.setattr(worktree_save, "save_commits", fails)
    saved = scene.finish(worktree)
    assert saved.remaining_folder == worktree.path and saved.branch is None
    assert "the disk is full" in saved.notes[0] and str(worktree.path) in saved.notes[0]
    monkeypatch.undo()
    again = scene.finish(worktree)
    assert again.remaining_folder is None and scene.show(f"{again.branch}:x") == "x"


def test_a_repository_that_is_gone_keeps_the_directory(scene):
    worktree = scene.make()
    (worktree.path / "x").write_text("x")
    scene.path.rename(scene.path.with_name("moved"))
    saved = scene.finish(worktree)
    assert saved.remaining_folder is not None
    scene.path.with_name("moved").rename(scene.path)
    assert scene.show(f"{scene.finish(worktree).branch}:x") == "x"


def test_a_lock_of_the_user_is_never_touched(scene):
    worktree = scene.make()
    scene.git("worktree", "unlock", str(worktree.path))
    scene.git("worktree", "lock", "--reason", "mine", str(worktree.path))
    saved = scene.finish(worktree)
    assert saved.remaining_folder is not None and "locked by you" in saved.notes[0]
    assert "locked mine" in scene.git("worktree", "list", "--porcelain")
    scene.git("worktree", "unlock", str(worktree.path))
    assert scene.finish(worktree).remaining_folder is None


def test_the_branch_of_an_earlier_attempt_moves_on_only_from_where_it_was_left(scene):
    first = scene.make("attempt-run")
    (first.path / "one").write_text("1")
    branch = scene.finish(first).branch
    start = scene.git("rev-parse", branch)
    second = scene.make("attempt-run", start=start, branch=branch)
    (second.path / "two").write_text("2")
    assert scene.finish(second).branch == branch
    assert scene.git("log", "--format=%s", f"main..{branch}").count("retinue:") == 2
    tip = scene.git("rev-parse", branch)
    third = scene.make("attempt-run", start=tip, branch=branch)
    (third.path / "three").write_text("3")
    scene.git("checkout", "-q", branch)
    assert scene.finish(third).branch == f"{branch}-2"
    assert scene.git("rev-parse", branch) == tip
    fourth = scene.make("attempt-run", start=tip, branch=branch)
    assert scene.finish(fourth).branch == branch


@pytest.mark.parametrize("phase", ["saved", "removing"])
def test_a_kill_in_the_middle_of_the_end_is_finished_by_the_next(scene, monkeypatch, phase):
    worktree = scene.make()
    scene.shell(worktree, "echo x > x; git add x; git commit -qm mine; echo y > y; chmod 500 sub")

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(worktree_save, "discard", killed)
    with pytest.raises(KeyboardInterrupt):
        scene.finish(worktree)
    monkeypatch.undo()
    if phase == "removing":
        (worktree.path / "a.txt").unlink()
    else:
        record = load(worktree.file)
        store(type(record)(**{**{k: getattr(record, k) for k in to_builtins(record)}, "phase": "open"}))
    saved = scene.finish(worktree)
    assert saved.remaining_folder is None and scene.left() == []
    branches = scene.git("for-each-ref", "--format=%(refname:short)", "refs/heads/retinue-agent-*").split()
    assert branches == [f"retinue-agent-{worktree.run}"]
    assert scene.git("ls-tree", "-r", "--name-only", branches[0]).split() == [
        ".gitignore",
        "a.txt",
        "sub/b.txt",
        "x",
        "y",
    ]


EVIL = {
    "filter": "git config filter.evil.clean 'touch {mark}; cat'; echo '* filter=evil' > .gitattributes",
    "fsmonitor": "git config core.fsmonitor 'touch {mark}'",
    "hooks": "mkdir -p $(git rev-parse --git-dir)/hooks; for h in pre-commit post-checkout reference-transaction; do "
    "printf '#!/bin/sh\\ntouch {mark}\\n' > $(git rev-parse --git-dir)/hooks/$h; "
    "chmod +x $(git rev-parse --git-dir)/hooks/$h; done",
    "hooks path": "git config core.hooksPath $PWD/h; mkdir h; printf '#!/bin/sh\\ntouch {mark}\\n' > h/pre-commit",
    "include": "git config include.path $PWD/.evil; printf '[core]\\n\\tfsmonitor = touch {mark}\\n' > .evil",
    "worktree config": "git config extensions.worktreeConfig true; git config --worktree core.fsmonitor 'touch {mark}'",
    "nested": "git init -q n; cd n; git commit -q --allow-empty -m n; git config core.fsmonitor 'touch {mark}'; "
    "git config filter.evil.clean 'touch {mark}; cat'; echo '* filter=evil' > .gitattributes; echo f > f",
    "upload": "git config uploadpack.packObjectsHook 'touch {mark}; git'",
    "alias": "git config alias.rev-parse '!touch {mark}'",
    "sequence editor": "git config core.editor 'touch {mark}'; git config gpg.program 'touch {mark}'",
    "commondir": "echo {main}/.git > $(git rev-parse --git-dir)/commondir",
    "gitfile": "echo 'gitdir: {main}/.git' > .git",
    "linked objects": "d=$(git rev-parse --git-dir); mv $d/objects $d/o; ln -s {main}/.git/objects $d/objects",
    "linked head": "d=$(git rev-parse --git-dir); rm $d/HEAD; ln -s {main}/.git/HEAD $d/HEAD",
    "linked index": "d=$(git rev-parse --git-dir); rm $d/index; ln -s {main}/.git/index $d/index",
    "linked refs": "d=$(git rev-parse --git-dir); rm -r $d/refs; ln -s {main}/.git/refs $d/refs",
    "alternates": "echo {main}/nowhere > $(git rev-parse --git-dir)/objects/info/alternates",
    "garbage head": "echo rubbish > $(git rev-parse --git-dir)/HEAD",
    "garbage index": "echo rubbish > $(git rev-parse --git-dir)/index",
}


@pytest.mark.parametrize("trick", EVIL)
def test_nothing_an_agent_prepared_is_run_or_followed_by_our_own_git(scene, tmp_path, trick):
    """The end of a run is not sandboxed: what the agent left in its repository must not decide."""
    worktree = scene.make()
    before, mark = scene.snapshot(), tmp_path / "mark"
    scene.shell(worktree, "echo w > w; " + EVIL[trick].format(mark=mark, main=scene.path), good=False)
    mark.unlink(missing_ok=True)  # the agent's own git may have run it, confined as it was
    saved = scene.finish(worktree)
    assert not mark.exists()
    assert scene.snapshot() == before
    assert (saved.remaining_folder / "w" if saved.remaining_folder else None) is None or (
        saved.remaining_folder / "w"
    ).exists()
    if saved.remaining_folder is None:
        assert scene.show(f"{saved.branch}:w") == "w"


def test_a_program_that_lives_on_cannot_slip_in_a_filter_while_we_save(scene, tmp_path):
    worktree, mark, over = scene.make(), tmp_path / "mark", threading.Event()
    scene.shell(worktree, "echo '* filter=evil' > .gitattributes; for n in $(seq 50); do echo $n > f$n; done")
    evil = (worktree.git / "config").read_text()
    evil += f'[filter "evil"]\n\tclean = "touch {mark}; cat"\n'
    evil += f'[remote "{worktree.git}"]\n\tuploadpack = "touch {mark}"\n'

    def rewrite():
        while not over.is_set():
            with contextlib.suppress(OSError):
                (worktree.git / "config").write_text(evil)

    thread = threading.Thread(target=rewrite)
    thread.start()
    try:
        scene.finish(worktree)
    finally:
        over.set()
        thread.join()
    assert not mark.exists()
