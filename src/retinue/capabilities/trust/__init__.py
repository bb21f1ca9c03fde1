"""Consent: programs and rights in a project's files take effect only when somebody has agreed to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.runs.capability import Capability

if TYPE_CHECKING:
    from retinue.runs.launch import LaunchPlan


class TrustCapability(Capability):
    """Withholds from a run everything that nobody has consented to, with a note."""

    async def restrict(self, plan: LaunchPlan) -> None:
        from retinue.capabilities.trust.attach import withhold_rights

        withhold_rights(plan)
