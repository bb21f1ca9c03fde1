"""Commands: Markdown files that a person calls as `/name arguments`, in the app and with `-p` alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retinue.core.lazy import LazyModule
from retinue.runs.capability import Capability

if TYPE_CHECKING:
    from retinue.capabilities.commands import attach as _attach
    from retinue.core.person_prompt import PersonPrompt, PromptCommand
    from retinue.guard.trust import TrustSubject
    from retinue.runs.project import Project
else:
    _attach = LazyModule("retinue.capabilities.commands.attach")


class CommandsCapability(Capability):
    """The commands of the project and of the user: their texts, and the rights of each."""

    async def expand_prompt(self, prompt: PersonPrompt, project: Project) -> None:
        called = prompt.called()
        # A skill of the same name goes before a command, as in Claude Code.
        if called is not None and not prompt.blocks:
            await _attach.expand_command(prompt, *called, project)

    def prompt_commands(self, project: Project) -> Sequence[PromptCommand]:
        return _attach.list_commands(project)

    def trust_subjects(self, project: Project) -> Sequence[TrustSubject]:
        return _attach.command_subjects(project)
