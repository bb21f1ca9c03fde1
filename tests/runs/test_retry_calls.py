"""Retry handles: case Z01."""

from msgspec.structs import replace

from retinue.core.delegation import Refusal, SpawnCall
from retinue.runs.requests import RetryCalls
from retinue.testing import FakeClock

CALL = SpawnCall(prompt="a long task", description="d", agent="Explore", model="nope", isolation="worktree")


def test_only_the_corrected_field_need_be_given_again():
    retry_calls = RetryCalls(FakeClock())
    handle = retry_calls.keep(CALL)
    again = retry_calls.take(SpawnCall(prompt="", retry=handle, model="haiku", call_id="c2"))
    assert again == replace(CALL, model="haiku", retry=handle, call_id="c2")


def test_the_handle_stays_the_same_while_the_call_keeps_failing():
    retry_calls = RetryCalls(FakeClock())
    handle = retry_calls.keep(CALL)
    again = retry_calls.take(SpawnCall(prompt="", retry=handle, model="still-nope"))
    assert retry_calls.keep(again) == handle


async def test_unknown_and_expired_handles_are_refused():
    clock = FakeClock()
    retry_calls = RetryCalls(clock)
    handle = retry_calls.keep(CALL)
    assert isinstance(retry_calls.take(SpawnCall(prompt="", retry="retry-00000000")), Refusal)
    await clock.advance(601)
    assert isinstance(retry_calls.take(SpawnCall(prompt="", retry=handle)), Refusal)


def test_a_call_without_a_handle_passes_and_a_started_one_is_forgotten():
    retry_calls = RetryCalls(FakeClock())
    assert retry_calls.take(CALL) is CALL
    handle = retry_calls.keep(CALL)
    retry_calls.drop(handle)
    assert isinstance(retry_calls.take(SpawnCall(prompt="", retry=handle)), Refusal)
