"""What a person says, on its way to the main agent: the words, and the blocks that they stand for.

`/name` of a command or a skill, `@file`, the output of `!command` and what is piped in become blocks behind the words:

    /fix-issue 12

    <command name="fix-issue">
    …
    </command>

Models read all of it. People are shown the words, and one line for each block (`describe_blocks`). Text inside a block
cannot end it or begin another one.
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
LABELS: Mapping[str, str] = {
    "command": "command",
    "skill": "skill",
    "attached_file": "file",
    "attached_folder": "folder",
    "attached_image": "image",
    "command_output": "output of",
    "standard_input": "standard input",
}
IMAGE_NOTE = "It is a part of this message. If you cannot see it here, look at it with read before you answer."
"""What a block says of an image. The image can be missing: a run that was cut off before it heard its task only has the
task's text."""
_TAG_PATTERN = "|".join(LABELS)
_TAG_SIGN = re.compile(rf"<(?=/?(?:{_TAG_PATTERN})\b)")
_BLOCK = re.compile(rf'^<({_TAG_PATTERN}) name="([^"\n]*)">\n(.*?)\n</\1>$', re.MULTILINE | re.DOTALL)
_FIRST_BLOCK = re.compile(rf'\n\n<(?:{_TAG_PATTERN}) name="[^"\n]*">\n')

Consent = Callable[[str, str], Awaitable[bool]]
"""Asks a person whether a command may run: the command, and why it is asked about."""


class PromptBlock(Struct, frozen=True):
    """One part behind the words. `name` says what it is of: a path, the name of a command, a command line."""

    tag: Tag
    name: str
    text: str

    def render(self) -> str:
        # A space behind the sign, so that text in the block cannot end it.
        safe = _TAG_SIGN.sub("< ", self.text.strip("\n"))
        name = self.name.replace('"', "'").replace("\n", " ")
        return f'<{self.tag} name="{name}">\n{safe}\n</{self.tag}>'


class PromptCommand(Struct, frozen=True):
    """A `/name` that a person can say: a command's file or a skill. `origin` is shown in the menu."""

    name: str
    description: str = ""
    hint: str = ""
    origin: str = ""
    aliases: tuple[str, ...] = ()


class PersonPrompt(Struct):
    """What a person said. Capabilities add blocks to it."""

    words: str
    ask: Consent | None = None
    """None where nobody can be asked."""
    mode: PermissionMode | None = None
    blocks: list[PromptBlock] = []
    model: str | None = None
    """The model that a command's file wants for its turn."""
    grants: list[str] = []
    """Rules that a command's file allows for the rest of the run."""
    images: list[Image] = []
    """The pictures behind the blocks, for models that see images."""
    notes: list[str] = []
    """What the person should know: why a file was not attached, for example."""

    def add(self, tag: Tag, name: str, text: str) -> None:
        self.blocks.append(PromptBlock(tag, name, text))

    def add_image(self, name: str, about: str, image: Image) -> None:
        """Attach a picture: as an image, and as a block that names it where the image itself does not arrive."""
        self.add("attached_image", name, f"{about}\n{IMAGE_NOTE}")
        self.images.append(image)

    def render(self) -> str:
        """Return what the model reads."""
        return "\n\n".join([self.words, *(block.render() for block in self.blocks)])

    def called(self) -> tuple[str, str] | None:
        """Return the name and the arguments of `/name arguments`; None for words that call nothing."""
        return parse_call(self.words)


def parse_call(text: str) -> tuple[str, str] | None:
    """Return `/fix-issue 12` as (`fix-issue`, `12`); None for what calls nothing, such as a path."""
    match = re.match(r"/([A-Za-z0-9][\w.:-]*)(?=\s|$)", text)
    return None if match is None else (match[1], text[match.end() :].strip())


def explain_unknown(name: str, commands: Mapping[str, PromptCommand], others: Iterable[str] = ()) -> str | None:
    """Return why `/name` cannot be called, with the nearest name there is; None where it can, and for a path, which is
    no command. `others` are names of further commands."""
    known = {name.lower() for command in commands.values() for name in (command.name, *command.aliases)}
    if name.lower() in known or Path(f"/{name}").exists():
        return None
    near = get_close_matches(name.lower(), [*known, *others], n=1, cutoff=0.6)
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
        lines.append(f"{LABELS[block.tag]} {block.name}{size}")
    return lines
