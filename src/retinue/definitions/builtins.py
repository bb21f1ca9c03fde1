"""The agents that come with the package, and the switches that leave them out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import retinue.builtin
from retinue.definitions.discover import Folder
from retinue.domain.spec import AgentSpec
from retinue.settings.places import retinue_home

BUILTIN_FOLDER = Folder(str(Path(retinue.builtin.__file__).parent / "agents"), "builtin", "retinue")

FALLBACK = AgentSpec(
    name="general-purpose",
    description="Does any task with the same instructions and tools as the agent that starts it.",
    prompt_mode="append",
    source="builtin",
)
"""What remains when every built-in agent is switched off: a twin of its parent."""

SWITCHES = (
    "RETINUE_DISABLE_BUILTIN_AGENTS",
    "RETINUE_DISABLE_DEFAULT_AGENTS",
    "CLAUDE_AGENT_SDK_DISABLE_BUILTIN_AGENTS",
)
SETTING = "disableDefaultAgents"
_OFF = frozenset({"", "0", "false", "no", "off"})


def builtins_disabled(levels: Iterable[Path], environment: Mapping[str, str] | None = None) -> bool:
    """Whether an environment switch or the setting leaves the built-in agents out. The nearest
    settings file that speaks about it wins; the local file over the shared one."""
    env = os.environ if environment is None else environment
    if any(env.get(switch, "").strip().lower() not in _OFF for switch in SWITCHES):
        return True
    for folder in (*(f"{level}/.retinue" for level in levels), retinue_home(environment)):
        for name in ("settings.local.json", "settings.json"):
            path = f"{folder}/{name}"
            said = _said(path) if os.path.exists(path) else None  # noqa: PTH110 (asked at every load)
            if said is not None:
                return said
    return False


def _said(path: str) -> bool | None:
    try:
        settings = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    value = settings.get(SETTING) if isinstance(settings, dict) else None
    return value if isinstance(value, bool) else None
