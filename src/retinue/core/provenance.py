"""Where a value came from, and what it takes before the value may give rights.

A value is a definition of an agent, an MCP server, a hook, a plugin, a settings file, a skill, a test file. Whoever
reads one records its provenance, and `requirement` is the only place that turns a provenance into a decision.
"""

from __future__ import annotations

from typing import Literal, assert_never

Provenance = Literal["person", "project", "plugin", "machine", "recording"]
"""`person`: this user, on this machine: own files, flags, programs that use the library, and what Retinue ships.
`project`: files of the project, which a repository may have brought. `plugin`: an agent's file in a plugin.
`machine`: another machine, by way of a shared database. `recording`: a test file or a recorded run."""

Right = Literal["hooks", "servers", "extensions", "permissions", "shell", "commands", "folders", "git", "settings"]
"""`hooks`: programs at events. `servers`: MCP and language servers. `extensions`: Python code of plugins.
`permissions`: allow rules, allowed tools and permission modes. `shell`: a shell on a host without a sandbox.
`commands`: shell lines of command files. `folders`: folders outside of the workspace. `git`: programs that git starts.
`settings`: every other setting that widens rights."""

Requirement = Literal["none", "consent", "operator", "never"]
"""`none`: it takes effect. `consent`: a person has consented to exactly this content. `operator`: whoever started
this worker allows senders the right (`retinue worker --allow`). `never`: it has no effect."""

OPERATOR_RIGHTS: tuple[Right, ...] = ("hooks", "servers", "extensions", "permissions", "shell")
"""What the operator of a worker may allow senders. The rest would give away files, keys or the worker's settings."""


def requirement(provenance: Provenance, right: Right) -> Requirement:
    """Return what it takes before a value of this provenance gives `right`."""
    match provenance:
        case "person":
            return "none"
        case "project" | "recording":
            return "consent"
        case "plugin":
            return "never"
        case "machine":
            return "operator" if right in OPERATOR_RIGHTS else "never"
        case _:
            assert_never(provenance)
