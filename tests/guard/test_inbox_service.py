"""The inbox service and the inbox of the log: asked once, answered once, never lost."""

from __future__ import annotations

import asyncio

import pytest
from tests.guard.guard_scene import Asking, until

from retinue.core.events import InboxClosed, InboxOpened
from retinue.core.permission import InboxAnswer
from retinue.core.spec import AgentIdentity
from retinue.errors import AnsweredError, UnknownItemError, UsageError
from retinue.guard.inbox_service import InboxPolicy
from retinue.guard.redact import Redactor
from retinue.log.inbox import answer, find, granted, items
from retinue.log.inbox import grant as store
from retinue.log.query import LogReader


async def test_an_item_is_in_the_file_before_anyone_is_asked(tmp_path):
    async with Asking(tmp_path) as scene:
        seen = []

        async def approver(item):
            seen.append([each.item.id for each in scene.listed()])
            return InboxAnswer("allow", by="test")

        scene.inbox.approvers.append(approver)
        item = scene.item()
        given = await scene.inbox.ask(item, scene.asker, call_id="c1")
        assert (given.choice, given.by) == ("allow", "test")
        assert seen == [[item.id]]


async def test_an_answer_of_another_process_is_noticed_and_taken_before_the_run_goes_on(tmp_path):
    async with Asking(tmp_path) as scene:
        asking = asyncio.create_task(scene.inbox.ask(scene.item(), scene.asker, call_id="c1"))
        item = (await scene.waiting())[0]
        answer(tmp_path, item, InboxAnswer("deny", "Not here.", "command line"))
        await scene.finished(asking)
        given = asking.result()
        assert (given.choice, given.message, given.by) == ("deny", "Not here.", "command line")
        assert [type(body) for body in scene.recorded] == [InboxOpened, InboxClosed]
        with LogReader.open(tmp_path) as reader:
            assert reader.select("SELECT taken_at FROM inbox")[0][0] is not None
            assert reader.run("run-1").state == "running"


async def test_a_run_that_asks_is_waiting_and_its_clocks_stand_still(tmp_path):
    async with Asking(tmp_path) as scene:
        asking = asyncio.create_task(scene.inbox.ask(scene.item(), scene.asker, call_id="c1"))
        item = (await scene.waiting())[0]
        assert scene.asker.controls.is_waiting
        await scene.log.flush()
        with LogReader.open(tmp_path) as reader:
            assert reader.run("run-1").state == "waiting"
        await scene.inbox.answer(item, InboxAnswer("allow", by="test"))
        await asking
        assert not scene.asker.controls.is_waiting


async def test_of_many_simultaneous_answers_exactly_one_wins(tmp_path):
    async with Asking(tmp_path) as scene:
        asking = asyncio.create_task(scene.inbox.ask(scene.item(), scene.asker))
        item = (await scene.waiting())[0]
        tries = [InboxAnswer("allow" if n % 2 else "deny", f"{n}", f"process {n}") for n in range(8)]
        done = await asyncio.gather(
            *(asyncio.to_thread(answer, tmp_path, item, each) for each in tries), return_exceptions=True
        )
        won = [each for each in done if not isinstance(each, BaseException)]
        lost = [each for each in done if isinstance(each, AnsweredError)]
        assert (len(won), len(lost)) == (1, 7)
        assert all(won[0].answer.by in str(error) for error in lost)
        await scene.finished(asking)
        assert asking.result() == won[0].answer


async def test_equal_asks_of_one_run_are_one_item_and_other_runs_have_their_own(tmp_path):
    async with Asking(tmp_path) as scene:
        other = scene.new_asker("run-2")
        asks = [
            asyncio.create_task(scene.inbox.ask(scene.item(), scene.asker, call_id="c1")),
            asyncio.create_task(scene.inbox.ask(scene.item(), scene.asker, call_id="c2")),
            asyncio.create_task(scene.inbox.ask(scene.item("b.txt"), scene.asker, call_id="c3")),
            asyncio.create_task(scene.inbox.ask(scene.item(run_id="run-2"), other, call_id="c1")),
        ]
        waiting = await scene.waiting(3)
        await asyncio.sleep(0)
        assert sorted((item.run_id, item.title) for item in waiting) == [
            ("run-1", "change a.txt"),
            ("run-1", "change b.txt"),
            ("run-2", "change a.txt"),
        ]
        for item in waiting:
            await scene.inbox.answer(item, InboxAnswer("allow", by=item.id))
        opened = sorted(str(body.call_id) for body in scene.recorded if isinstance(body, InboxOpened))
        assert opened == ["c1", "c1", "c2", "c3"]
        answers = await asyncio.gather(*asks)
        assert sorted(str(body.call_id) for body in scene.recorded if isinstance(body, InboxClosed)) == opened
        assert answers[0] == answers[1]
        assert len({each.by for each in answers}) == 3


