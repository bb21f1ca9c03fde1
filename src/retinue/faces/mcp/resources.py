"""Agents and runs as resources: `retinue://agents`, `retinue://runs/ID/transcript` and so on."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from retinue.errors import RetinueError
from retinue.faces.feed import details
from retinue.faces.feed.feed import Feed
from retinue.faces.feed.views import RunList, run_view
from retinue.faces.mcp.offer import Offer
from retinue.log.encode import dump
from retinue.tools.delegation.frame import one_line

AGENTS = "retinue://agents"
RUNS = "retinue://runs"
JSON = "application/json"
DIFF = "text/x-diff"
_MOST_RUNS = 100
_MOST_EVENTS = 10_000

TEMPLATES = (
    ResourceTemplate(
        name="agent", uri_template=f"{AGENTS}/{{name}}", mime_type=JSON, description="One agent: its definition."
    ),
    ResourceTemplate(
        name="run",
        uri_template=f"{RUNS}/{{id}}",
        mime_type=JSON,
        description="One run: its task, how it stands or ended.",
    ),
    ResourceTemplate(
        name="transcript",
        uri_template=f"{RUNS}/{{id}}/transcript",
        mime_type=JSON,
        description="The conversation of a run.",
    ),
    ResourceTemplate(
        name="effects",
        uri_template=f"{RUNS}/{{id}}/effects",
        mime_type=JSON,
        description="What a run and those below it really did: files, commands, hosts, denials.",
    ),
    ResourceTemplate(
        name="diff",
        uri_template=f"{RUNS}/{{id}}/diff",
        mime_type=DIFF,
        description="The files that a run and those below it have changed.",
    ),
)


async def list_resources(feed: Feed, offer: Offer) -> list[Resource]:
    """Return what a host may attach without knowing an id."""
    found = [
        Resource(name="agents", uri=AGENTS, mime_type=JSON, description="The agents of this project."),
        Resource(name="runs", uri=RUNS, mime_type=JSON, description=f"The newest {_MOST_RUNS} runs of this project."),
    ]
    for entry in await offer.entries(feed):
        about = one_line(entry.spec.description, 200)
        uri = f"{AGENTS}/{quote(entry.name, safe='')}"
        found.append(Resource(name=f"agent {entry.name}", uri=uri, mime_type=JSON, description=about))
    return found


async def read_resource(feed: Feed, offer: Offer, uri: str) -> ReadResourceResult:
    """Return a resource. Raise MCPError where there is none."""
    try:
        text, kind = await _read(feed, offer, uri)
    except RetinueError as error:
        raise MCPError(INVALID_PARAMS, f"{error.message} {error.remedy}".strip(), {"uri": uri}) from None
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=kind, text=text)])


async def _read(feed: Feed, offer: Offer, uri: str) -> tuple[str, str]:
    scheme, _, path = uri.partition("://")
    match [scheme, *(unquote(part) for part in path.split("/"))]:
        case ["retinue", "agents"]:
            names = {entry.name for entry in await offer.entries(feed)}
            found = await details.list_agents(feed)
            agents = [each for each in found.agents if each.name in names and each.shadowed_by is None]
            return _json({"agents": agents, "failed": found.failed}), JSON
        case ["retinue", "agents", name]:
            entry = await offer.find(feed, name)
            return _json(await details.describe_agent(feed, entry.name)), JSON
        case ["retinue", "runs"]:
            snapshot = await feed.snapshot(limit=_MOST_RUNS)
            runs = [run_view(row, snapshot.labels.get(row.id)) for row in snapshot.runs]
            return _json(RunList(snapshot.cursor, runs)), JSON
        case ["retinue", "runs", run_id]:
            return _json(await details.describe_run(feed, await feed.find(run_id))), JSON
        case ["retinue", "runs", run_id, "transcript"]:
            row = await feed.find(run_id)
            return _json(await details.read_transcript(feed, row, after=0, limit=_MOST_EVENTS)), JSON
        case ["retinue", "runs", run_id, "effects"]:
            return _json(await details.list_effects(feed, await feed.find(run_id), tree=True)), JSON
        case ["retinue", "runs", run_id, "diff"]:
            changes = await details.list_changes(feed, await feed.find(run_id), tree=True)
            return "".join(file.diff for file in changes.files), DIFF
        case _:
            raise MCPError(INVALID_PARAMS, "There is no such resource.", {"uri": uri})


def _json(document: Any) -> str:
    return dump(document).decode()
