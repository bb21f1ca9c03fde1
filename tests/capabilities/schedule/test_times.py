"""When a job is due: cases R01 to R06, daylight saving, and nonsense."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.capabilities.schedule.times import next_after, parse_schedule
from retinue.errors import UsageError

NOW = 1_700_000_000.0
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(("text", "seconds"), [("+10s", 10), ("+5m", 300), ("+1h", 3_600), ("+2d", 172_800)])
def test_a_delay_is_once_from_now(text: str, seconds: int) -> None:
    when = parse_schedule(text, NOW)
    assert (when.kind, when.at) == ("once", NOW + seconds)


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10), ("5m", 300), ("1h", 3_600), ("2d", 172_800), ("1h30m", 5_400)]
)
def test_an_interval_repeats(text: str, seconds: int) -> None:
    when = parse_schedule(text, NOW)
    assert (when.kind, when.seconds) == ("interval", seconds)
    assert parse_schedule(f"every {text}", NOW).seconds == seconds


@pytest.mark.parametrize("text", ["0 0 9 * * 1", "0 0 9 * * *", "*/5 * * * *", "0 0 9 * * ?"])
def test_cron_has_six_fields_or_five_for_minutes(text: str) -> None:
    assert parse_schedule(text, NOW).kind == "cron"


def test_an_iso_time_is_once_with_the_same_text() -> None:
    when = parse_schedule("2027-03-01T09:00:00+01:00", NOW)
    assert when.kind == "once" and when.text == "2027-03-01T09:00:00+01:00"
    assert when.at == datetime(2027, 3, 1, 8, tzinfo=UTC).timestamp()
    local = parse_schedule("2027-03-01T09:00", NOW, "Europe/Berlin")
    assert local.at == when.at


@pytest.mark.parametrize(
    "text",
    ["garbage", "+5x", "5x", "five-minutes", "not-a-cron", "0m", "+0s", "0s", "", "@daily", "61 * * * * *", "-5m",
     "99999999999d", "2027-13-01T00:00", "2027-03-01T25:00", "0 0 30 2 *", "0 0 0 31 4 *", "* * * * * * *", "+", "5 m"],
)  # fmt: skip
def test_nonsense_is_refused_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_schedule(text, NOW)
    assert "nvalid schedule" in refused.value.message or "never fire" in refused.value.message
    assert "Accepted:" in refused.value.remedy


def test_a_time_that_is_over_is_refused() -> None:
    with pytest.raises(UsageError, match="is in the past"):
        parse_schedule("2020-01-01T00:00:00Z", NOW)


def test_an_unknown_zone_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="Middle/Earth"):
        parse_schedule("0 9 * * *", NOW, "Middle/Earth")


def test_an_interval_counts_from_its_anchor_not_from_a_restart() -> None:
    when = parse_schedule("10m", NOW)
    assert next_after(when, NOW, NOW) == NOW + 600
    assert next_after(when, NOW + 599, NOW) == NOW + 600
    assert next_after(when, NOW + 600, NOW) == NOW + 1_200
    assert next_after(when, NOW + 100_000, NOW) == NOW + 100_200


def test_a_far_future_time_is_kept_exactly() -> None:
    when = parse_schedule("2099-12-31T23:59:59Z", NOW)
    assert next_after(when, NOW, NOW) == datetime(2099, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()


def slots(expression: str, start: datetime, count: int) -> list[datetime]:
    when, after, found = parse_schedule(expression, start.timestamp(), "Europe/Berlin"), start.timestamp(), []
    for _ in range(count):
        after = next_after(when, after, 0) or pytest.fail("over")
        found.append(datetime.fromtimestamp(after, BERLIN))
    return found


def test_a_slot_that_spring_skips_fires_once_after_the_change() -> None:
    found = slots("30 2 * * *", datetime(2027, 3, 27, 12, tzinfo=BERLIN), 3)
    assert [each.strftime("%d %H:%M") for each in found] == ["28 03:00", "29 02:30", "30 02:30"]


def test_a_slot_that_comes_twice_in_autumn_fires_once() -> None:
    found = slots("30 2 * * *", datetime(2026, 10, 24, 12, tzinfo=BERLIN), 3)
    assert [each.strftime("%d %H:%M") for each in found] == ["25 02:30", "26 02:30", "27 02:30"]
    halves = slots("0 */30 * * * *", datetime(2026, 10, 25, 1, tzinfo=BERLIN), 8)
    gaps = {b.timestamp() - a.timestamp() for a, b in pairwise(halves)}
    assert gaps == {1_800.0}


FORMS = st.sampled_from(
    ["7s", "5m", "3h", "0 0 9 * * 1-5", "*/7 * * * *", "30 2 * * *", "15 */3 1,15 * *", "2030-01-01T00:00Z"]
)


@given(FORMS, st.floats(1_700_000_000, 2_000_000_000))
def test_slots_always_go_forward(text: str, start: float) -> None:
    when, after = parse_schedule(text, NOW, "Europe/Berlin"), start
    for _ in range(5):
        slot = next_after(when, after, NOW)
        if slot is None:
            assert when.kind == "once"
            return
        assert slot > after
        assert slot - after <= timedelta(days=5).total_seconds() or when.kind == "once" or "15" in text
        after = slot


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        when = parse_schedule(text, NOW)
    except UsageError:
        return
    slot = next_after(when, NOW, NOW)
    assert slot is not None and slot > NOW
