"""The prompts of an editor's user: their content, and the end of the run that answers each.

Text stays text. Embedded files and images become attachments.

A link to a file of the workspace becomes `@path`, which is attached by the same rules as in every other front end.
Images and other binary content are saved where the run may read them.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec import Struct, field

from retinue.app.project_files import MAX_IMAGE_BYTES
from retinue.core.messages import Image
from retinue.core.outcome import Outcome
from retinue.core.person_prompt import IMAGE_NOTE, PromptBlock
from retinue.frontends.acp.rpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError
from retinue.frontends.acp.updates import StopWord, failure_text, stop_word

_IMAGE_SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
_MAX_ATTACHMENT_BYTES = 20 * 2**20
_LINE_RANGE = re.compile(r"L?(\d+)(?:[:-]L?(\d+))?$")


class EditorPrompt(Struct):
    """The text of a prompt and its attachments."""

    words: str = ""
    blocks: list[PromptBlock] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)


def read_prompt(content: Sequence[Any], cwd: Path, outputs: Path) -> EditorPrompt:
    """Read the content blocks of a prompt. Binary content is saved to `outputs`, a folder that the run may read. Raise
    RpcError for unusable blocks and for an empty prompt."""
    prompt = EditorPrompt()
    for block in content:
        if not isinstance(block, Mapping):
            raise _refusal("A content block must be an object.")
        match block.get("type"):
            case "text":
                prompt.words += _text(block, "text")
            case "resource_link":
                prompt.words += _link(_text(block, "uri"), str(block.get("name") or ""), cwd)
            case "resource":
                _embed(block.get("resource"), prompt, cwd, outputs)
            case "image":
                _attach_image(_text(block, "data"), _text(block, "mimeType"), prompt, outputs)
            case other:
                taken = "text, resource_link, resource and image"
                raise _refusal(f"Content of the type {other!r} is not taken: {taken} are.")
    if not prompt.words.strip():
        if not prompt.blocks:
            raise _refusal("The prompt is empty.")
        prompt.words = "Look at what is attached."
    return prompt


def _embed(resource: object, prompt: EditorPrompt, cwd: Path, outputs: Path) -> None:
    if not isinstance(resource, Mapping):
        raise _refusal("`resource` must be an object.")
    uri = _text(resource, "uri")
    name = _shown(uri, cwd)
    if isinstance(resource.get("text"), str):
        prompt.words += f" `{name}` " if prompt.words and not prompt.words.endswith((" ", "\n")) else f"`{name}` "
        prompt.blocks.append(PromptBlock("attached_file", name, resource["text"]))
    elif resource.get("mimeType") in _IMAGE_SUFFIXES:
        _attach_image(_text(resource, "blob"), str(resource["mimeType"]), prompt, outputs)
    else:
        ending = Path(urlsplit(uri).path).suffix.lstrip(".")[:8] or "bin"
        path = _save(_decode(_text(resource, "blob")), ending, outputs)
        where = f"It was saved to {path}. Read it there if you need it."
        prompt.blocks.append(PromptBlock("attached_file", name, where))


def _attach_image(data: str, media_type: str, prompt: EditorPrompt, outputs: Path) -> None:
    ending = _IMAGE_SUFFIXES.get(media_type)
    if ending is None:
        raise _refusal(f"Images of the type {media_type!r} are not taken: {', '.join(_IMAGE_SUFFIXES)} are.")
    image = _decode(data)
    path = _save(image, ending, outputs)
    # An image that is too large for models remains a file; `read` explains the options.
    if len(image) > MAX_IMAGE_BYTES:
        prompt.blocks.append(PromptBlock("attached_image", str(path), "Look at it with read before you answer."))
        return
    prompt.blocks.append(PromptBlock("attached_image", str(path), IMAGE_NOTE))
    prompt.images.append(Image(media_type, data))


def _save(data: bytes, ending: str, outputs: Path) -> Path:
    outputs.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = outputs / f"attached-{os.urandom(4).hex()}.{ending}"
    path.write_bytes(data)
    return path


def _decode(data: str) -> bytes:
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise _refusal("The data of an attachment is not base64.") from None
    if len(decoded) > _MAX_ATTACHMENT_BYTES:
        raise _refusal(f"An attachment has at most {_MAX_ATTACHMENT_BYTES // 2**20} MB.")
    return decoded


def _link(uri: str, name: str, cwd: Path) -> str:
    path, lines = _file(uri)
    if path is None:
        return f"[{name or uri}]({uri})"
    try:
        shown = str(path.relative_to(cwd))
    except ValueError:
        shown = str(path)
    if any(map(str.isspace, shown)):
        return f'@"{shown}"'
    return f"@{shown}{lines}"


def _shown(uri: str, cwd: Path) -> str:
    path, lines = _file(uri)
    if path is None:
        return uri
    return f"{path.relative_to(cwd) if path.is_relative_to(cwd) else path}{lines}"


def _file(uri: str) -> tuple[Path | None, str]:
    """Return the path of a `file:` address, and its lines as `#L10-20`."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None, ""
    if parts.scheme not in ("file", "") or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        return None, ""
    match = _LINE_RANGE.match(parts.fragment)
    lines = ""
    if match is not None:
        lines = f"#L{match[1]}" + (f"-{match[2]}" if match[2] else "")
    return Path(unquote(parts.path)), lines


