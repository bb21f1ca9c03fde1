"""Where skills lie, the strongest place first.

Those of the project come before the user's, a nearer folder before the ones above it up to the
repository's root, and within one folder Retinue's own before Claude Code's, pi's and the shared
`.agents`. Folders from the settings and from plugins come last. A root that is a symbolic link is
not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from retinue.agents.discover import levels
from retinue.core.lean import dataclass
from retinue.core.skill import SkillSource
from retinue.settings.places import home, pi_home, retinue_home

PROJECT = (".retinue/skills", ".claude/skills", ".pi/skills", ".agents/skills")


@dataclass(frozen=True, slots=True)
class Root:
    """One folder of skills. Those of a `plugin` are called `plugin:skill`."""

    path: Path
    source: SkillSource
    plugin: str | None = None


def skill_roots(
    cwd: Path,
    environment: Mapping[str, str],
    *,
    extra: Iterable[str] = (),
    plugins: Iterable[tuple[str, Path]] = (),
) -> tuple[Root, ...]:
    """Every place to look, whether it exists or not. `extra` are paths as settings have them,
    `plugins` are names with their skill folders."""
    homes = (home(environment), retinue_home(environment), pi_home(environment))
    return _roots(cwd, *homes, tuple(extra), tuple(plugins))


@lru_cache(maxsize=64)  # asked at every launch
def _roots(
    cwd: Path, house: Path, own: Path, pi: Path, extra: tuple[str, ...], plugins: tuple[tuple[str, Path], ...]
) -> tuple[Root, ...]:
    user = (
        own / "skills",
        house / ".claude" / "skills",
        pi / "skills",
        house / ".agents" / "skills",
        house / ".pi" / "skills",
    )
    found = [Root(level / name, "project") for level in levels(cwd) for name in PROJECT if level / name not in user]
    found += [Root(path, "user") for path in user]
    found += [Root(_expanded(each, cwd, house), "extra") for each in extra]
    found += [Root(path, "plugin", name) for name, path in plugins]
    first = {root.path: root for root in reversed(found)}
    return tuple(first[path] for path in dict.fromkeys(root.path for root in found))


def _expanded(text: str, cwd: Path, house: Path) -> Path:
    return house / text[2:] if text.startswith("~/") else cwd / text
