"""Which calls a run may make: rules, modes, protected paths, critical deletions."""

from retinue.guard.permissions.policy import Policy

__all__ = ["Policy"]
