"""A prompt of a person to the main agent: the typed words, followed by the blocks that they refer to.

`/name` of a command or a skill, `@file`, the output of `!command` and standard input become blocks after the words:

    /fix-issue 12

    <command name="fix-issue">
    …
    </command>

Models read all of it. People see the words, and one line for each block (`describe_blocks`). Text inside a block cannot
end it or begin another one.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from msgspec import Struct

from retinue.core.messages import Image

if TYPE_CHECKING:
    from retinue.core.spec import PermissionMode

Tag = Literal[
    "command", "skill", "attached_file", "attached_folder", "attached_image", "command_output", "standard_input"
]
BLOCK_LABELS: Mapping[str, str] = {
    "command": "command",
    "skill": "skill",
    "attached_file": "file",
    "attached_folder": "folder",
    "attached_image": "image",
    "command_output": "output of",
    "standard_input": "standard input",
}
IMAGE_NOTE = "It is a part of this message. If you cannot see it here, look at it with read before you answer."
"""The text of the block of an image. The image can be missing: a run that was cut off before its first turn only has
the text of the task."""
_TAG_PATTERN = "|".join(BLOCK_LABELS)
_TAG_SIGN = re.compile(rf"<(?=/?(?:{_TAG_PATTERN})\b)")
_BLOCK = re.compile(rf'^<({_TAG_PATTERN}) name="([^"\n]*)">\n(.*?)\n</\1>$', re.MULTILINE | re.DOTALL)
_FIRST_BLOCK = re.compile(rf'\n\n<(?:{_TAG_PATTERN}) name="[^"\n]*">\n')

Consent = Callable[[str, str], Awaitable[bool]]
"""Asks a person whether a command may run. It takes the command and the reason for the question."""


class PromptBlock(Struct, frozen=True):
    """A block after the words. `name` is its origin: a path, the name of a command, or a command line."""

    tag: Tag
    name: str
    text: str

    def render(self) -> str:
        # A space after `<`, so that text in the block cannot end it.
        safe = _TAG_SIGN.sub("< ", self.text.strip("\n"))
        name = self.name.replace('"', "'").replace("\n", " ")
        return f'<{self.tag} name="{name}">\n{safe}\n</{self.tag}>'


class PromptCommand(Struct, frozen=True):
    """A `/name` that a person can type: the file of a command, or a skill. `origin` is shown in the menu."""

    name: str
    description: str = ""
    hint: str = ""
    origin: str = ""
    aliases: tuple[str, ...] = ()


class PersonPrompt(Struct):
    """A prompt of a person. Capabilities add blocks to it."""

    words: str
    ask: Consent | None = None
    """None if nobody can be asked."""
    mode: PermissionMode | None = None
    blocks: list[PromptBlock] = []
    model: str | None = None
    """The model that the file of a command sets for its turn."""
    grants: list[str] = []
    """Rules that the file of a command allows from now on in the run."""
    images: list[Image] = []
    """The images of the blocks, for models that see images."""
    notes: list[str] = []
    """Notes for the person, such as why a file was not attached."""

    def add(self, tag: Tag, name: str, text: str) -> None:
        self.blocks.append(PromptBlock(tag, name, text))

    def add_image(self, name: str, about: str, image: Image) -> None:
        """Attach an image, and a block that names it in case the image itself is missing."""
        self.add("attached_image", name, f"{about}\n{IMAGE_NOTE}")
        self.images.append(image)

    def render(self) -> str:
        """Return the text for the model."""
        return "\n\n".join([self.words, *(block.render() for block in self.blocks)])

    def called(self) -> tuple[str, str] | None:
        """Return the name and the arguments of `/name arguments`; None for words without a call."""
        return parse_call(self.words)


def parse_call(text: str) -> tuple[str, str] | None:
    """Return `/fix-issue 12` as (`fix-issue`, `12`); None for a text without a call, such as a path."""
    match = re.match(r"/([A-Za-z0-9][\w.:-]*)(?=\s|$)", text)
    return None if match is None else (match[1], text[match.end() :].strip())


def explain_unknown(name: str, commands: Mapping[str, PromptCommand], others: Iterable[str] = ()) -> str | None:
    """Return why `/name` cannot be called, with the most similar name. Return None if it can be called, and for a path.
    `others` are names of further commands."""
    names = {name.lower() for command in commands.values() for name in (command.name, *command.aliases)}
    if name.lower() in names or Path(f"/{name}").exists():
        return None
    near = get_close_matches(name.lower(), [*names, *others], n=1, cutoff=0.6)
    if near:
        return f"There is no command /{name}. Did you mean /{near[0]}?"
    return f"There is no command /{name}."


def words_of(text: str) -> str:
    """Return the words of a rendered prompt, as the person typed them."""
    first = _FIRST_BLOCK.search(text)
    if first is None or _BLOCK.search(text, first.end() - len(first[0]) + 2) is None:
        return text
    return text[: first.start()]


def blocks_of(text: str) -> list[PromptBlock]:
    """Return the blocks of a rendered prompt."""
    words = words_of(text)
    if len(words) == len(text):
        return []
    return [PromptBlock(cast("Tag", match[1]), match[2], match[3]) for match in _BLOCK.finditer(text, len(words))]


def describe_blocks(text: str) -> list[str]:
    """Return a line for each block of a rendered prompt, such as `file src/app.py · 120 lines`."""
    lines = []
    for block in blocks_of(text):
        count = block.text.count("\n") + 1
        size = f" · {count:,} lines"
        if count == 1 or block.tag == "attached_image":
            size = ""
        lines.append(f"{BLOCK_LABELS[block.tag]} {block.name}{size}")
    return lines
