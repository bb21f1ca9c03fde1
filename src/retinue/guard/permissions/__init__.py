"""Which calls a run may make: rules, modes, protected paths, critical deletions."""

from retinue.guard.permissions.policy import PermissionPolicy

__all__ = ["PermissionPolicy"]
