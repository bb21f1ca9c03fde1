"""The engine of a cluster: queues of DBOS in the shared database (extra `cluster`).

One workflow of DBOS is one attempt of a run, and has no steps: what a run does is in the log. Workers with the same
profile (version, providers, labels, rights, limits) share a queue. A sender offers an attempt by a row of `placements`
and needs no DBOS, which takes half a second to load. A worker that hears of it puts it into the queue of a
profile that can serve it; without one it waits in `placements` until a worker that can serve it offers it again.

DBOS needs a paid service to notice dead executors. Here each worker watches the others (`ClusterTables.stranded`): an
attempt of one that is silent is offered again under the next number.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

import msgspec
from msgspec.structs import replace

from retinue.cluster.cause_log import CauseLog
from retinue.cluster.cluster_tables import SCHEMA, ClusterTables
from retinue.cluster.dbos_json import json_serializer, load_dbos, report_dbos
from retinue.core.foreign import UnreadableValueError, decode_json
from retinue.core.programs import Owner
from retinue.core.request import Attempt, RunNeeds, WorkerView
from retinue.log.postgres import PostgresListener

Serve = Callable[[Attempt], Awaitable[None]]
_APPLICATION = "retinue"
_VERSION = "1"
"""Fixed: DBOS would otherwise strand what waits when the program is upgraded. Our own check is `RunNeeds.version`."""
_WORKFLOW = "retinue_attempt"
POLL_SECONDS = 0.2


class DbosQueues:
    """The queues as one worker sees them. They keep nothing of what runs do: that is in the log, and the log alone
    decides who may write to a run. So it does no harm to give an attempt to two workers, or to one that is too late:
    one of them is refused."""

    def __init__(self, tables: ClusterTables, owner: Owner, view: WorkerView) -> None:
        self._tables = tables
        self._owner = owner
        self.view = view
        self._client: Any = None
        self._heard = threading.Event()
        """Set when someone may have offered something."""
        self.listens = asyncio.Event()
        """Set when a worker takes attempts: before, nobody must offer it any."""

    def _enqueue(self, attempt: Attempt) -> str:
        """Put an attempt into a queue whose workers can serve it, and return its name; nothing without one."""
        worker = self._worker_for(attempt.needs)
        if worker is None:
            return ""
        if attempt.number > 1:
            try:
                self._connected().cancel_workflow(replace(attempt, number=attempt.number - 1).id)
            except Exception as error:  # noqa: BLE001 - its worker finds that the attempt is not wanted any more
                self._tables.causes.report_failure(
                    "cancel", "The last attempt of a run could not be taken out of its queue", error
                )
        self._connected().enqueue(_enqueue_options(attempt, worker), msgspec.json.encode(attempt).decode())
        return worker.queue

    def _queue_offers(self, over: threading.Event) -> None:
        """In a thread of its own, over a connection of its own: put offers into queues."""
        tables = ClusterTables(self._tables.url, self._tables.causes)
        try:
            # Now, and not when someone waits for it.
            self._connected()
        except Exception as error:  # noqa: BLE001 - it is tried again with the first offer
            self._tables.causes.report_failure("connect", "The queues of runs cannot be reached", error)
        while self._heard.wait() and not over.is_set():
            self._heard.clear()
            try:
                tables.queue_offers(self._enqueue)
            except Exception as error:  # noqa: BLE001 - a worker that could serve the run offers it again
                self._tables.causes.report_failure("queue", "A run could not be put into a queue", error)
        tables.close()

    def _worker_for(self, needs: RunNeeds) -> WorkerView | None:
        """Return one of the workers that can serve this, of those alike with the most room; None without one."""
        able: dict[str, WorkerView] = {}
        free_slots: Counter[str] = Counter()
        for worker in self._tables.workers():
            if not worker.lacks(needs):
                able[worker.queue] = worker
                free_slots[worker.queue] += worker.concurrency - len(worker.runs)
        return able[max(able, key=free_slots.__getitem__)] if able else None

    async def beat(self) -> None:
        """Say that this worker lives, and what it can serve."""
        await asyncio.to_thread(self._tables.beat, self._owner, self.view)
        # Something may have waited for a worker like this one.
        self._heard.set()

    async def take(self, serve: Serve) -> None:
        """Serve attempts, as many at once as this worker may, until cancelled. An attempt is held until
        `serve` returns."""
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()

        def begin(attempt: Attempt, done: Future[None]) -> None:
            task = loop.create_task(_served(serve, attempt, done))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        def serve_text(text: object) -> None:
            try:
                attempt = decode_json(text, Attempt, "An entry of the queue")
            except UnreadableValueError as error:
                return self._tables.causes.report(str(error), f"{error} It is passed over.")
            done: Future[None] = Future()
            loop.call_soon_threadsafe(begin, attempt, done)
            return done.result()

        await asyncio.to_thread(_launch, self._tables.url, self._owner.id, self.view, self._tables.causes, serve_text)
        over = threading.Event()
        queueing = threading.Thread(target=self._queue_offers, args=(over,), name="retinue-offers", daemon=True)
        queueing.start()
        listener = PostgresListener(self._tables.url, SCHEMA, self._heard.set)
        self.listens.set()
        try:
            await asyncio.Event().wait()
        finally:
            listener.end()
            over.set()
            self._heard.set()
            await asyncio.to_thread(queueing.join)
            await asyncio.to_thread(_destroy)

    def close(self) -> None:
        if self._client is not None:
            self._client.destroy()
            self._client = None

    def _connected(self) -> Any:
        if self._client is None:
            dbos = load_dbos()
            self._client = dbos.DBOSClient(
                system_database_url=_driver_url(self._tables.url), serializer=json_serializer()
            )
        return self._client


def queue_of(view: WorkerView) -> str:
    """Return the name of the queue that workers like this one share."""
    limits = (view.concurrency, view.tenant_limit, view.global_limit)
    profile = (view.version, view.providers, view.labels, view.allow, view.remotes, *limits)
    return f"retinue-{hashlib.sha256(repr(profile).encode()).hexdigest()[:12]}"


def _enqueue_options(attempt: Attempt, worker: WorkerView) -> dict[str, Any]:
    options = {
        "queue_name": worker.queue,
        "workflow_name": _WORKFLOW,
        "workflow_id": attempt.id,
        "app_version": _VERSION,
        "priority": _place_in_line(attempt),
    }
    if worker.tenant_limit is not None:
        # A queue has such keys for all or for none.
        options["queue_partition_key"] = attempt.needs.tenant or attempt.project
    return options


def _place_in_line(attempt: Attempt) -> int:
    """Return the priority for DBOS, which serves the lowest first and equals in the order of their coming. A run that
    was interrupted was sent before all that wait with the same priority: its turn had come."""
    return 2 * attempt.needs.priority + (attempt.number == 1)


async def _served(serve: Serve, attempt: Attempt, done: Future[None]) -> None:
    try:
        await serve(attempt)
    finally:
        if not done.done():
            done.set_result(None)


def _launch(url: str, executor: str, view: WorkerView, causes: CauseLog, serve_text: Callable[[object], None]) -> None:
    dbos = load_dbos().DBOS
    report_dbos(causes)
    dbos(
        config={
            "name": _APPLICATION,
            "system_database_url": _driver_url(url),
            "executor_id": executor,
            "application_version": _VERSION,
            "serializer": json_serializer(),
            "log_level": "WARNING",
            "scheduler_polling_interval_sec": 300.0,
            # It would look for messages of workflows a hundred times a second. Ours send none.
            "notification_coalesce_sec": 0.5,
            "sys_db_pool_size": 4,
            "max_executor_threads": view.concurrency + 4,
        }
    )

    def attempt(*values: object, **others: object) -> None:
        serve_text(values[0] if len(values) == 1 and not others else None)

    dbos.workflow(name=_WORKFLOW, max_recovery_attempts=1000)(attempt)
    dbos.listen_queues([view.queue])
    dbos.launch()
    dbos.register_queue(
        view.queue,
        worker_concurrency=view.concurrency,
        global_concurrency=view.global_limit,
        partition_worker_concurrency=view.tenant_limit,
        polling_interval_sec=POLL_SECONDS,
    )


def _destroy() -> None:
    load_dbos().DBOS.destroy(destroy_registry=True)


def _driver_url(url: str) -> str:
    """Return the URL with the driver that is installed."""
    return "postgresql+psycopg://" + url.partition("://")[2]
