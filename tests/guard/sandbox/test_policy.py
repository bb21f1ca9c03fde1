# ruff: noqa: E501 - scripts read better on one line
"""What confined shells may do, in every way there is to confine them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.guard.sandbox.conftest import readonly
from tests.guard.sandbox.scene import Scene

from retinue.errors import ConfigurationError
from retinue.guard.sandbox.box import Box
from retinue.guard.sandbox.plan import protected_places
from retinue.guard.sandbox.policy import SandboxLimits, SandboxPolicy

Make = Callable[..., Box]


@pytest.fixture
def box(scene: Scene, walls: str) -> Iterator[Make]:
    """Makes boxes that are closed at the end."""
    made: list[Box] = []

    def make(**policy: object) -> Box:
        made.append(Box(replace(readonly(scene, walls).policy, **policy), "run"))
        return made[-1]

    yield make
    for each in made:
        each.close()


ORDINARY = {
    "git-status": ("git status --short", "sub/c.txt"),
    "git-log": ("git log --oneline", "first"),
    "git-diff": ("git diff", "gamma, changed"),
    "git-grep": ("git grep -n alpha", "a.txt:1"),
    "ls": ("ls -la", "a.txt"),
    "cat": ("cat a.txt", "alpha"),
    "grep": ("grep -rn alpha . --include=*.txt", "alpha"),
    "ripgrep": ("rg -n alpha", "alpha"),
    "find": ("find . -name c.txt", "./sub/c.txt"),
    "pipeline": ("cat a.txt | sort | uniq -c | sed s/alpha/omega/ | awk '{print $2}'", "omega"),
    "process-substitution": ("diff <(cat a.txt) <(echo omega)", "< alpha"),
    "here-document": ("cat <<E\nhello\nE", "hello"),
    "python": ("$PY -c 'print(6 * 7)'", "42"),
    "python-subprocess": ('$PY -c \'import subprocess; print(subprocess.check_output(["echo", "x1"]))\'', "x1"),
    "python-threads": ("$PY -c 'import threading as t; x = t.Thread(target=print, args=(\"x1\",)); x.start()'", "x1"),
    "python-event-loop": ("$PY -c 'import asyncio; asyncio.run(asyncio.sleep(0)); print(\"x1\")'", "x1"),
    "tests-in-scratch": (
        'cd $TMPDIR && printf \'def test_it(tmp_path):\\n    (tmp_path / "f").write_text("x")\\n\' > test_x.py'
        " && PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $PY -m pytest -q -p no:cacheprovider test_x.py",
        "1 passed",
    ),
    "temporary-files": ("t=$(mktemp) && echo kept > $t && cat $t", "kept"),
    "write-to-streams": ("echo one > /dev/stdout; echo two > /dev/stderr; echo three > /dev/null", "two"),
    "random-numbers": ("head -c 4 /dev/urandom | wc -c", "4"),
    "timeout": ("timeout 5 sh -c 'echo done'", "done"),
    "own-processes": ("sleep 30 & kill $! && echo killed", "killed"),
    "own-fifo": ("mkfifo $TMPDIR/p; (echo through > $TMPDIR/p &) ; cat $TMPDIR/p", "through"),
    "compile": ("cd $TMPDIR && printf 'int main(void){return 0;}' > m.c && gcc -c m.c -o m.o && ls", "m.o"),
    "who-am-i": ("id -u", str(os.getuid())),
}


@pytest.mark.parametrize("name", ORDINARY)
async def test_reading_and_ordinary_work_goes_on(name: str, scene: Scene, box: Make):
    script, expected = ORDINARY[name]
    before = scene.traces()
    output = await scene.shell(script, box())
    if "command not found" in output.text:
        pytest.skip(output.text)
    assert expected in output.text
    assert scene.traces() == before


async def test_the_scratch_folder_goes_with_the_run(scene: Scene, box: Make):
    made = box()
    output = await scene.shell(
        "echo $TMPDIR; mkdir -p $TMPDIR/a/b; echo x > $TMPDIR/a/b/c; chmod 0 $TMPDIR/a; true", made
    )
    folder = Path(output.text.splitlines()[0])
    assert folder.is_dir()
    again = await scene.shell("ls $TMPDIR", made)
    assert "a" in again.text.split()
    made.close()
    assert not folder.parent.exists()
    made.close()


async def test_the_model_is_told_why_something_failed(scene: Scene, box: Make):
    output = await scene.shell("echo x > a.txt", box())
    assert output.is_error
    assert "this shell runs in a sandbox: only $TMPDIR can be written; there is no network" in output.text


async def test_what_a_command_leaves_running_ends_with_it(scene: Scene, box: Make):
    output = await scene.shell("setsid env -i sh -c 'exec -a telltale-sleep sleep 300' & sleep 0.1; echo over", box())
    assert "over" in output.text
    left = subprocess.run(["pgrep", "-f", "telltale-sleep"], capture_output=True, text=True)
    names = [Path(f"/proc/{pid}/cmdline") for pid in left.stdout.split()]
    assert not [name for name in names if name.exists() and name.read_bytes().startswith(b"telltale")]


async def test_a_command_that_takes_too_long_is_ended_with_its_children(scene: Scene, box: Make):
    output = await scene.shell("sleep 60 & sleep 61", box(), seconds=0.5)
    assert output.effect.exit_code == 124
    assert "stopped after 0.5 s" in output.text


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("nonsense-command", 127)])
async def test_exit_codes_come_through(script: str, code: int, scene: Scene, box: Make):
    assert (await scene.shell(script, box())).effect.exit_code == code


async def test_a_workspace_can_be_changed_and_nothing_else(scene: Scene, box: Make, walls: str):
    made = box(writable=(scene.workspace,), readonly=protected_places(scene.workspace))
    assert not made.readonly
    before = scene.traces()
    script = """
        echo changed > a.txt; mkdir made && echo x > made/x; mv ignored.txt renamed.txt; chmod 755 made/x; rm sub/c.txt
        git -c user.name=T -c user.email=t@example.invalid commit -qam 'by the agent' && git log --oneline | head -1
        echo x > $N/b.txt; echo x > $H/.bashrc; ln a.txt $N/hard; mv a.txt $N/stolen; echo x > $H/.retinue/projects/p/log.db
        echo x > /tmp/$MARK; curl -s -m 2 http://127.0.0.1:$PORT/
    """
    output = await scene.shell(script, made)
    after = scene.traces()
    assert "by the agent" in output.text
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert {path for path in changed if not path.startswith("workspace")} == set()
    assert {"workspace/a.txt", "workspace/made/x", "workspace/renamed.txt", "workspace/sub/c.txt"} <= changed
    assert scene.heard == []


@pytest.mark.parametrize("writable", [False, True])
async def test_a_workspace_that_must_stay_as_a_whole_is_seen_and_not_changed(
    scene: Scene, box: Make, writable: bool
) -> None:
    """A rule about every write asks or denies for the whole root."""
    roots = (scene.workspace,) if writable else ()
    made = box(reach="system", shown=(scene.workspace,), writable=roots, readonly=(scene.workspace,))
    before = scene.traces()
    output = await scene.shell("cat a.txt; git log --oneline; echo x > a.txt; touch sub/new; rm sub/c.txt", made)
    assert "alpha" in output.text and "first" in output.text
    assert scene.traces() == before


async def test_hooks_and_settings_in_a_workspace_stay(scene: Scene, box: Make, walls: str):
    if walls == "never":
        pytest.skip("Landlock alone cannot take a part out of a writable folder; the doctor says so")
    settings = scene.workspace / ".retinue" / "settings.json"
    settings.parent.mkdir()
    settings.write_text("{}")
    before = scene.traces()
    made = box(writable=(scene.workspace,), readonly=protected_places(scene.workspace))
    script = """
        echo x > .git/hooks/post-commit; git config core.hooksPath /tmp; mv .git/hooks .git/h; rm -rf .git/hooks
        mv .git .g; echo x > .retinue/settings.json; cp a.txt n && mv n .retinue/settings.json; rm .retinue/settings.json
        sed -i s/x/y/ .git/config
    """
    await scene.shell(script, made)
    after = scene.traces()
    for path in ("workspace/.git/config", "workspace/.git/hooks", "workspace/.retinue/settings.json"):
        assert after[path] == before[path]
    assert not list((scene.workspace / ".git" / "hooks").glob("post-commit"))


async def test_a_worktree_is_all_that_changes_while_the_main_checkout_is_read(scene: Scene, box: Make):
    tree = scene.folder / "tree"
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(scene.workspace), str(tree)], check=True)
    made = box(writable=(tree,))
    before = scene.traces()
    scene_context = scene.context(made)
    scene_context.roots = (tree,)
    from retinue.tools.bash import BashTool

    script = """
        echo mine > a.txt; git -c user.name=T -c user.email=t@example.invalid commit -qam mine && git log --oneline -1
        git -C $W commit -q --allow-empty -m evil; GIT_DIR=$W/.git git tag evil; echo x > $W/a.txt; ln -s $W out; echo x > out/a.txt
        cat $W/a.txt; git push -q origin HEAD:refs/heads/evil; git -C $W worktree add -q $N/other
    """
    output = await BashTool().run("call", {"command": script}, scene_context)
    assert "mine" in output.text and "alpha" in output.text
    assert scene.traces() == before


async def test_hidden_places_can_be_shown_in_part(scene: Scene, box: Make):
    outputs = scene.home / ".retinue" / "projects" / "p" / "outputs" / "r"
    made = box(shown=(outputs,))
    outputs.mkdir(parents=True)
    (outputs / "long.txt").write_text("the whole output\n")
    output = await scene.shell(f"cat {outputs}/long.txt; ls -R $H/.retinue; cat $H/.retinue/projects/p/log.db", made)
    assert "the whole output" in output.text
    assert "PRIVATE" not in output.text


async def test_more_hidden_places(scene: Scene, box: Make):
    (scene.neighbour / "plans").mkdir()
    (scene.neighbour / "plans" / "secret").write_text("PRIVATE")
    made = box(hidden=(scene.neighbour / "plans", scene.neighbour / "missing"))
    assert "PRIVATE" not in (await scene.shell("cat $N/plans/secret; cat $N/b.txt", made)).text


async def test_a_hidden_place_that_goes_away_meanwhile_does_no_harm(scene: Scene, box: Make):
    made = box()
    assert not (await scene.shell("true", made)).is_error
    (scene.home / ".ssh" / "id_ed25519").unlink()
    (scene.home / ".ssh").rmdir()
    output = await scene.shell("echo x > $TMPDIR/x && cat $TMPDIR/x; ls -A $H", made)
    assert output.text.splitlines()[0] == "x"


async def test_limits_hold(scene: Scene, box: Make):
    few = SandboxLimits(processes=310, memory_bytes=300 * 1024**2, cpu_seconds=1, file_bytes=1024**2)
    made = box(limits=few)
    big = await scene.shell("head -c 3000000 /dev/zero > $TMPDIR/big; ls -l $TMPDIR/big | awk '{print $5}'", made)
    assert "1048576" in big.text
    assert "MemoryError" in (await scene.shell("$PY -c 'b = bytearray(600 * 1024 ** 2)'", made)).text
    busy = await scene.shell("sh -c 'while :; do :; done'", made, seconds=30)
    assert busy.effect.exit_code in (137, 152)
    raised = await scene.shell("ulimit -f unlimited", made)
    assert raised.is_error


async def test_a_fork_bomb_is_contained(scene: Scene, box: Make, walls: str):
    if walls != "must" and os.getuid() == 0:
        pytest.skip("the kernel counts no processes of root's outside of a process namespace of its own")
    script = "n=0; while [ $n -lt 800 ]; do sleep 20 & n=$((n+1)); done 2>/dev/null; ls /proc | grep -c '^[0-9]'"
    output = await scene.shell(script, box(limits=SandboxLimits(processes=310)), seconds=30)
    counts = [int(line) for line in output.text.splitlines() if line.isdigit()]
    assert not counts or counts[-1] < 800 or walls != "must"


async def test_with_network_on_others_are_reached_but_not_local_services(scene: Scene, box: Make):
    made = box(network="on")
    assert not made.readonly
    output = await scene.shell("echo hi > /dev/tcp/127.0.0.1/$PORT && echo sent; nc -w 1 -U $SOCK < a.txt", made)
    assert "sent" in output.text
    for _ in range(1000):
        if scene.heard:
            break
        subprocess.run(["true"])
    assert scene.heard == ["tcp"]


async def test_programs_talk_to_themselves_inside(scene: Scene, box: Make, walls: str):
    if walls == "never":
        pytest.skip("without a network of its own a program has none")
    code = "import socket as s\na = s.create_server(('127.0.0.1', 0))\nb = s.create_connection(a.getsockname())\nprint('met')"
    assert "met" in (await scene.shell(f"$PY - <<'E'\n{code}\nE", box())).text


SECRET = """
GITHUB_TOKEN NPM_TOKEN MY_API_KEY DB_PASSWORD AWS_ACCESS_KEY_ID AWS_PROFILE SSH_AUTH_SOCK STRIPE_SECRET LD_PRELOAD
LD_LIBRARY_PATH BASH_ENV ENV PYTHONSTARTUP PYTHONPATH GIT_DIR GIT_CONFIG_GLOBAL GIT_SSH_COMMAND DISPLAY PROMPT_COMMAND
DBUS_SESSION_BUS_ADDRESS NODE_OPTIONS OPENAI_API_KEY SLACK_WEBHOOK RETINUE_HOME
"""


async def test_secrets_of_the_environment_are_left_out(scene: Scene, box: Make):
    made = box(pass_environment=("NPM_TOKEN",))
    secret = dict.fromkeys(SECRET.split(), "value")
    secret["DATABASE_URL"] = "postgres://u:p@h/db"
    secret["SOME_LINK"] = "https://user:hunter2@example.invalid/x"
    ordinary = {"LANG": "C.UTF-8", "EDITION": "2", "KEYBOARD": "de", "MONKEY": "1", "GOPATH": "/g", "VIRTUAL_ENV": "/v"}
    kept = made.environment({**secret, **ordinary})
    assert secret.keys() & kept.keys() == {"NPM_TOKEN"}
    assert ordinary.items() <= kept.items()
    assert kept["TMPDIR"] == str(made.scratch)


DOCUMENTED = re.findall(
    r"`([A-Z][A-Z0-9_]+)`",
    Path(__file__).parents[3].joinpath("docs/trust.md").read_text().partition("| kept back |")[2].partition("`PWD`")[0],
)


def test_variables_that_the_documents_name_as_kept_back_are(scene: Scene):
    assert len(DOCUMENTED) > 20
    more = "PGPASSWORD MYSQL_PWD APP_CRED X_CREDS DB_PWD SSHPASS db_password DBPASS2 MY_PIN RABBITMQ_PASS".split()
    stays = "PWD OLDPWD PATH HOME LANG MONKEY KEYBOARD TOKENIZERS_PARALLELISM AUTHOR PATIENCE PINNED COMPASSION".split()
    with_box = Box(SandboxPolicy(), "run")
    kept = with_box.environment(dict.fromkeys((*DOCUMENTED, *more, *stays), "value"))
    with_box.close()
    assert [name for name in (*DOCUMENTED, *more) if name in kept] == []
    assert [name for name in stays if name not in kept] == []


def test_the_whole_file_system_is_no_workspace():
    with pytest.raises(ConfigurationError, match="whole file system"):
        Box(SandboxPolicy(writable=(Path("/"),)))


async def test_a_working_directory_that_is_gone_is_said(scene: Scene, box: Make, tmp_path: Path):
    argv = box().wrap(["/bin/true"], tmp_path / "gone")
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 125
    assert "retinue sandbox" in done.stderr