def _text(block: Mapping[str, Any], key: str) -> str:
    value = block.get(key)
    if not isinstance(value, str):
        raise _refusal(f"`{key}` must be a text.")
    return value


def _refusal(message: str) -> RpcError:
    return RpcError(INVALID_PARAMS, message)


class PromptTurn(Struct, eq=False):
    """One prompt. Ends of the run up to the event `after` belong to earlier prompts."""

    done: asyncio.Future[StopWord]
    after: int = 0
    is_cancelled: bool = False


class PromptTurns(Struct, eq=False):
    """The prompts that wait for the end of a run. If a person spoke while the agent worked, one end answers several."""

    waiting: list[PromptTurn] = field(default_factory=list)
    _last: tuple[int, Outcome] | None = None
    """The newest end of the main run. It may arrive while a prompt is still being delivered."""

    def expect(self, turn: PromptTurn, after: int) -> None:
        """Answer a delivered prompt with the first end after the event `after`."""
        turn.after = after
        self.waiting.append(turn)
        if self._last is not None and self._last[0] > after:
            self._take_main(*self._last)

    def take_end(self, number: int, outcome: Outcome, *, is_main: bool, all_over: bool) -> None:
        """Handle the end of a run of the tree with the event `number`. Cancelled prompts are answered when all runs
        have ended, the others when the main run has."""
        if all_over:
            self.end("cancelled", [turn for turn in self.waiting if turn.is_cancelled])
        if is_main:
            self._last = (number, outcome)
            self._take_main(number, outcome)

    def _take_main(self, number: int, outcome: Outcome) -> None:
        ended = [turn for turn in self.waiting if turn.after < number and not turn.is_cancelled]
        word = stop_word(outcome)
        if word is not None:
            self.end(word, ended)
        else:
            self.fail(RpcError(INTERNAL_ERROR, failure_text(outcome)), ended)

    def cancel(self) -> None:
        """Answer all waiting prompts as cancelled, however the run ends."""
        for turn in self.waiting:
            turn.is_cancelled = True

    def end(self, word: StopWord, turns: Sequence[PromptTurn] | None = None) -> None:
        """Answer these prompts, or all of them."""
        for turn in self._take(turns):
            turn.done.set_result(word)

    def fail(self, error: RpcError, turns: Sequence[PromptTurn] | None = None) -> None:
        """Answer these prompts, or all of them, with an error."""
        for turn in self._take(turns):
            turn.done.set_exception(error)

    def cancel_all(self) -> None:
        """Cancel all waiting prompts, because the session has ended."""
        for turn in self._take(None):
            turn.done.cancel()

    def _take(self, turns: Sequence[PromptTurn] | None) -> list[PromptTurn]:
        taken = list(self.waiting if turns is None else turns)
        for turn in taken:
            self.waiting.remove(turn)
        return [turn for turn in taken if not turn.done.done()]
