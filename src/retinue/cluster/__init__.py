"""Where runs execute: on this machine, or on workers of a cluster that share a database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.settings.places import database_of

if TYPE_CHECKING:
    from retinue.runs.capability import Capability
    from retinue.runs.project import Project
    from retinue.runs.remote import RemoteSender


def open_project(cwd: Path, *, innermost: Sequence[Capability] = (), **options: Any) -> Project:
    """Return the project at `cwd` with all capabilities. Those in `innermost` wrap tools before all others; the other
    options are those of `Project`. Importing this module does not load the code of runs."""
    from retinue.capabilities.orders import standard_capabilities
    from retinue.runs.project import Project

    project = Project(cwd, capabilities=standard_capabilities(*innermost), **options)
    project.connect_remote_sender = _connect_cluster
    return project


def _connect_cluster(project: Project) -> RemoteSender | None:
    """Return the sender of runs to other machines; None if the log is not in a database that workers share."""
    database = database_of(project.state)
    if database is None:
        return None
    from retinue.cluster.sender import ClusterSender

    return ClusterSender(project, database)
