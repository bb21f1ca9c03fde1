"""The events of one run, in whichever process it works: those of the past, then those that happen."""

import asyncio

import pytest
from tests.log import log_stories as stories

from retinue.app.feed import Feed
from retinue.app.run_events import follow_run
from retinue.core.events import TextDelta, TurnStarted, Warned
from retinue.core.run_state import RunPlace
from retinue.errors import UnknownRunError
from retinue.log.store import Log


async def make(folder, bodies):
    async with Log.open(folder) as log:
        for body in bodies:
            log.append(RunPlace("r"), body)
        await log.flush()


def followed(folder, after=0):
    return follow_run(Feed(folder, folder), "r", after, until_end=True)


async def test_a_run_can_be_followed_while_it_goes_on(tmp_path):
    place = RunPlace("r")
    seen = []

    async def watch():
        async for event in followed(tmp_path):
            seen.append(event)

    async with Log.open(tmp_path) as log:
        for body in [*stories.opening(), TurnStarted(1)]:
            log.append(place, body)
        await log.flush()
        watching = asyncio.create_task(watch())
        async with asyncio.timeout(20):
            while len(seen) < 4:
                await asyncio.sleep(0.01)
            log.append(place, TextDelta("half "))
            await log.flush()
            while not any(isinstance(event.body, TextDelta) for event in seen):
                await asyncio.sleep(0.01)
            for body in [*stories.saying(1, "half whole")][1:]:
                log.append(place, body)
            log.append(place, stories.ending())
            await log.flush()
            await watching
        durable = [event for event in seen if not isinstance(event.body, TextDelta)]
        assert durable == log.reader.events("r")
        assert [(e.seq, e.body.text) for e in seen if isinstance(e.body, TextDelta)] == [(4, "half ")]
        assert [event async for event in followed(tmp_path, durable[-2].seq)] == durable[-1:]


async def test_following_brings_the_streamed_text_of_every_turn(tmp_path):
    """The numbers of text pieces begin again when all of them have become events."""
    place = RunPlace("r")
    texts = []

    async def watch():
        async for event in followed(tmp_path):
            if isinstance(event.body, TextDelta):
                texts.append(event.body.text)

    async with Log.open(tmp_path) as log:
        for body in stories.opening():
            log.append(place, body)
        await log.flush()
        watching = asyncio.create_task(watch())
        async with asyncio.timeout(20):
            for turn, piece in enumerate(("first ", "second ", "third "), 1):
                started, whole, ended = stories.saying(turn, piece)
                log.append(place, started)
                log.append(place, TextDelta(piece))
                await log.flush()
                while len(texts) < turn:
                    await asyncio.sleep(0.01)
                log.append(place, whole)
                log.append(place, ended)
                await log.flush()
            log.append(place, stories.ending())
            await log.flush()
            await watching
    assert texts == ["first ", "second ", "third "]


async def test_following_a_run_whose_process_is_gone_ends(tmp_path):
    await make(tmp_path, [*stories.opening(), TurnStarted(1), TextDelta("half")])
    async with asyncio.timeout(20):
        events = [event async for event in followed(tmp_path)]
    assert [event.body.type for event in events][-2:] == ["turn.started", "text.delta"]
    with pytest.raises(UnknownRunError):
        await anext(follow_run(Feed(tmp_path, tmp_path), "nobody"))


async def test_following_gives_more_than_one_helping(tmp_path):
    await make(tmp_path, [*stories.opening(), *[Warned("n", str(n)) for n in range(1203)]])
    assert len([event async for event in followed(tmp_path)]) == 1206
