"""Watch what an agent does, and say something to it while it works.

python examples/watch_and_steer.py
"""

from __future__ import annotations

import asyncio

from retinue import Retinue


async def main() -> None:
    async with Retinue(".") as crew:
        run = await crew.spawn("Explore", "Which files are here, and what for?")
        await run.steer("Answer in one sentence.")
        async for event in run.events():
            print(event.seq, event.body.type)
        outcome = await run.wait()
        print(outcome.ended, outcome.text)


if __name__ == "__main__":
    asyncio.run(main())
