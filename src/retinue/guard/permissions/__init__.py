"""Who may call what: rules, modes, protected paths, critical deletions."""

from retinue.guard.permissions.policy import Policy

__all__ = ["Policy"]
