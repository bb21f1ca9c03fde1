"""Attachments: `@path` in a person's words gives the model that file, folder or image with the words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.lazy import LazyModule
from retinue.runs.capability import Capability

if TYPE_CHECKING:
    from retinue.capabilities.attachments import attach as _attach
    from retinue.core.person_prompt import PersonPrompt
    from retinue.runs.project import Project
else:
    _attach = LazyModule("retinue.capabilities.attachments.attach")


class AttachmentsCapability(Capability):
    """The files that a prompt, or the command it calls, names with an `@`."""

    async def expand_prompt(self, prompt: PersonPrompt, project: Project) -> None:
        texts = [prompt.words, *(block.text for block in prompt.blocks if block.tag == "command")]
        if any("@" in text for text in texts):
            await _attach.attach_files(prompt, texts, project)
