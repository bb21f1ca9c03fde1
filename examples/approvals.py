"""A program that decides what its agent may do: edits below notes/ are allowed, everything else is refused.

python examples/approvals.py "Write a list of the files here to notes/files.md"
"""

from __future__ import annotations

import asyncio
import sys

from retinue import Retinue
from retinue.core.permission import InboxItem


async def decide(item: InboxItem) -> str:
    """Return the answer to one question of the agent; a person could be asked here instead."""
    path = str(item.payload.get("arguments", {}).get("path", ""))
    allowed = item.kind == "approval" and path.startswith("notes/")
    print(f"{'allowed' if allowed else 'refused'}: {item.title}", file=sys.stderr)
    return "allow" if allowed else "deny"


async def main(task: str) -> None:
    async with Retinue(".", approve=decide) as crew:
        run = await crew.spawn("general-purpose", task)
        outcome = await run.wait()
    print(outcome.text)
    print("written:", ", ".join(outcome.evidence.files_written) or "nothing")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
