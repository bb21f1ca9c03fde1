"""Attachments of `@path` in a prompt: a text file as `read` shows it, a folder as `ls` does, an image by its path.

    @src/app.py          the file, as far as one call of `read` shows it
    @src/app.py#L10-40   these lines of it
    @"my notes.md"       a path with spaces
    @src/                the names in the folder

A word with an `@` is a path only if the file exists. Files that usually contain secrets, binary files, files outside
the workspace and files that a rule withholds are not attached, and a note tells the person why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from retinue.core.format import format_bytes
from retinue.core.messages import Image
from retinue.core.permission import ToolUse
from retinue.core.tool import ToolContext
from retinue.core.tool_names import TOOL_EFFECTS
from retinue.tools.content import is_image_file
from retinue.tools.find import LsTool
from retinue.tools.read import ReadTool

if TYPE_CHECKING:
    from retinue.core.person_prompt import PersonPrompt
    from retinue.core.tool import Tool
    from retinue.runs.project import Project

MAX_ATTACHMENTS = 20
MAX_ATTACHED_CHARACTERS = 400_000
"""Of all attachments of one prompt together."""
MAX_IMAGE_CHARACTERS = 20_000_000
"""Of all images of one prompt together, as base64: providers refuse requests of 32 MB."""
_MENTION = re.compile(r'(?:^|(?<=[\s(]))@(?:"([^"\n]+)"|([^\s"@]+))')
_LINE_RANGE = re.compile(r"#L(\d{1,7})(?:-L?(\d{1,7}))?$")
_TRAILING_PUNCTUATION = ".,;:!?)'`"
_SECRET_NAMES = (
    *(".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.keystore", "*.kdbx", "id_rsa", "id_ed25519", "id_ecdsa"),
    *("id_dsa", ".netrc", ".pgpass", ".npmrc", ".pypirc", "credentials", "credentials.json", ".git-credentials"),
)
_SAMPLE_NAMES = ("*.example", "*.sample", "*.template", "*.dist", "*.pub")


class FileMention(Struct, frozen=True):
    """A path as written in the prompt, and the requested lines, from 1."""

    path: str
    first: int | None = None
    last: int | None = None

    @property
    def shown(self) -> str:
        if self.first is None:
            return self.path
        return f"{self.path}#L{self.first}" + (f"-{self.last}" if self.last else "")


def find_mentions(texts: Iterable[str], cwd: Path) -> Iterator[FileMention]:
    """Yield the files and folders that the texts name with an `@`, each once and only those that exist."""
    seen = set()
    for text in texts:
        for match in _MENTION.finditer(text):
            mention = _existing(match[1] or match[2], cwd)
            if mention is not None and mention not in seen:
                seen.add(mention)
                yield mention


def _existing(text_path: str, cwd: Path) -> FileMention | None:
    # Punctuation at the end belongs to the sentence, unless only a file with that name exists.
    for text in dict.fromkeys((text_path.rstrip(_TRAILING_PUNCTUATION), text_path)):
        lines = _LINE_RANGE.search(text)
        path = text if lines is None else text[: lines.start()]
        if path and _exists(cwd / Path(path).expanduser()):
            numbers = () if lines is None else lines.groups()
            return FileMention(path, *(int(number) if number else None for number in numbers))
    return None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError, RuntimeError):
        return False


def holds_secrets(name: str) -> bool:
    """Return whether files of this name usually contain secrets; samples such as `.env.example` do not."""
    matches = partial(fnmatch, name.lower())
    return any(map(matches, _SECRET_NAMES)) and not any(map(matches, _SAMPLE_NAMES))


async def attach_files(prompt: PersonPrompt, texts: Iterable[str], project: Project) -> None:
    """Add a block for each file that the texts name, and a note for each that is not attached."""
    remaining = MAX_ATTACHED_CHARACTERS
    for number, mention in enumerate(find_mentions(texts, project.cwd)):
        if number >= MAX_ATTACHMENTS:
            prompt.notes.append(
                f"{mention.shown} and the files after it are not attached: at most {MAX_ATTACHMENTS} files are."
            )
            return
        remaining = await _attach(mention, prompt, project, remaining)


async def _attach(mention: FileMention, prompt: PersonPrompt, project: Project, remaining: int) -> int:
    """Attach one file. Return the number of characters that remain for others."""
    path = project.cwd / Path(mention.path).expanduser()
    problem = _refusal(mention, path, prompt, project)
    if problem:
        prompt.notes.append(f"{mention.shown} is not attached: {problem}")
        return remaining
    tool, arguments = _call(mention, path)
    output = await tool.run(
        "attachment", arguments, _context(project, _outside_folder(mention, path, prompt, project.cwd))
    )
    text = project.redactor(output.text)
    if output.is_error:
        prompt.notes.append(f"{mention.shown} is not attached: {text}")
    elif images := [content for content in output.content if isinstance(content, Image)]:
        _attach_image(mention, text, images[0], prompt)
    elif len(text) > remaining:
        prompt.notes.append(
            f"{mention.shown} is not attached: the others take up all {MAX_ATTACHED_CHARACTERS:,} characters."
        )
    else:
        prompt.add("attached_folder" if path.is_dir() else "attached_file", mention.shown, text)
        return remaining - len(text)
    return remaining


def _attach_image(mention: FileMention, about: str, image: Image, prompt: PersonPrompt) -> None:
    if sum(len(attached.data) for attached in (*prompt.images, image)) > MAX_IMAGE_CHARACTERS:
        limit = format_bytes(MAX_IMAGE_CHARACTERS * 3 // 4)
        prompt.notes.append(f"{mention.shown} is not attached: the images of one message have at most {limit}.")
        return
    prompt.add_image(mention.path, about, image)


def _refusal(mention: FileMention, path: Path, prompt: PersonPrompt, project: Project) -> str:
    """Return why a file may not be attached; empty when it may."""
    if path.is_file() and holds_secrets(path.name):
        return "a file of this name usually contains secrets. Copy the part that the model may see into your message."
    use = ToolUse("read", {"path": mention.path}, TOOL_EFFECTS["read"])
    decision = project.judge_call(use, mode=prompt.mode)
    return "" if decision.verdict == "allow" else decision.reason


def _call(mention: FileMention, path: Path) -> tuple[Tool, dict[str, Any]]:
    if path.is_dir():
        return LsTool(), {"path": mention.path}
    arguments: dict[str, Any] = {"path": mention.path}
    if mention.first is not None:
        last = mention.last or mention.first
        arguments |= {"offset": mention.first, "limit": max(last - mention.first + 1, 1)}
    return ReadTool(), arguments


def _outside_folder(mention: FileMention, path: Path, prompt: PersonPrompt, cwd: Path) -> tuple[Path, ...]:
    """Return the folder of an image outside of the workspace that a person names at the prompt, for example by dropping
    it on the terminal. A prompt from a program or from the file of a command cannot name such images."""
    if prompt.ask is None or mention not in find_mentions([prompt.words], cwd) or not is_image_file(path):
        return ()
    return (path.parent,)


def _context(project: Project, outside: tuple[Path, ...]) -> ToolContext:
    roots = (project.cwd, *(project.cwd / root for root in project.settings.settings.extra_roots), *outside)
    return ToolContext(
        run_id="attachment",
        roots=tuple(map(project.real_path, roots)),
        outputs=project.state / "outputs" / "attachments",
        environment=project.tool_environment,
    )
