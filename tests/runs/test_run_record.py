"""What the record of a run tells its parent: what it did, and no secret."""

from tests.runs.run_scene import Scene, until

from retinue.core.events import ToolEnded
from retinue.runs.notifications import announcement

SECRET = "ghp_" + "a1B2c3D4e5" * 4


async def test_a_parent_hears_of_no_secret_and_that_nothing_was_done(tmp_path, monkeypatch):
    async with Scene(tmp_path, monkeypatch) as scene:
        main = await scene.main(permission_mode="bypassPermissions")
        child = await scene.child(main, "child")
        scene.model("child").say(f"Updated `src/x.py`. The key is {SECRET}.")
        await until(lambda: not child.live)
        outcome = child.outcome
        assert SECRET not in outcome.text
        heard = announcement([child.snapshot()]).text
        assert "<note>Record: no tool calls.</note>" in heard
        assert SECRET not in heard


async def test_a_parent_reads_files_commands_checks_and_denials_whatever_the_answer_says(tmp_path, monkeypatch):
    async with Scene(tmp_path, monkeypatch) as scene:
        main = await scene.main(permission_mode="bypassPermissions")
        child = await scene.child(main, "child")
        model = scene.model("child")
        model.call("write", path="a.py", content="x = 1\n")
        model.call("bash", command=f"false # {SECRET}")
        model.call("bash", command="make test")
        model.call("bash", command="rm -rf /")
        await model.asked()
        model.say("Ran pytest and all 12 tests pass.")
        await until(lambda: not child.live)
        heard = announcement([child.snapshot()]).text
        line = next(line for line in heard.splitlines() if line.startswith("<note>Record: "))
        assert "Record: 1 file changed (a.py); commands: `false # " in line
        assert "` exit 1; checks: `make test` exit 2; 1 call denied.</note>" in line
        assert SECRET not in heard


async def test_the_record_of_a_run_counts_what_its_agents_did(tmp_path, monkeypatch):
    async with Scene(tmp_path, monkeypatch) as scene:
        main = await scene.main(permission_mode="bypassPermissions")
        child = await scene.child(main, "child")
        scene.model("child").call("bash", command="echo hi > made.txt")
        await scene.model("child").asked()
        scene.model("child").say("done")
        await until(lambda: not child.live)
        scene.model("main").standing = "All done."  # also to the notification, if that comes first
        scene.model("main").say("All done.")
        outcome = await main.wait()
        assert outcome.notes[-1] == (
            "Record: 1 file changed (made.txt); no commands; no checks; 1 agent started, with 1 command."
        )


async def test_no_secret_of_a_command_or_of_a_description_is_kept(tmp_path, monkeypatch):
    async with Scene(tmp_path, monkeypatch) as scene:
        main = await scene.main(permission_mode="bypassPermissions")
        model = scene.model("main")
        model.call("bash", command=f"echo {SECRET} > made.txt")
        model.call("Agent", prompt="CHILD", description=f"use {SECRET}", subagent_type="general-purpose")
        await until(lambda: any(node.parent is main for node in scene.supervisor.members.values()))
        child = next(node for node in scene.supervisor.members.values() if node.parent is main)
        assert SECRET not in child.state.description and "REDACTED" in child.state.description
        files = [
            path for path in (scene.supervisor.project.state / "checkpoints").rglob("ledger.db*") if path.is_file()
        ]
        assert files and not any(SECRET.encode() in path.read_bytes() for path in files)


async def test_what_a_command_changed_is_in_its_effect(tmp_path, monkeypatch):
    async with Scene(tmp_path, monkeypatch) as scene:
        main = await scene.main(permission_mode="bypassPermissions")
        model = scene.model("main")
        model.call("bash", command="echo hi > made.txt")
        await model.asked()
        model.say("Created `made.txt`.")
        outcome = await main.wait()
        assert outcome.notes == (
            "Record: 1 file changed (made.txt); commands: `echo hi > made.txt` exit 0; no checks.",
        )
        ended = [event.body for event in main.recorded() if isinstance(event.body, ToolEnded)]
        writes = ended[0].effect.writes
        assert [(write.path.rpartition("/")[2], write.before) for write in writes] == [("made.txt", None)]


async def test_checkpoints_can_be_switched_off(tmp_path, monkeypatch):
    async with Scene(tmp_path, monkeypatch, checkpoints_enabled="false") as scene:
        main = await scene.main(permission_mode="bypassPermissions")
        model = scene.model("main")
        model.call("bash", command="echo hi > made.txt")
        await model.asked()
        model.say("Created `made.txt` and `other.py`.")
        outcome = await main.wait()
        assert outcome.evidence.files_written == ()
        assert outcome.notes[-1].endswith("no checks; files changed by commands are not recorded.")
        assert not (scene.supervisor.project.state / "checkpoints" / "shadow.git").exists()


async def test_a_run_that_only_reads_opens_nothing(tmp_path, monkeypatch):
    async with Scene(tmp_path, monkeypatch) as scene:
        main = await scene.main(permission_mode="bypassPermissions")
        model = scene.model("main")
        model.call("ls", path=".")
        await model.asked()
        model.say("It is empty.")
        await main.wait()
        assert not (scene.supervisor.project.state / "checkpoints").exists()
