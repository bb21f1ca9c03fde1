import gc

import pytest

from retinue.runs.heap import MIN_RUNS, CollectorThresholds, raise_thresholds


@pytest.fixture(autouse=True)
def thresholds():
    found = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*found)


def test_the_collector_is_patient_while_many_runs_live_and_as_before_when_none_does():
    heap = CollectorThresholds()
    heap.adapt(MIN_RUNS - 1)
    assert gc.get_threshold() == (700, 10, 10)
    heap.adapt(MIN_RUNS)
    assert gc.get_threshold()[0] > 700
    heap.adapt(1)
    assert gc.get_threshold()[0] > 700
    heap.adapt(0)
    assert gc.get_threshold() == (700, 10, 10)


def test_the_collector_waits_the_longer_the_more_runs_live():
    heap = CollectorThresholds()
    waits = []
    for count in (MIN_RUNS, 100, 1_000, 100, 10_000):
        heap.adapt(count)
        waits.append(gc.get_threshold()[0])
    assert waits == sorted(waits)
    assert all(wait >= 1_000 * count for wait, count in zip(waits, (MIN_RUNS, 100, 1_000, 100, 10_000), strict=True))
    assert waits[-1] <= 20_000_000
    heap.adapt(0)
    assert gc.get_threshold() == (700, 10, 10)


def test_the_command_line_is_calm_from_its_start_and_again_when_no_run_lives():
    raise_thresholds()
    before = gc.get_threshold()
    assert before[0] > 700
    heap = CollectorThresholds()
    heap.adapt(10 * MIN_RUNS)
    assert gc.get_threshold()[0] > before[0]
    heap.adapt(0)
    assert gc.get_threshold() == before


def test_what_a_program_has_set_itself_is_left_alone():
    heap = CollectorThresholds()
    gc.set_threshold(5_000, 5, 5)
    heap.adapt(MIN_RUNS)
    assert gc.get_threshold() == (5_000, 5, 5)
    gc.set_threshold(700, 10, 10)
    heap.adapt(MIN_RUNS)
    gc.set_threshold(5_000, 5, 5)
    heap.adapt(0)
    assert gc.get_threshold() == (5_000, 5, 5)
