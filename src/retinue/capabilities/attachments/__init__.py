"""Attachments: `@path` in a person's words gives the model that file, folder or image with the words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.runs.capability import Capability

if TYPE_CHECKING:
    from retinue.runs.person_prompt import PersonPrompt
    from retinue.runs.project import Project


class AttachmentsCapability(Capability):
    """The files that a prompt, or the command it calls, names with an `@`."""

    async def expand_prompt(self, prompt: PersonPrompt, project: Project) -> None:
        texts = [prompt.words, *(block.text for block in prompt.blocks if block.tag == "command")]
        if not any("@" in text for text in texts):
            return
        from retinue.capabilities.attachments.attach import attach_files

        await attach_files(prompt, texts, project)
