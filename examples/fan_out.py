"""One agent on many tasks, three at a time, with progress and typed results.

python examples/fan_out.py src/*.py
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from retinue import MapProgress, Retinue


@dataclass
class Summary:
    file: str
    purpose: str


def show(progress: MapProgress) -> None:
    print(f"{progress.done} of {progress.total}: {progress.task}", file=sys.stderr)


async def main(files: list[str]) -> None:
    tasks = [f"What is the purpose of {file}?" for file in files]
    async with Retinue(".") as crew:
        outcomes = await crew.map("Explore", tasks, limit=3, schema=Summary, progress=show, budget={"turns": 20})
    for task, outcome in zip(tasks, outcomes, strict=True):
        if outcome.value is None:
            print(f"{task} {outcome.ended}")
        else:
            print(f"{outcome.value.file}: {outcome.value.purpose}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
