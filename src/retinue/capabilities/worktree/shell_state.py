"""What a shell of an isolated run may know and do where it concerns git and the main checkout."""

from __future__ import annotations

from collections.abc import Mapping

_IDENTITY = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_SSL_", "GIT_SSH")


def without_git(environment: Mapping[str, str]) -> dict[str, str]:
    """Without the variables by which a caller's git (a hook, an alias) would lead every git of the
    agent back to the main checkout."""
    return {
        name: value for name, value in environment.items() if not name.startswith("GIT_") or name.startswith(_IDENTITY)
    }