async def test_cancelling_withdraws_unless_another_call_still_waits(tmp_path):
    async with Asking(tmp_path) as scene:
        first = asyncio.create_task(scene.inbox.ask(scene.item(), scene.asker, call_id="c1"))
        second = asyncio.create_task(scene.inbox.ask(scene.item(), scene.asker, call_id="c2"))
        item = (await scene.waiting())[0]
        first.cancel()
        await asyncio.wait({first})
        assert scene.listed()[0].item.state == "waiting"
        second.cancel()
        await asyncio.wait({second})
        assert scene.listed()[0].item.state == "withdrawn"
        assert isinstance(scene.recorded[-1], InboxClosed) and scene.recorded[-1].state == "withdrawn"
        with pytest.raises(AnsweredError, match="withdrawn"):
            answer(tmp_path, item, InboxAnswer("allow", by="late"))


async def test_an_item_expires_with_its_default_answer(tmp_path):
    async with Asking(tmp_path, policy=InboxPolicy("wait", 60.0)) as scene:
        asking = asyncio.create_task(scene.inbox.ask(scene.item(), scene.asker))
        await scene.waiting()
        await scene.clock.advance(59.0)
        assert not asking.done()
        await scene.clock.advance(2.0)
        given = await asking
        assert (given.choice, given.by) == ("deny", "expiry")
        assert scene.listed()[0].item.state == "expired"


async def test_headless_denies_by_policy_and_leaves_nothing_behind(tmp_path):
    async with Asking(tmp_path, policy=InboxPolicy("deny")) as scene:
        assert not scene.inbox.reachable
        given = await scene.inbox.ask(scene.item(), scene.asker)
        assert (given.choice, given.by) == ("deny", "policy")
        assert scene.listed() == [] and scene.recorded == []


async def test_an_approver_that_fails_or_talks_nonsense_denies(tmp_path):
    for says in (RuntimeError("broken"), "maybe"):
        async with Asking(tmp_path / str(says)[:3]) as scene:

            async def approver(item, says=says):
                if isinstance(says, Exception):
                    raise says
                return InboxAnswer(says, by="test")

            scene.inbox.approvers.append(approver)
            given = await scene.inbox.ask(scene.item(), scene.asker)
            assert given.choice == "deny"
            assert "broken" in given.message or "maybe" in given.message


async def test_who_has_no_opinion_leaves_it_to_others_who_take_the_question_away(tmp_path):
    async with Asking(tmp_path) as scene:
        gone = asyncio.Event()

        async def silent(item):
            return None

        async def slow(item):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                gone.set()
                raise

        scene.inbox.approvers += [silent, slow]
        asking = asyncio.create_task(scene.inbox.ask(scene.item(), scene.asker))
        item = (await scene.waiting())[0]
        await scene.inbox.answer(item, InboxAnswer("allow", by="elsewhere"))
        assert (await asking).by == "elsewhere"
        assert gone.is_set()


async def test_secrets_are_not_stored_and_calls_that_differ_in_one_are_two(tmp_path):
    secrets = ["ghp_" + "a1B2" * 9, "ghp_" + "c3D4" * 9]
    async with Asking(tmp_path, redact=Redactor()) as scene:
        asks = []
        for secret in secrets:
            payload = {"tool": "bash", "arguments": {"command": f"curl -H 'Authorization: {secret}' x"}}
            item = scene.item(title=f"bash: {secret}", payload=payload)
            asks.append(asyncio.create_task(scene.inbox.ask(item, scene.asker)))
        await scene.waiting(2)
        await scene.log.flush()
        data = b"".join(path.read_bytes() for path in tmp_path.glob("log.db*"))
        assert not any(secret.encode() in data for secret in secrets)
        assert "curl -H" in scene.listed()[0].item.payload["arguments"]["command"]
        for ask in asks:
            ask.cancel()
        await asyncio.wait(asks)


async def test_an_answer_of_which_nothing_came_is_taken_once_by_the_run_that_asks_again(tmp_path):
    async with Asking(tmp_path) as scene:
        asking = asyncio.create_task(scene.inbox.ask(scene.item(), scene.asker, call_id="c1"))
        item = (await scene.waiting())[0]
        # As if the process had died here: the row stays as it is.
        scene.inbox._pending.clear()
        answer(tmp_path, item, InboxAnswer("allow", by="while it was dead"))
        again = replace_leftovers(scene.asker)
        given = await scene.inbox.ask(scene.item(), again, call_id="c9")
        assert given.by == "while it was dead"
        once = asyncio.create_task(scene.inbox.ask(scene.item(), again, call_id="c10"))
        new = await scene.waiting()
        assert [each.state for each in new] == ["answered", "waiting"]
        for task in (asking, once):
            task.cancel()
        await asyncio.wait({asking, once})


