"""The model that judges calls in the mode auto."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from retinue.core.messages import user
from retinue.core.permission import Decision, ToolUse
from retinue.errors import LaunchError

if TYPE_CHECKING:
    from retinue.guard.permissions.policy import Policy
    from retinue.models.protocol import Model
    from retinue.runs.world import World

LONGEST_SECONDS = 30.0
"""How long a call waits for the model's opinion, retries included, before a person is asked."""
VERDICT_TOKENS = 1_000
"""Room for a short verdict, and for the little that models think which cannot be told not to."""
Classify = Callable[[ToolUse, Decision], Awaitable[Decision]]


def classifier_for(policy: Policy, world: World) -> Classify | None:
    """What `permissions.autoModel` makes of a question; None where it has no say. The model is
    connected for the first question."""
    name = world.settings.settings.permissions_auto_model
    if policy.mode != "auto" or name is None:
        return None
    known: list[Model] = []

    async def ask(system: str, question: str) -> str:
        from retinue.models.protocol import Finished, ModelRequest

        async with asyncio.timeout(LONGEST_SECONDS):
            if not known:
                known.append(await _model(name, world))
            # Thinking counts towards the limit and is on by default: it would leave no room for the verdict.
            request = ModelRequest(
                system=system, messages=(user(question),), max_output=VERDICT_TOKENS, thinking="off", tool_choice="none"
            )
            async with aclosing(known[0].stream(request)) as parts:
                async for part in parts:
                    if isinstance(part, Finished):
                        return part.message.text if part.message.failure is None else ""
        return ""

    async def classify(use: ToolUse, decision: Decision) -> Decision:
        from retinue.guard.permissions.modes import classified

        return await classified(policy, use, decision, ask)

    return classify


async def _model(name: str, world: World) -> Model:
    from retinue.models.select import build_model, select_model

    selection = await select_model(
        name,
        settings=world.settings.settings,
        environment=world.environment,
        transport=world.transport,
    )
    if not selection.provider.origin.personal and not world.trust.everything:
        # A server that a project names must not be the one that judges what is done in it.
        raise LaunchError(f"{selection.provider.id} is a server of the project's: it does not judge calls.")
    return build_model(selection, world.transport)
