"""What is asked twice in one round of the event loop is answered once, and never later."""

import asyncio

from retinue.supervisor.round import Round


async def test_an_answer_holds_until_the_next_round_of_the_event_loop():
    answers = Round()
    assert answers.keep("a", 1) == 1
    answers.keep("b", 2)
    assert (answers.get("a"), answers.get("b"), answers.get("c")) == (1, 2, None)
    await asyncio.sleep(0)
    assert answers.get("a") is answers.get("b") is None
    answers.keep("a", 3)
    assert answers.get("a") == 3


def test_without_an_event_loop_nothing_is_kept():
    answers = Round()
    assert answers.keep("a", 1) == 1
    assert answers.get("a") is None
