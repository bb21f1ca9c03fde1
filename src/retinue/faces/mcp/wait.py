"""A call that waits for a run. The run never depends on the call: when the host gives up, it goes on."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitRequest, InputRequiredResult

from retinue.core.permission import InboxItem
from retinue.errors import UsageError
from retinue.faces.feed.watch import RunStanding, RunWatch, look_at
from retinue.faces.mcp.host import HostCall, answer_item, form_of, form_request, take_answers
from retinue.faces.mcp.params import WAIT_SECONDS
from retinue.faces.mcp.result import run_result
from retinue.tools.delegation.frame import one_line
from retinue.tools.delegation.views import count_noun

_TICK_SECONDS = 5.0
"""How often a host hears of a run. Half of what is promised: a message may be late."""

_PAUSE_SECONDS = 0.2

WaitResult = CallToolResult | InputRequiredResult


async def wait_for_run(
    call: HostCall, found: RunStanding, seconds: float | None, *, verbose: bool = False, state: str | None = None
) -> WaitResult:
    """Return a run when it has ended, needs a person, or `seconds` are over. Without `seconds` a host that hears of
    progress waits to the end, and others as long as most of them can. `state` comes back with the user's answers."""
    aside = await take_answers(call, found.waiting)
    if not found.live:
        return await run_result(call.feed, found, verbose=verbose)
    run_id, limit = found.row.id, seconds
    if limit is None and not call.host.progress:
        limit = WAIT_SECONDS
    deadline = None if limit is None else time.monotonic() + limit
    async with RunWatch(call.feed, run_id, calls=call.host.progress) as watch, _Forms(call) as forms:
        forms.aside |= aside
        while True:
            found = await look_at(call.feed, run_id)
            if not found.live:
                return await run_result(call.feed, found, verbose=verbose)
            if found.waiting and not forms.can_ask(found.waiting):
                return await run_result(call.feed, found)
            if found.waiting and call.host.again:
                asked = {item.id: form_request(item) for item in found.waiting if item.id not in forms.aside}
                return InputRequiredResult.model_validate({"inputRequests": asked, "requestState": state})
            forms.ask(found.waiting)
            left = _TICK_SECONDS if deadline is None else min(_TICK_SECONDS, deadline - time.monotonic())
            if left <= 0:
                return await run_result(call.feed, found, note=f"Not done after waiting {limit:g} seconds.")
            await _report(call, found, watch, forms)
            if await watch.news(left) and call.host.progress:
                # Of many calls in a moment the host hears once.
                await asyncio.sleep(_PAUSE_SECONDS)


async def _report(call: HostCall, found: RunStanding, watch: RunWatch, forms: _Forms) -> None:
    """Tell a host that wants to hear of it what the run does now."""
    row = found.row
    forms.reports += 1
    doing = f": {one_line(watch.doing, 160)}" if watch.doing else ""
    if found.waiting:
        doing = f": waits for an answer to '{one_line(found.waiting[0].title, 120)}'"
    done = f"{count_noun(row.turns, 'turn')}, {count_noun(row.tool_uses, 'tool use')}"
    message = f"{one_line(row.agent, 60)} ({row.id[:8]}, {row.state}, {done}){doing}"
    await call.ctx.session.report_progress(float(forms.reports), None, message)


class _Forms:
    """What is asked of the user of an older host while a call waits. Each item is asked once; when it is answered
    elsewhere first, the form is called off."""

    def __init__(self, call: HostCall) -> None:
        self._call = call
        self._open: dict[str, asyncio.Task[None]] = {}
        self.aside: set[str] = set()
        """What the user has put aside: it is not asked again in this call."""
        self.reports = 0

    async def __aenter__(self) -> _Forms:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._call_off(set(self._open))

    def can_ask(self, waiting: tuple[InboxItem, ...]) -> bool:
        """Return whether the host's user can be asked for at least one of these."""
        if not self._call.host.forms:
            return False
        return any(item.id not in self.aside for item in waiting)

    def ask(self, waiting: tuple[InboxItem, ...]) -> None:
        """Show a form for what waits, and take back those that wait no more."""
        ids = {item.id for item in waiting}
        self._call_off(self._open.keys() - ids)
        for item in waiting:
            if item.id not in self._open and item.id not in self.aside:
                self._open[item.id] = asyncio.create_task(self._show(item), name=f"form {item.id}")

    def _call_off(self, ids: set[str]) -> None:
        for each in ids:
            self._open.pop(each).cancel()

    async def _show(self, item: InboxItem) -> None:
        call = self._call
        request = ElicitRequest.model_validate(form_request(item))
        try:
            answer = await call.ctx.session.elicit_form(
                request.params.message, form_of(item)["requestedSchema"], call.ctx.request_id
            )
            content: dict[str, Any] = dict(answer.content or {})
            if await answer_item(call.feed, item, answer.action, content, call.host.by):
                return
        except (MCPError, UsageError):
            # The host cannot show it after all, or its user said what is no answer: other ways are left.
            pass
        self.aside.add(item.id)
        with suppress(KeyError):
            del self._open[item.id]
