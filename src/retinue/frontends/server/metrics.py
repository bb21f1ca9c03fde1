"""`/metrics`: totals and counts from the log of a project, in the text format of Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from retinue.app.feed import Feed
from retinue.app.reports import CostRow, read_cost
from retinue.core.delegation import LIVE

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metric(NamedTuple):
    """One metric with its samples and their labels."""

    name: str
    kind: str
    help: str
    samples: list[tuple[dict[str, str], float]]


async def metrics_text(feed: Feed) -> str:
    """Return the metrics of a project. Names of agents and models are labels; ids and paths are not."""
    by_agent = (await asyncio.to_thread(read_cost, feed.folder, "agent")).rows
    spent = (await asyncio.to_thread(read_cost, feed.folder, "model")).rows
    live = await feed.read(lambda reader: reader.list_runs(states=LIVE))
    waiting = await feed.inbox()
    states: dict[str, float] = {}
    for row in live:
        states[row.state] = states.get(row.state, 0) + 1
    metrics = [
        _by("agent", "retinue_runs_total", "Runs that were started.", by_agent, "runs"),
        _by("agent", "retinue_turns_total", "Answers of models.", by_agent, "turns"),
        _by("agent", "retinue_tool_uses_total", "Calls of tools.", by_agent, "tool_uses"),
        Metric("retinue_tokens_total", "counter", "Tokens that were used.", list(_tokens(spent))),
        _by("model", "retinue_cost_usd_total", "Dollars that were spent, where prices are known.", spent, "cost_usd"),
        _by("model", "retinue_unpriced_runs_total", "Runs whose price is not known.", spent, "unpriced_runs"),
        Metric(
            "retinue_runs_live", "gauge", "Runs by state.", [({"state": key}, count) for key, count in states.items()]
        ),
        Metric("retinue_inbox_waiting", "gauge", "Questions that wait for a person.", [({}, len(waiting))]),
    ]
    return "".join(_text(metric) for metric in metrics)


def _by(label: str, name: str, help: str, lines: Iterable[CostRow], attribute: str) -> Metric:
    samples = []
    for line in lines:
        value = getattr(line, attribute)
        if value is not None:
            samples.append(({label: line.key}, float(value)))
    return Metric(name, "counter", help, samples)


def _tokens(lines: Iterable[CostRow]) -> Iterable[tuple[dict[str, str], float]]:
    for line in lines:
        for kind in ("input", "output", "cache_read", "cache_write"):
            yield {"model": line.key, "type": kind}, float(getattr(line, kind))


def _text(metric: Metric) -> str:
    lines = [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
    for labels, value in metric.samples:
        shown = ",".join(f'{name}="{_escape(text)}"' for name, text in labels.items())
        lines.append(f"{metric.name}{{{shown}}} {value:g}" if shown else f"{metric.name} {value:g}")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
