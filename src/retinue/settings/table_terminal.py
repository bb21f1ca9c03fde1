"""Settings of the terminal app: a part of the table in `table.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from retinue.settings.field import Values, setting
from retinue.settings.kinds import Choice, Flag, Table, Text

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
    theme: Literal["auto", "dark", "light"] = setting(
        "auto", Choice("auto", "dark", "light"), section="terminal app",
        doc="The colours of the terminal app; auto follows COLORFGBG and is dark where that is not set.",
    )
    reduced_motion: bool = setting(
        False, _FLAG, section="terminal app", applies="next session",
        doc="No spinners and no animation.",
    )
    mouse: bool = setting(
        True, _FLAG, section="terminal app", applies="next session",
        doc="Let the terminal app use the mouse; without it the terminal's own selection works as usual.",
    )
    keys: Mapping[str, str] = setting(
        {}, Table(Text("the name of a key"), "names of actions"), section="terminal app", applies="next session",
        merges=True,
        doc="Other keys for what the terminal app does, by the names that its help (F1) shows.",
    )
    status_line_type: Literal["template", "command"] | None = setting(
        None, Choice("template", "command"), name="statusLine.type", section="terminal app",
        doc="Which of the two the status line is, where both are set; unset means the command.",
    )
    status_line_template: str | None = setting(
        None, Text("text with {facts}"), name="statusLine.template", section="terminal app",
        doc="The status line: {state} {model} {folder} {cwd} {branch} {mode} {context} {tokens} {cost} {agents} "
        "{inbox} {session} {version}; a part in [square brackets] is left out when a fact in it is empty.",
    )
    status_line_command: str | None = setting(
        None, Text("a command"), name="statusLine.command", section="terminal app", personal_when=bool,
        doc="A shell command whose first line of output is the status line. It gets what it may show as JSON on "
        "standard input, as Claude Code's statusLine does. Counts only in your own settings.",
    )
# fmt: on
