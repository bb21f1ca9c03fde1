"""Commands: Markdown files that a person calls as `/name arguments`, in the app and with `-p` alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retinue.runs.capability import Capability

if TYPE_CHECKING:
    from retinue.guard.trust_subjects import TrustSubject
    from retinue.runs.person_prompt import PersonPrompt, PromptCommand
    from retinue.runs.project import Project


class CommandsCapability(Capability):
    """The commands of the project and of the user: their texts, and what each may run and allow."""

    async def expand_prompt(self, prompt: PersonPrompt, project: Project) -> None:
        called = prompt.called()
        # A skill of the same name goes before a command, as in Claude Code.
        if called is None or prompt.blocks:
            return
        from retinue.capabilities.commands.attach import expand_command

        await expand_command(prompt, *called, project)

    def prompt_commands(self, project: Project) -> Sequence[PromptCommand]:
        from retinue.capabilities.commands.attach import list_commands

        return list_commands(project)

    def trust_subjects(self, project: Project) -> Sequence[TrustSubject]:
        from retinue.capabilities.commands.attach import command_subjects

        return command_subjects(project)
