"""A tool of your own and a typed result.

    python examples/custom_tool.py

The agent gets one tool, which looks an order up, and must answer with a `Reply`: `outcome.value` is one, also for a
type checker. It needs a language model: `retinue models add`, or a key in the environment.
"""

from __future__ import annotations

from dataclasses import dataclass

import retinue

ORDERS = {"A-17": "shipped on Monday", "A-18": "waiting for payment"}


@dataclass
class Reply:
    order: str
    text: str


@retinue.tool(effects=["read"])
def look_up_order(number: str) -> str:
    """Say how an order stands."""
    return ORDERS.get(number, "There is no such order.")


AGENT = retinue.AgentSpec(
    name="clerk",
    description="Answers questions about orders.",
    prompt="You answer questions about orders. Look every order up; never guess.",
)


def main() -> None:
    outcome = retinue.run(AGENT, "Where is my order A-17?", tools=[look_up_order], schema=Reply)
    if outcome.value is None:
        raise SystemExit(f"The run {outcome.ended}: {outcome.failure and outcome.failure.message}")
    print(f"{outcome.value.order}: {outcome.value.text}")


if __name__ == "__main__":
    main()
