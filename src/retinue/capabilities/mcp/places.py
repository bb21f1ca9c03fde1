"""The files that may configure MCP servers. Cheap to import: it is asked at every launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from retinue.settings.places import home, pi_home, repository_root

CODINGCODE = ("mcp.yaml", "mcp.yml")


def claude_file(environment: Mapping[str, str]) -> Path:
    return home(environment) / ".claude.json"


def user_files(environment: Mapping[str, str]) -> Iterator[Path]:
    """Besides Claude Code's: what the user configured for other systems."""
    yield pi_home(environment) / "mcp.json"
    yield from (home(environment) / ".codingcode" / name for name in CODINGCODE)


def project_files(cwd: Path) -> Iterator[Path]:
    """What the project brings, the nearest last, so that it wins."""
    for folder in reversed(list(upwards(cwd))):
        yield from (folder / ".codingcode" / name for name in CODINGCODE)
        yield folder / ".pi" / "mcp.json"
        yield folder / ".mcp.json"


def upwards(cwd: Path) -> Iterator[Path]:
    """The folder and those above it, up to the repository's; only the folder outside of one."""
    top = repository_root(cwd)
    for folder in (cwd, *cwd.parents):
        yield folder
        if top is None or folder == top:
            return


def any_file(cwd: Path, environment: Mapping[str, str], *, claude: bool) -> bool:
    """Whether there is any such file at all."""
    if claude and claude_file(environment).is_file():
        return True
    return any(path.is_file() for path in (*user_files(environment), *project_files(cwd)))
