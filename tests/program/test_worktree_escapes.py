"""Attempts of an isolated agent to change the main checkout through its shell, on the real kernel.

All of them run in one worktree after another; at the end the checkout has the same files, index,
HEAD, refs, configuration, hooks and objects as before.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.guard.sandbox.kernel import can_confine
from tests.program.conftest import Project
from tests.program.test_worktree import RUN, repository, script, snapshot, state, text_of  # noqa: F401 - a fixture

pytestmark = pytest.mark.skipif(not can_confine(), reason="this host cannot confine programs")

ATTEMPTS = """
echo x > $M/escape
echo x >> $M/README.md
: > $M/README.md
tee $M/escape < README.md
cp README.md $M/escape
mv README.md $M/escape
ln README.md $M/escape
ln -s /etc/passwd $M/escape
install -m 644 README.md $M/escape
dd if=/dev/zero of=$M/README.md bs=1 count=1 conv=notrunc
truncate -s 0 $M/README.md
touch $M/escape
touch -d 2001-01-01 $M/README.md
chmod 777 $M/README.md
chmod -R a-r $M
chown 12345 $M/README.md
rm $M/README.md
rm -rf $M/src
rm -rf $M/.git
rmdir $M/src
mkdir $M/escape
mkfifo $M/escape
sed -i s/hello/evil/ $M/src/app.py
perl -pi -e s/hello/evil/ $M/src/app.py
python3 -c "open('$M/escape','w').write('x')"
python3 -c "import os; os.rename('$M/README.md','$M/x')"
python3 -c "import os; os.chdir('$M'); os.unlink('README.md')"
cd $M && echo x > escape
cd $M/src && echo x > ../escape
cd "$(printf '%s' $M)" && touch escape
d=$M; eval "touch $d/escape"
bash -c "cd $M; touch escape"
sh -c 'touch "$0/escape"' $M
env touch $M/escape
xargs touch <<< $M/escape
find . -maxdepth 0 -exec touch $M/escape ';'
ln -s $M up; echo x > up/escape
ln -s $M/README.md link; echo x > link
mkdir deep; cd deep; ln -s $M m; touch m/escape
echo x > ../../../../../../project/escape
touch /proc/self/root$M/escape
touch /proc/1/root$M/escape
exec 9<$M; touch /proc/self/fd/9/escape
cat > /dev/fd/3 3>$M/README.md < README.md
(touch $M/escape) & wait
nohup sh -c "sleep 0.3; touch $M/escape" > /dev/null 2>&1 &
setsid -f sh -c "sleep 0.3; touch $M/escape"
git -C $M commit -q --allow-empty -m evil
git -C $M checkout -q -b evil
git -C $M reset -q --hard HEAD~0
git -C $M branch evil
git -C $M tag evil
git -C $M config evil.key value
git -C $M stash push -u
git -C $M add -A
git -C $M rm -q --cached README.md
git -C $M gc -q --prune=now
git -C $M worktree add -q $M/escape
git -C $M worktree prune
git -C $M worktree unlock $PWD
git -C $M worktree remove --force --force $PWD
git -C $M update-ref refs/heads/main HEAD~0
git -C $M symbolic-ref HEAD refs/heads/evil
git -C $M remote add evil /nowhere
git -C $M notes add -m evil
git --git-dir=$M/.git --work-tree=$M checkout -q -b evil
git --git-dir $M/.git update-ref -d refs/heads/main
GIT_DIR=$M/.git git branch evil
GIT_DIR=$M/.git GIT_WORK_TREE=. git add -A
GIT_DIR=$M/.git GIT_INDEX_FILE=$PWD/i git commit -q --allow-empty -m evil
GIT_WORK_TREE=$M git checkout -q -f -- .
export GIT_DIR=$M/.git; git commit -q --allow-empty -m evil
GIT_OBJECT_DIRECTORY=$M/.git/objects git hash-object -w README.md
git push -q $M HEAD:refs/heads/evil
git push -q --force $M HEAD:main
git fetch -q . HEAD && git -C $M fetch -q $PWD HEAD:evil
git worktree add -q $M/escape
git init -q $M/escape
git clone -q . $M/escape
git archive HEAD -o $M/escape.tar
git format-patch -q -o $M/patches --root HEAD
git bundle create $M/escape.bundle HEAD
git config core.worktree $M; git checkout -q -f -- .; git config --unset core.worktree
git config core.hooksPath $M/hooks; mkdir -p $M/hooks
cp .git .b; echo "gitdir: $M/.git" > .git; git commit -q --allow-empty -m evil; git branch evil; cp .b .git
printf '#!/bin/sh\\ntouch $M/escape\\n' > $M/.git/hooks/pre-commit
echo evil > $M/.git/HEAD
echo evil > $M/.git/refs/heads/main
echo '[core] fsmonitor = touch $M/escape' >> $M/.git/config
rm -rf $M/.git/objects/*
rm -rf $M/.git/worktrees
echo evil > $(git rev-parse --git-common-dir)/../../evil
tar cf $M/escape.tar README.md
tar -C $M -xf /dev/null && tar cf - README.md | tar -C $M -xf -
rsync README.md $M/escape || cpio -p $M/escape <<< README.md
patch $M/README.md < /dev/null; printf 'w %s/escape\\nq\\n' $M | ed -s README.md
vim -es -c "w $M/escape" -c q README.md; awk "BEGIN{print 1 > \\"$M/escape\\"}"
unshare -r -m sh -c "mount -o remount,rw $M; touch $M/escape"
mount --bind . $M
""".strip().splitlines()


def test_no_shell_of_an_isolated_run_changes_the_main_checkout(project: Project, repository, serve):  # noqa: F811
    assert len(ATTEMPTS) >= 60
    made = [("bash", {"command": f"M={project.cwd}\n{line}", "timeout": 20}) for line in ATTEMPTS]
    batches = [made[at : at + 20] for at in range(0, len(made), 20)]
    after = [("write", {"path": "work.txt", "content": "still working\n"}), ("bash", {"command": "git status --short"})]
    server = serve(script(*batches, after, "done"))
    before = snapshot(repository)
    contents = {path: Path(path).read_bytes() for path in before["objects"]}
    done = project.retinue("run", "general-purpose", "escape", *RUN)
    assert done.returncode == 0, done.stderr
    now = snapshot(repository)
    assert {**now, "objects": None} == {**before, "objects": None}
    assert {path: Path(path).read_bytes() for path in before["objects"]} == contents
    assert repository.git("status", "--porcelain") == ""
    assert repository.git("fsck", "--no-dangling") == ""
    told = [text_of(part) for part in server.requests[-1].results]
    assert len(told) == len(ATTEMPTS) + 2
    tried = [line for line, text in zip(ATTEMPTS, told, strict=False) if "denied" not in text and "sandbox" not in text]
    harmless = [line for line in tried if "Read-only" not in told[ATTEMPTS.index(line)]]
    assert len(harmless) < len(ATTEMPTS) / 2, harmless
    branch = repository.git("for-each-ref", "--format=%(refname:short)", "refs/heads/retinue-agent-*").split()[0]
    assert repository.git("show", f"{branch}:work.txt") == "still working"
    left = list((state(project) / "worktrees").iterdir())
    assert left == [] or "stays at" in done.stdout + done.stderr, left
