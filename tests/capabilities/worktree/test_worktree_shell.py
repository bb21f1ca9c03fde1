"""The shell of an isolated run on a host without a sandbox, where its user lets it be checked only."""

from __future__ import annotations

import pytest

from retinue.capabilities.worktree.tools import shell_objections
from retinue.core.tool import ToolContext
from retinue.runs.guard import Isolation

REFUSED = """
cd {main} && make
cd ..
cd ../..; touch x
cd $HOME && git status
cd "$(git rev-parse --show-toplevel)/.."
pushd /etc
echo x > {main}/a
echo x > ../a
echo x >> /etc/passwd
tee ~/x
cp a.txt {main}/
rm -rf ../other
touch $WHERE/x
git -C {main} status
git -C .. commit -m x
git --git-dir={main}/.git log
git --git-dir {main}/.git branch x
git --work-tree=/ add -A
GIT_DIR={main}/.git git commit -m x
env GIT_DIR=/x/.git git commit -m x
export GIT_WORK_TREE=/x
GIT_INDEX_FILE=/x git add .
git -c core.worktree=/x checkout .
git config core.worktree /x
eval "$X"
bash -c "cd {main}; touch x"
sh -c 'echo x > ../x'
python3 -c "open('/x','w')"
cat <<EOF | sh
echo x > "unterminated
timeout 5 git -C .. status
xargs -I% touch ../%
find . -exec cp a.txt ../ ;
""".strip().splitlines()

ALLOWED = """
git status --short
git add -A && git commit -m "a message"
git log --oneline -5 | head
git -C sub status
git checkout -b feature
ls -la; cat a.txt
echo x > new.txt
echo x > sub/new.txt 2>&1
cd sub && touch x
make test > /dev/null
python3 script.py
pytest -q tests
mkdir -p a/b && cp a.txt a/b/
sed -i s/a/b/ a.txt
GIT_AUTHOR_NAME=x git commit -m y
grep -rn hello . | sort > /tmp/found
""".strip().splitlines()


@pytest.fixture
def place(tmp_path):
    top, main = tmp_path / "copy", tmp_path / "main"
    (top / "sub").mkdir(parents=True)
    main.mkdir()
    isolation = Isolation("run", top, tmp_path / "copy.git", main, main)
    context = ToolContext(
        "run", (top,), tmp_path / "outputs", clearance="person", environment={"HOME": str(tmp_path / "home")}
    )
    return isolation, context


@pytest.mark.parametrize("command", REFUSED)
def test_what_leaves_the_worktree_or_cannot_be_told_is_refused(place, command):
    isolation, context = place
    assert list(shell_objections(isolation, {"command": command.format(main=isolation.main)}, context))


@pytest.mark.parametrize("command", ALLOWED)
def test_what_stays_in_it_runs(place, command):
    isolation, context = place
    assert list(shell_objections(isolation, {"command": command}, context)) == []
