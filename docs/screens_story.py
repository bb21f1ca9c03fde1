"""The story that the pictures of the terminal app show: a person, a main agent, and three of its agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from retinue.core.events import (
    AssistantEnded,
    Body,
    InboxOpened,
    MessageAdded,
    RunCreated,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolResult, user
from retinue.core.outcome import Outcome
from retinue.core.permission import InboxItem, ToolEffect
from retinue.core.request import RunOptions
from retinue.core.run_state import RunPlace
from retinue.core.usage import Usage
from retinue.log.inbox import put

MODEL = "anthropic/claude-sonnet-4-5"
TASK = "Prices are wrong for customers abroad. Find out why, and fix it."
ANSWER = """I have three agents on it: one reads how prices are made, one looks at the tests, and one
searches for the currency that gets lost.

- **`src/shop/prices.py`** rounds *before* it converts.
- The tests only know euros.
"""
DIFF = """--- src/shop/prices.py
+++ src/shop/prices.py
@@ -41,3 +41,3 @@
 def price_in(currency: str, amount: Decimal) -> Price:
-    rounded = amount.quantize(CENT)
-    return Price(rounded * RATES[currency], currency)
+    converted = amount * RATES[currency]
+    return Price(converted.quantize(smallest_unit(currency)), currency)
"""
EDIT = InboxItem(
    id="5d0c41f2aa",
    kind="approval",
    run_id="",
    root_id="",
    agent="migrator",
    title="edit src/shop/prices.py",
    detail=DIFF.rstrip(),
    payload={"tool": "edit", "arguments": {"path": "src/shop/prices.py"}},
    reason="No rule allows edit.",
    rule="Edit(/src/shop/prices.py)",
)
QUESTION = InboxItem(
    id="7be90317cc",
    kind="question",
    run_id="",
    root_id="",
    agent="auditor",
    title="Which currencies must the shop support?",
    options=("Those in RATES", "All of ISO 4217"),
    risk="low",
)


class Teller:
    """Writes events of runs into the log of the app's own process, as runs do."""

    def __init__(self, app: Any, later: Callable[[float], None]) -> None:
        self.app = app
        self.later = later
        self.log = app.retinue.supervisor.project.log
        self.runs: dict[str, RunPlace] = {}

    def start(self, name: str, agent: str, task: str, parent: str | None = None, **options: Any) -> None:
        above = self.runs.get(parent or "")
        run_id = f"{len(self.runs):02d}{name}".ljust(12, "0")
        place = RunPlace(run_id, above.run_id if above else None, above.root_id if above else run_id)
        self.runs[name] = place
        depth = 0 if above is None else 1
        spec = {"color": options.pop("color", None), "display_name": agent}
        self.say(
            name,
            RunCreated(agent, task, spec, "", MODEL, "/shop", depth, RunOptions(**{"background": True, **options})),
        )
        self.say(name, RunStarted(MODEL, (), "/shop"), MessageAdded(user(task)), TurnStarted(1))

    def say(self, name: str, *bodies: Body) -> None:
        for body in bodies:
            self.log.append(self.runs[name], body)

    def call(self, name: str, call: ToolCall, text: str | None) -> None:
        """A call, and its result; None leaves it at work."""
        self.say(name, ToolStarted(call))
        if text is not None:
            result = ToolResult(call.id, call.name, (Text(text),))
            self.say(name, ToolEnded(call.id, call.name, result, ToolEffect(), 40))

    def turn(self, name: str, number: int, tokens: int, cost: float) -> None:
        spent = Usage(tokens, tokens // 9, cost_usd=cost)
        self.say(name, TurnEnded(number, spent, spent, tokens), TurnStarted(number + 1))

    async def ask(self, item: InboxItem, now: float) -> None:
        name = "fix" if item is EDIT else "auth"
        run = self.runs[name]
        asked = replace(item, run_id=run.run_id, root_id=run.root_id, created_at=now - 12)
        self.say(name, InboxOpened(asked.id, asked.kind, asked.title))
        await self.log.transact(lambda connection: put(connection, asked, asked.id))


async def tell(teller: Teller) -> None:
    app = teller.app
    teller.start("main", "main", TASK)
    app.session.main_id = app.board.main_id = teller.runs["main"].run_id
    read = ToolCall("c1", "read", {"path": "src/shop/prices.py"})
    spawn = ToolCall("c2", "Agent", {"description": "Find where the currency gets lost", "subagent_type": "auditor"})
    said = AssistantMessage((Text("I look at how prices are made, and set three agents to work."), read, spawn))
    teller.say("main", AssistantEnded(1, said))
    teller.later(4)
    teller.call("main", read, "1  from decimal import Decimal\n2  CENT = Decimal('0.01')")
    _auditor(teller)
    teller.later(3)
    _others(teller)
    teller.later(21)
    teller.call("main", spawn, "Started in the background.")
    teller.turn("main", 1, 12_400, 0.041)
    teller.say("main", AssistantEnded(2, AssistantMessage((Text(ANSWER),))))
    spent = Usage(13_100, 900, cost_usd=0.052)
    teller.say("main", TurnEnded(2, spent, spent, 13_100))
    teller.later(8)
    await teller.log.flush()


def _auditor(teller: Teller) -> None:
    task = "Find where the currency of a price gets lost between the cart and the invoice."
    teller.start("auth", "auditor", task, "main", description="Find where the currency gets lost", color="cyan")
    grep = ToolCall("g1", "grep", {"pattern": "currency", "path": "src"})
    text = AssistantMessage((Text("I begin with every place that names a currency."), grep))
    teller.say("auth", AssistantEnded(1, text))
    found = "src/shop/cart.py:18: currency: str\nsrc/shop/prices.py:41: def price_in(currency"
    teller.call("auth", grep, found)
    teller.turn("auth", 1, 8_300, 0.011)
    reads = [ToolCall(f"r{n}", "read", {"path": f"src/shop/{name}.py"}) for n, name in enumerate(("cart", "invoice"))]
    teller.say("auth", AssistantEnded(2, AssistantMessage((Text("`invoice.py` adds totals without it."), *reads))))
    for call in reads:
        teller.call("auth", call, None)


def _others(teller: Teller) -> None:
    teller.start("tests", "tester", "Which tests cover prices?", "main", description="Look at the tests of prices")
    teller.say("tests", TextDelta("The tests only know euros, so nothing fails."))
    teller.start(
        "fix", "migrator", "Round after converting.", "main", description="Round after converting", color="orange"
    )
    edit = ToolCall("e1", "edit", {"path": "src/shop/prices.py"})
    teller.turn("fix", 1, 21_000, 0.03)
    teller.say("fix", AssistantEnded(2, AssistantMessage((edit,))))
    teller.call("fix", edit, None)
    teller.later(2)
    teller.start("docs", "translator", "Which texts name prices?", "main", description="Texts that name prices")
    teller.turn("docs", 1, 5_200, 0.006)
    teller.say("docs", AssistantEnded(2, AssistantMessage((Text("Eleven texts, all in `locale/`."),))))
    teller.say("docs", TurnEnded(2, Usage(5_400), Usage(5_400, 300, cost_usd=0.007), 5_400))
    teller.later(9.4)
    done = Outcome("completed", "Eleven texts, all in `locale/`.", usage=Usage(5_400, 300, cost_usd=0.007), turns=2)
    teller.say("docs", RunEnded(done))
