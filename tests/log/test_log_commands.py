"""Commands between processes: taken once, answered or withdrawn, and the sender always knows which."""

import asyncio

import log_stories as stories
import pytest

from retinue.core.run_state import RunPlace
from retinue.errors import StateError, UnknownRunError
from retinue.log.commands import CommandAnswer, CommandPoll, RunCommand, answer, send, take
from retinue.log.database import connect
from retinue.log.store import Log


async def running(log, run_id="run-1"):
    for body in stories.opening():
        log.append(RunPlace(run_id), body)
    await log.flush()


async def obey(log, accepted=True, text="done"):
    """The owner's side, once."""
    poll = CommandPoll(log.reader, log.owner)
    async with asyncio.timeout(20):
        while not poll.has_commands():
            await asyncio.sleep(0.005)
    taken = await log.transact(lambda connection: take(connection, log.owner))
    given = [(each.number, CommandAnswer(each.command.run_id, accepted, text)) for each in taken]
    await log.transact(lambda connection: answer(connection, given))
    return [each.command for each in taken]


def rows(folder):
    connection = connect(folder)
    try:
        return connection.execute("SELECT count(*) FROM commands").fetchone()[0]
    finally:
        connection.close()


@pytest.mark.parametrize("accepted", [True, False])
async def test_a_command_is_taken_once_in_order_and_its_sender_gets_the_answer(tmp_path, accepted):
    async with Log.open(tmp_path) as log:
        await running(log)
        commands = [
            RunCommand("run-1", "steer", "one"),
            RunCommand("run-1", "steer", "two"),
            RunCommand("run-1", "stop"),
        ]
        sending = asyncio.ensure_future(send(tmp_path, commands))
        assert await obey(log, accepted, "said") == commands
        assert await sending == [CommandAnswer("run-1", accepted, "said")] * 3
        assert await log.transact(lambda connection: take(connection, log.owner)) == []
        assert rows(tmp_path) == 0


async def test_two_looks_at_once_take_every_command_once(tmp_path):
    async with Log.open(tmp_path) as log:
        await running(log)
        sending = asyncio.ensure_future(send(tmp_path, [RunCommand("run-1", "steer", str(n)) for n in range(20)]))
        poll = CommandPoll(log.reader, log.owner)
        async with asyncio.timeout(20):
            while not poll.has_commands():
                await asyncio.sleep(0.005)
        looks = await asyncio.gather(*(log.transact(lambda c: take(c, log.owner)) for _ in range(4)))
        taken = [each for look in looks for each in look]
        assert [each.command.text for each in taken] == [str(n) for n in range(20)]
        await log.transact(lambda c: answer(c, [(each.number, CommandAnswer("run-1", True, "ok")) for each in taken]))
        assert all(each.accepted for each in await sending)


async def test_a_poll_finds_nothing_until_the_file_changes(tmp_path):
    async with Log.open(tmp_path) as log:
        await running(log)
        poll = CommandPoll(log.reader, log.owner)
        assert not poll.has_commands()
        other = connect(tmp_path)
        other.execute(
            "INSERT INTO commands (owner, run_id, kind, text, at) VALUES (?, 'run-1', 'stop', '', 0)", (log.owner,)
        )
        async with asyncio.timeout(5):
            while not poll.has_commands():
                await asyncio.sleep(0.001)
        assert not poll.has_commands()
        poll.reset()
        assert poll.has_commands()
        other.close()


async def test_a_run_that_nobody_runs_takes_no_command_and_the_sender_learns_what_to_do(tmp_path):
    async with Log.open(tmp_path) as log:
        for body in stories.whole():
            log.append(RunPlace("over"), body)
        await running(log, "cut")
    (ended, interrupted) = await send(tmp_path, [RunCommand("over", "steer", "x"), RunCommand("cut", "stop")])
    assert not ended.accepted
    assert "has ended (completed)" in ended.text
    assert not interrupted.accepted
    assert "interrupted" in interrupted.text
    assert "retinue runs resume cut" in interrupted.text
    with pytest.raises(UnknownRunError):
        await send(tmp_path, [RunCommand("nobody", "stop")])
    assert rows(tmp_path) == 0


async def test_an_owner_that_does_not_answer_costs_a_bounded_wait_and_the_command_is_withdrawn(tmp_path):
    async with Log.open(tmp_path) as log:
        await running(log)
        (given,) = await send(tmp_path, [RunCommand("run-1", "steer", "x")], patience=0.2)
        assert not given.accepted
        assert "did not answer" in given.text
        assert await log.transact(lambda connection: take(connection, log.owner)) == []


async def test_an_owner_that_took_a_command_and_is_slow_is_not_said_to_have_refused(tmp_path):
    async with Log.open(tmp_path) as log:
        await running(log)
        sending = asyncio.ensure_future(send(tmp_path, [RunCommand("run-1", "stop")], patience=0.5))
        poll = CommandPoll(log.reader, log.owner)
        async with asyncio.timeout(20):
            while not poll.has_commands():
                await asyncio.sleep(0.005)
        await log.transact(lambda connection: take(connection, log.owner))
        (given,) = await sending
        assert "has taken it" in given.text


async def test_a_command_is_not_for_whoever_takes_the_run_up_later(tmp_path):
    async with Log.open(tmp_path) as log:
        await running(log)
        connection = connect(tmp_path)
        connection.execute(
            "INSERT INTO commands (owner, run_id, kind, text, at) VALUES (?, 'run-1', 'stop', '', 0)", (log.owner,)
        )
        connection.close()
    async with Log.open(tmp_path) as log:
        await log.claim("run-1")
        assert not CommandPoll(log.reader, log.owner).has_commands()
        assert await log.transact(lambda connection: take(connection, log.owner)) == []


async def test_a_message_is_in_the_file_only_until_it_is_taken(tmp_path):
    async with Log.open(tmp_path) as log:
        await running(log)
        sending = asyncio.ensure_future(send(tmp_path, [RunCommand("run-1", "steer", "between us")]))
        await obey(log)
        rows = await log.transact(lambda c: c.execute("SELECT text FROM commands").fetchall())
        assert [row[0] for row in rows] in ([], [""])
        await sending


async def test_a_claim_that_is_cancelled_at_any_moment_leaves_log_and_run_as_they_were(tmp_path):
    async with Log.open(tmp_path) as log:
        for body in stories.whole():
            log.append(RunPlace("over"), body)
        await log.flush()
        got = 0
        for steps in range(30):
            claiming = asyncio.ensure_future(log.claim("over"))
            for _ in range(steps):
                await asyncio.sleep(0)
            claiming.cancel()
            await asyncio.wait({claiming})
            if not claiming.cancelled():
                got += 1
                await log.release(claiming.result())
            row = log.reader.run("over")
            assert (row.state, row.ended, row.pid) == ("ended", "completed", None)
        row = await log.claim("over")
        assert row.state == "ended"
        with pytest.raises(StateError):
            await log.claim("over")
