"""The settings of plugins, and of questions that agents ask: a part of the table."""

from __future__ import annotations

from typing import Literal

from retinue.settings.field import Values, setting
from retinue.settings.kinds import Choice, Flag, Number, Texts

_DAY = 86_400


# fmt: off
class PluginSettings(Values):
    plugins: tuple[str, ...] = setting(
        (), Texts(), section="plugins", applies="next run",
        doc="Further plugins by path, each a folder or a Python file, beside those in .retinue/plugins and in your "
        "own plugins folder. The lists of all settings files add up. Code, hooks and servers of plugins that a "
        "project brings need your consent: retinue trust.",
    )
    disabled_plugins: tuple[str, ...] = setting(
        (), Texts(), section="plugins", applies="next run",
        doc="Plugins to leave out, by name. A project's settings switch off only plugins that a project brings.",
    )
    plugin_entry_points: bool = setting(
        True, Flag(), section="plugins", applies="next run",
        doc="Use plugins that are installed as Python packages (entry points of the group retinue.plugins).",
    )
    plugin_timeout_seconds: float = setting(
        10.0, Number(0.1, 600, unit="seconds"), section="plugins", applies="next run",
        doc="How long the import of a plugin's tools may take; one that takes longer is left out.",
    )

    questions: Literal["wait", "continue"] = setting(
        "wait", Choice("wait", "continue"), section="sub-agents",
        doc="Whether an agent that asks something (ask_parent) waits for the answer, or goes on and hears it later.",
    )
    question_patience_seconds: float = setting(
        300.0, Number(1, _DAY, unit="seconds"), section="sub-agents",
        doc="How long a question waits for the agent that started the one who asks, before a person is asked; where "
        "no person can be, after which the agent goes on without an answer.",
    )
# fmt: on
