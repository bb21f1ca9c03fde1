"""Past runs as traces: the same spans as if they had been sent while the runs worked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from retinue.capabilities.telemetry.collector import TraceCollector
from retinue.capabilities.telemetry.spans import TraceSpan
from retinue.capabilities.telemetry.translate import SpanTranslator
from retinue.http.transport import Transport
from retinue.log.query import LogReader

BATCH = 512


class SentTrace(Struct, frozen=True):
    """What became of an export: how many spans were sent, to where, and why others were not."""

    spans: int
    endpoint: str
    trace_id: str
    failure: str = ""


def spans_of(reader: LogReader, run_ids: Iterable[str], *, content: bool) -> Iterator[TraceSpan]:
    """Yield the spans of runs, of which parents come before their children."""
    translator = SpanTranslator(reader.stream, content=content)
    for run_id in run_ids:
        for event in reader.stream(run_id):
            yield from translator.take(event)
    yield from translator.cut_off()


async def send_past(
    reader: LogReader, run_ids: Iterable[str], environment: Mapping[str, str], *, content: bool
) -> SentTrace:
    """Send the spans of past runs. Stop at the first failure: the rest would fail as well."""
    transport = Transport()
    collector = TraceCollector(environment, transport)
    batch: list[TraceSpan] = []
    trace_id = 0
    for span in spans_of(reader, run_ids, content=content):
        trace_id = span.trace_id
        batch.append(span)
        if len(batch) == BATCH:
            await collector.send_spans(batch)
            batch = []
        if collector.failure:
            break
    if batch and not collector.failure:
        await collector.send_spans(batch)
    await transport.close()
    return SentTrace(collector.sent, collector.endpoint, f"{trace_id:032x}", collector.failure)
