"""The first request of each agent, measured: what every run pays before it begins.

A plain install in an empty git project, without search services, language servers and the
converter; the body is Anthropic's. Tokens are the bytes of the compact JSON divided by four.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

AGENTS = (
    "general-purpose",
    "Explore",
    "Plan",
    "verification",
    "reviewer",
    "researcher",
    "tester",
    "explorer",
    "implementer",
    "retinue-guide",
    "statusline-setup",
)
PLAIN = dict.fromkeys(("lsp", "convert_content", "web_search"), "not on a plain install.")
BEFORE = {
    "main": 4_209,
    "general-purpose": 4_789,
    "Explore": 995,
    "Plan": 945,
    "verification": 1_126,
    "reviewer": 1_308,
    "researcher": 1_049,
    "tester": 1_275,
    "explorer": 1_247,
    "implementer": 1_283,
    "retinue-guide": 1_046,
    "statusline-setup": 1_009,
}
"""The same requests at commit 57a0c60, measured in the same way."""
_TASK = "Say hello."
_HERE = "/home/somebody/project"
_SOURCE = Path(__file__).resolve().parents[1]
_INSTALLED = "/home/somebody/retinue"
"""The guide is told where the documents are, which differs between checkouts."""

Row = tuple[str, int, int, int, int]
"""Name, number of tools, and the tokens of the prompt, the tools and the whole request."""


def first_requests() -> list[Row]:
    """Main first, then each shipped agent as main starts it."""
    return asyncio.run(_measured(PLAIN, attended=False))


def largest_request() -> Row:
    """Main with everything that can be installed, working with a person."""
    return asyncio.run(_measured({}, attended=True))[0]


async def _measured(unavailable: Mapping[str, str], *, attended: bool) -> list[Row]:
    from retinue.app.dialogue import main_agent
    from retinue.cluster import open_project
    from retinue.core.request import RunRequest
    from retinue.runs.preview import preview

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        cwd = root / "project"
        _repository(cwd)
        project = open_project(
            cwd, environment={"HOME": str(root), "RETINUE_HOME": str(root / "home"), "PATH": "/usr/bin:/bin"}
        )
        project.__dict__["unavailable"] = unavailable
        if attended:
            project.approvers.append(_nobody)
        main = await preview(RunRequest(spec=main_agent(), task=_TASK, cwd=cwd), project)
        rows = [_row("main", main, cwd)]
        for name in AGENTS:
            spec = project.catalog().find(name).spec
            seen = await preview(RunRequest(spec=spec, task=_TASK, cwd=cwd, depth=1), project, main)
            rows.append(_row(name, seen, cwd))
        return rows


async def _nobody(item: Any) -> None:
    """A person who is there and is never asked."""


def _repository(folder: Path) -> None:
    for name in ("objects", "refs"):
        (folder / ".git" / name).mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")


def _row(name: str, seen: Any, cwd: Path) -> Row:
    system = seen.system.replace(str(cwd), _HERE).replace(str(_SOURCE), _INSTALLED)
    tools = [_wire(tool.spec) for tool in seen.tools]
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 32_000,
        "stream": True,
        "system": [{"type": "text", "text": system}],
        "tools": tools,
        "messages": [{"role": "user", "content": [{"type": "text", "text": seen.message}]}],
    }
    return name, len(tools), _tokens(system), _tokens(tools), _tokens(body)


def _wire(spec: Any) -> Mapping[str, Any]:
    return {"name": spec.name, "description": spec.description, "input_schema": spec.parameters}


def _tokens(value: Any) -> int:
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return len(text.encode()) // 4
