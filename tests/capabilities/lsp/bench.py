"""A small Python package, the real language server `ty`, and the tool that asks it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retinue.capabilities.lsp import Languages
from retinue.capabilities.lsp.pool import LanguageServerPool, ServerSlot
from retinue.core.tool import ToolOutput
from retinue.testing import ToolBench

FAKE = Path(__file__).with_name("fake_server.py")

SHOP = '''"""A shop."""

from dataclasses import dataclass


@dataclass
class Item:
    name: str
    price: int

    def total(self, count: int) -> int:
        """What many of them cost."""
        return self.price * count


def cheapest(items: list[Item]) -> Item:
    return min(items, key=lambda item: item.price)
'''
MAIN = """from app.shop import Item, cheapest

pear = Item("🍐", 3)
"🍐🍐🍐"; cheapest([pear])
wrong: int = pear.name
pear.total("many")
"""


def write_package(root: Path) -> None:
    (root / "app").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[project]\nname = "app"\nversion = "1"\n')
    (root / "app" / "__init__.py").write_text("")
    (root / "app" / "shop.py").write_text(SHOP)
    (root / "app" / "main.py").write_text(MAIN)


class Bench(ToolBench):
    """One project with its tool. `ask` asks as a run without a parent would."""

    async def ask(self, action: str, /, **arguments: Any) -> ToolOutput:
        return await self.tool("lsp").run("call-1", {"action": action, **arguments}, self.context)

    async def text(self, action: str, /, **arguments: Any) -> str:
        output = await self.ask(action, **arguments)
        assert not output.is_error, output.text
        return output.text

    async def error(self, action: str, /, **arguments: Any) -> str:
        output = await self.ask(action, **arguments)
        assert output.is_error, output.text
        assert output.effect.code == output.text.partition(":")[0]
        return output.text


def pool_of(bench: Bench) -> LanguageServerPool:
    return bench.project.part(Languages).pool


def slot_of(bench: Bench) -> ServerSlot:
    (only,) = pool_of(bench).slots.values()
    return only


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


async def until(condition: Callable[[], Any]) -> Any:
    async with asyncio.timeout(30):
        while not (found := condition()):
            await asyncio.sleep(0.01)
        return found
