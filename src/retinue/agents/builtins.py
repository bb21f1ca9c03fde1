"""The agents that come with the package, and the switches that leave them out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import retinue.builtin
from retinue.agents.discover import Folder
from retinue.core.spec import AgentSpec
from retinue.settings.load import load_settings
from retinue.settings.table import Settings

_AGENTS = Path(retinue.builtin.__file__).parent / "agents"
BUILTIN_FOLDERS = (
    Folder(str(_AGENTS), "builtin", "retinue"),
    Folder(str(_AGENTS / "devkit"), "builtin", "devkit"),
    Folder(str(_AGENTS / "codingcode"), "builtin", "codingcode"),
)
"""Those of devkit-pi and CodingCode are files of their dialects, so they have those limits too."""

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
_OFF = frozenset({"", "0", "false", "no", "off"})


def builtins_disabled(cwd: Path, environment: Mapping[str, str] | None, settings: Settings | None) -> bool:
    """Whether an environment switch or the setting leaves the built-in agents out. `settings` are
    those seen from `cwd`, if they are known already."""
    env = os.environ if environment is None else environment
    if any(env.get(switch, "").strip().lower() not in _OFF for switch in SWITCHES):
        return True
    if settings is not None:
        return settings.disable_default_agents
    said = [layer.values.get("disable_default_agents") for layer in load_settings(cwd, environment=env).layers]
    return next((value for value in reversed(said) if value is not None), False)
