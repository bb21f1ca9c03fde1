"""Consent: what a project's files bring takes effect only when somebody has agreed to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.runs.capability import Capability

if TYPE_CHECKING:
    from retinue.runs.launch import LaunchPlan


class TrustCapability(Capability):
    """A run goes without what nobody has consented to, and says so."""

    async def restrict(self, plan: LaunchPlan) -> None:
        from retinue.capabilities.trust.attach import withhold_rights

        withhold_rights(plan)