async def test_a_run_that_asks_again_what_still_waits_takes_the_same_item(tmp_path):
    async with Asking(tmp_path) as scene:
        first = asyncio.create_task(scene.inbox.ask(scene.item(), scene.asker))
        item = (await scene.waiting())[0]
        scene.inbox._pending.clear()
        second = asyncio.create_task(scene.inbox.ask(scene.item(), replace_leftovers(scene.asker)))
        await until(lambda: scene.inbox._pending)
        assert [each.item.id for each in scene.listed()] == [item.id]
        await scene.inbox.answer(item, InboxAnswer("allow", by="test"))
        assert (await second).choice == "allow"
        first.cancel()
        await asyncio.wait({first})


def replace_leftovers(asker):
    from retinue.guard.gate import Asker

    return Asker(asker.place, asker.agent, asker.controls, asker.record, True)


async def test_questions_take_options_and_free_words(tmp_path):
    async with Asking(tmp_path) as scene:
        for said, heard in (("BLUE", "blue"), ("rather green", "rather green")):
            asking = asyncio.create_task(scene.inbox.question("Which?", ("blue", "red"), asker=scene.asker))
            item = next(each for each in await scene.waiting() if each.state == "waiting")
            answer(tmp_path, item, InboxAnswer(said, by="test"))
            await scene.finished(asking)
            assert asking.result().choice == heard
    async with Asking(tmp_path / "other", policy=InboxPolicy("deny")) as scene:
        given = await scene.inbox.question("Anyone?", asker=scene.asker, default="none")
        assert (given.choice, given.by) == ("none", "policy")


async def test_wrong_ids_and_answers_say_what_would_do(tmp_path):
    async with Asking(tmp_path) as scene:
        asking = asyncio.create_task(scene.inbox.ask(scene.item(options=("allow", "deny")), scene.asker))
        item = (await scene.waiting())[0]
        with LogReader.open(tmp_path) as reader:
            assert find(reader, item.id[:4]).id == item.id
            with pytest.raises(UnknownItemError):
                find(reader, "nothing")
            with pytest.raises(UnknownItemError):
                find(reader, "")
        with pytest.raises(UsageError, match="Choose one of: allow, deny"):
            answer(tmp_path, item, InboxAnswer("always", by="test"))
        with pytest.raises(UsageError):
            answer(tmp_path, item, InboxAnswer("", by="test"))
        assert scene.listed()[0].item.state == "waiting"
        asking.cancel()
        await asyncio.wait({asking})


async def test_an_item_whose_time_is_over_cannot_be_answered_though_nobody_was_there(tmp_path):
    async with Asking(tmp_path, policy=InboxPolicy("wait", 60.0)) as scene:
        asking = asyncio.create_task(scene.inbox.ask(scene.item(), scene.asker))
        item = (await scene.waiting())[0]
        late = InboxAnswer("allow", by="late", at=item.expires_at + 1.0)
        with pytest.raises(AnsweredError, match="expired"):
            answer(tmp_path, item, late)
        with LogReader.open(tmp_path) as reader:
            assert items(reader) == []
        await scene.finished(asking)
        assert asking.result().choice == "deny"


async def test_what_an_agent_was_allowed_is_kept_by_name_source_and_content(tmp_path):
    writer = AgentIdentity("writer", "project", "1a2b")
    async with Asking(tmp_path) as scene:
        for _ in range(2):
            await scene.log.transact(lambda c: store(c, writer, "Edit(a)", "test"))
        assert granted(scene.log.reader, writer) == ("Edit(a)",)
        assert granted(scene.log.reader, writer._replace(source="user")) == ()
        assert granted(scene.log.reader, writer._replace(digest="3c4d")) == ()


async def test_what_is_granted_answers_what_it_covers_and_nothing_else(tmp_path):
    async with Asking(tmp_path) as scene:
        covered = asyncio.create_task(scene.inbox.ask(scene.item(), scene.asker, covered=lambda: True))
        other = asyncio.create_task(scene.inbox.ask(scene.item("b.txt"), scene.asker, covered=lambda: False))
        await scene.waiting(2)
        await scene.inbox.rejudge()
        assert (await covered).choice == "allow"
        assert not other.done()
        other.cancel()
        await asyncio.wait({other})
