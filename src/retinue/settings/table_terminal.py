"""Settings of the terminal app: a part of the table in `table.py`."""

from __future__ import annotations

from typing import Literal

from retinue.settings.field import Values, setting
from retinue.settings.kinds import Choice, Flag, Text

_FLAG = Flag()


# fmt: off
class TerminalSettings(Values):
    fleet_view: bool = setting(
        True, _FLAG, section="terminal app",
        doc="Show the list of agents below the prompt.",
    )
    widget_mode: Literal["all", "background", "off"] = setting(
        "background", Choice("all", "background", "off"), section="terminal app",
        doc="Which agents the live widget shows.",
    )
    widget_display_mode: Literal["auto", "rich", "compact"] = setting(
        "auto", Choice("auto", "rich", "compact"), section="terminal app",
        doc="How much room the live widget takes.",
    )
    agent_mentions: Literal["model", "direct", "off"] = setting(
        "model", Choice("model", "direct", "off", also={True: "model", False: "off"}), section="terminal app",
        doc="What @name at the start of a message does: tells the model, goes to the agent, or nothing.",
    )
    abort_resend_key: str = setting(
        "f9", Text("the name of a key"), section="terminal app", variables=("PI_ABORT_RESEND_KEY",),
        doc="The key that stops the current turn and sends the waiting messages.",
    )
    herdr_report_working: bool = setting(
        True, _FLAG, section="terminal app",
        doc="Accepted for files written for pi; Retinue has no herdr to report to.",
    )
# fmt: on
