"""Of several workers that take one attempt of a run, one has it."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from retinue.core.placement import Attempt
from retinue.engine.cluster_tables import ClusterTables

WORKERS = 8


def test_of_workers_that_take_an_attempt_at_once_one_has_it(postgres):
    all_there = Barrier(WORKERS, timeout=60)
    tables = [ClusterTables(postgres) for _ in range(WORKERS)]

    def take(number):
        all_there.wait()
        return [tables[number].take(attempt, f"worker-{number}") for attempt in attempts]

    try:
        attempts = [Attempt("take", f"run-{number}", 1) for number in range(20)]
        for attempt in attempts:
            tables[0].drop(attempt.project, attempt.run_id)
            assert tables[0].put(attempt)
        with ThreadPoolExecutor(WORKERS) as pool:
            taken = list(pool.map(take, range(WORKERS)))
        assert [sum(each) for each in zip(*taken, strict=True)] == [1] * len(attempts)
    finally:
        for each in tables:
            each.close()


def test_an_attempt_that_another_has_followed_can_no_longer_be_taken(postgres):
    tables = ClusterTables(postgres)
    first, second = Attempt("take", "followed", 1), Attempt("take", "followed", 2)
    try:
        tables.drop(first.project, first.run_id)
        assert tables.put(first)
        assert tables.put(second)
        assert not tables.take(first, "late")
        assert tables.take(second, "next")
    finally:
        tables.close()
