"""Settings of what a run is told besides its file: a part of the table in `table.py`."""

from __future__ import annotations

from retinue.settings.field import Values, setting
from retinue.settings.kinds import Flag, Texts, Whole

_FLAG = Flag()


# fmt: off
class ContextSettings(Values):
    instructions_enabled: bool = setting(
        True, _FLAG, name="instructions.enabled", section="context", applies="next run",
        doc="Tell the main agent, and agents that are twins of it, what AGENTS.md and CLAUDE.md say.",
    )
    memory_enabled: bool = setting(
        True, _FLAG, name="memory.enabled", section="context", applies="next run",
        doc="Give agents whose files ask for it a memory that lasts from one run to the next.",
    )
    skills_enabled: bool = setting(
        True, _FLAG, name="skills.enabled", section="context", applies="next run",
        doc="Let agents load skills. Skills that an agent's file names are given to it in any case.",
    )
    skills_paths: tuple[str, ...] = setting(
        (), Texts(), name="skills.paths", section="context", applies="next run",
        doc="Further folders with skills. In a project's files only folders of the project count.",
    )
    skills_list_tokens: int = setting(
        4_000, Whole(0, 200_000), name="skills.listTokens", section="context", applies="next run",
        doc="How much of a prompt the list of skills may take, in tokens: descriptions are cut to fit. "
        "0 leaves the list out.",
    )
    task_file_above: int | None = setting(
        24_000, Whole(0, 10_000_000, zero_is_none=True), section="context", applies="next run",
        doc="Tasks longer than this many characters are handed over as a file that the agent reads; "
        "0 never does.",
    )
# fmt: on
