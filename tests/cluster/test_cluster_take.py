"""Of several workers that queue or take one attempt of a run, one does it."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from retinue.cluster.cluster_tables import ClusterTables
from retinue.core.request import Attempt

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


def test_workers_that_hear_of_offers_put_each_into_a_queue_once(postgres):
    tables = [ClusterTables(postgres) for _ in range(4)]
    queued: list[str] = []

    def enqueue(attempt):
        if attempt.project != "queue":
            return ""
        queued.append(attempt.run_id)
        return "" if attempt.run_id == "nobody-can" else "a-queue"

    try:
        names = ["nobody-can", *(f"run-{number}" for number in range(40))]
        for name in names:
            tables[0].drop("queue", name)
            tables[0].put(Attempt("queue", name, 1))
        with ThreadPoolExecutor(len(tables)) as pool:
            list(pool.map(lambda each: each.queue_offers(enqueue), tables))
        assert sorted(name for name in queued if name != "nobody-can") == sorted(names[1:])
        queued.clear()
        tables[0].queue_offers(enqueue)
        assert queued == ["nobody-can"], "it waits, and is looked at once"
    finally:
        for name in names:
            tables[0].drop("queue", name)
        for each in tables:
            each.close()
