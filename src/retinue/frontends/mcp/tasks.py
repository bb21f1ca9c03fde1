"""The Tasks extension (`io.modelcontextprotocol/tasks`): a run as a task with the same id.

A task is as durable as the run: it is in the log before the host receives it, and any server of the project can answer
for it. If the process of a run died before the run ended, the next server that is asked for the task resumes it.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from weakref import WeakValueDictionary

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY, RequestParams

from retinue.app.feed import ConflictError, Feed
from retinue.app.text import plural
from retinue.app.watch import RunSnapshot, snapshot_run
from retinue.core.run_state import RunState
from retinue.errors import RetinueError, StateError, UnknownRunError, UsageError
from retinue.frontends.mcp.host import TASKS_EXTENSION, McpHost, answer_item, form_request
from retinue.frontends.mcp.result import error_result, run_result

_POLL_MILLISECONDS = 1000
_FORM_ACTIONS = frozenset({"accept", "decline", "cancel"})


class TaskQuery(RequestParams):
    task_id: str


class TaskUpdate(TaskQuery):
    input_responses: dict[str, dict[str, Any]]


def create_task(row: RunState) -> dict[str, Any]:
    """Return the result of a call that continues as a task."""
    return {"resultType": "task", **_task(row, "working", f"{row.agent} works on it.")}


def _task(row: RunState, state: str, message: str = "") -> dict[str, Any]:
    done = f"{plural(row.turns, 'turn')}, {plural(row.tool_uses, 'tool use')}"
    return {
        "taskId": row.id,
        "status": state,
        "statusMessage": message or f"{row.agent}: {row.status}, {done}",
        "createdAt": _moment(row.created_at),
        "lastUpdatedAt": _moment(row.updated_at),
        # Runs stay in the log until their user prunes it.
        "ttlMs": None,
        "pollIntervalMs": _POLL_MILLISECONDS,
    }


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def get_task(feed: Feed, host: McpHost, query: TaskQuery) -> dict[str, Any]:
    """Return the current state of a task, with its result or its pending questions."""
    snapshot = await _find(feed, host, query.task_id)
    try:
        snapshot = await resume_interrupted(feed, snapshot, host.by)
    except RetinueError as error:
        # The tool failed, not the protocol, so the task is complete with an error.
        message = f"The run was interrupted and could not be resumed: {error.message}"
        result = error_result(StateError(message, remedy=error.remedy))
        return {**_task(snapshot.row, "completed", message), "result": _wire(result)}
    row, outcome = snapshot.row, snapshot.outcome
    if snapshot.live:
        if not snapshot.waiting:
            return _task(row, "working")
        asked = {item.id: form_request(item) for item in snapshot.waiting}
        return {**_task(row, "input_required"), "inputRequests": asked}
    if outcome is not None and outcome.ended == "stopped":
        return _task(row, "cancelled", outcome.failure.message if outcome.failure is not None else "")
    return {**_task(row, "completed"), "result": _wire(await run_result(feed, snapshot))}


def _wire(result: Any) -> dict[str, Any]:
    document: dict[str, Any] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return document


async def update_task(feed: Feed, host: McpHost, update: TaskUpdate) -> dict[str, Any]:
    """Pass the answers of the host's user to a run. Answers to items that no longer wait are dropped."""
    snapshot = await _find(feed, host, update.task_id)
    for item in snapshot.waiting:
        answer = update.input_responses.get(item.id)
        if answer is None:
            continue
        action, content = answer.get("action"), answer.get("content") or {}
        if action not in _FORM_ACTIONS or not isinstance(content, dict):
            raise MCPError(INVALID_PARAMS, f"The response to {item.id} is not a result of elicitation/create.")
        try:
            await answer_item(feed, item, action, content, host.by)
        except UsageError as error:
            raise MCPError(INVALID_PARAMS, f"{error.message} {error.remedy}".strip()) from None
    return {}


async def cancel_task(feed: Feed, host: McpHost, query: TaskQuery) -> dict[str, Any]:
    """Stop the run of a task, and all runs below it."""
    snapshot = await _find(feed, host, query.task_id)
    try:
        await feed.stop(snapshot.row.id, by=host.by, tree=True)
    except ConflictError:
        # It has ended meanwhile, which the task reports.
        return {}
    return {}


async def _find(feed: Feed, host: McpHost, task_id: str) -> RunSnapshot:
    if not host.tasks:
        needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", needed)
    try:
        snapshot = await snapshot_run(feed, task_id)
    except UnknownRunError as error:
        raise MCPError(INVALID_PARAMS, f"Task not found: {error.message}") from None
    if snapshot.row.id != task_id:
        # Only a full id is accepted, because a prefix would be easy to guess.
        raise MCPError(INVALID_PARAMS, f"Task not found: {task_id}")
    return snapshot


_RUN_LOCKS: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


async def resume_interrupted(feed: Feed, snapshot: RunSnapshot, by: str) -> RunSnapshot:
    """If a host requested this run and its process died, resume it in this process. Return its state then. Raise the
    errors of `Feed.resume`."""
    if not (snapshot.cut_off and snapshot.asked.get("by", "").startswith("mcp")):
        return snapshot
    run_id = snapshot.row.id
    turn = _RUN_LOCKS.get(run_id) or asyncio.Lock()
    _RUN_LOCKS[run_id] = turn
    async with turn:
        # Another request, or another server, may have resumed it meanwhile.
        snapshot = await snapshot_run(feed, run_id)
        if not snapshot.cut_off:
            return snapshot
        try:
            await asyncio.shield(asyncio.create_task(feed.resume(run_id, by=by)))
        except RetinueError:
            snapshot = await snapshot_run(feed, run_id)
            if snapshot.cut_off:
                raise
            return snapshot
        return await snapshot_run(feed, run_id)
