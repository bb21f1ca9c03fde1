"""The transcript of a run as JSON lines, and the files of transcripts.

    {"isSidechain":true,"agentId":…,"type":"user|assistant|toolResult","message":…,"timestamp":…,"cwd":…}

A transcript is a projection of the log: its lines are made from events, so compaction cannot move them, and they can be
made again at any time. Messages have the format of the pi family. A compaction adds a `compact_boundary` line in the
format of Claude Code. The first line is the prompt. Only the writer's thread appends to the files, after each commit.
It repairs the file of a resumed run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from retinue.core.encode import dump
from retinue.core.events import TRANSIENT, Compacted, Event, RunCreated, RunEnded, RunStarted, TurnEnded
from retinue.core.messages import (
    AssistantMessage,
    Content,
    Document,
    Image,
    Message,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.log.replay import MessageStream
from retinue.settings.places import private_folder

_PI_STOP_REASONS: dict[StopReason, str] = {"end": "stop", "tool_use": "toolUse", "refusal": "stop"}


class TranscriptLines:
    """Turns the events of one run into lines, always with the same result. The output of a tool is shortened to
    `max_output` characters; None keeps all."""

    def __init__(self, max_output: int | None = None) -> None:
        self._max_output = max_output
        self._task: str | None = None
        self._cwd = ""
        self._messages = MessageStream()

    def take(self, event: Event) -> list[bytes]:
        messages = (entry for message in self._messages.take(event.body) for entry in self._entries(event, message))
        lines = [self._line(event, entry) for entry in messages]
        match event.body:
            case RunCreated() as body:
                self._task, self._cwd = body.task, body.cwd
                lines.append(self._line(event, {"role": "user", "content": body.task}))
            case RunStarted() as body:
                self._cwd = body.cwd
            case Compacted() as body:
                metadata = {
                    "trigger": "manual" if body.reason == "manual" else "auto",
                    "preTokens": body.tokens_before,
                    "postTokens": body.tokens_after,
                }
                fields = {"type": "system", "subtype": "compact_boundary", "compactMetadata": metadata}
                lines.append(self._encode(event, fields))
            case _:
                pass
        return lines

    def _entries(self, event: Event, message: Message) -> Iterator[dict[str, Any]]:
        match message:
            case AssistantMessage():
                yield _assistant(event, message)
            case UserMessage():
                task, self._task = self._task, None
                # The creation of the run has added the prompt already.
                if task is None or message.origin != "task" or message.text != task:
                    is_text = all(isinstance(block, Text) for block in message.content)
                    yield {"role": "user", "content": message.text if is_text else _blocks(message.content)}
            case ToolMessage():
                for result in message.results:
                    content = result.content
                    if self._max_output is not None:
                        content = tuple(_shorten(block, self._max_output, event.run_id) for block in content)
                    yield {
                        "role": "toolResult",
                        "toolCallId": result.call_id,
                        "toolName": result.name,
                        "content": _blocks(content),
                        "isError": result.is_error,
                    }

    def _line(self, event: Event, message: dict[str, Any]) -> bytes:
        return self._encode(event, {"type": message["role"], "message": message})

    def _encode(self, event: Event, fields: dict[str, Any]) -> bytes:
        moment = datetime.fromtimestamp(event.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"isSidechain": True, "agentId": event.run_id, **fields, "timestamp": moment, "cwd": self._cwd}
        return dump(line) + b"\n"


def _shorten(block: Content, max_characters: int, run_id: str) -> Content:
    """Return the beginning and the end of long content, with the command that prints all of it."""
    hint = f"all of it: retinue runs show {run_id} --json"
    if not isinstance(block, Text):
        size = len(block.data)
        return block if size <= max_characters else Text(f"[{block.media_type}, {size} characters; {hint}]")
    text = block.text
    if len(text) <= max_characters:
        return block
    omitted, end = len(text) - max_characters, max_characters // 4
    return Text(f"{text[: max_characters - end]}\n[{omitted} characters left out; {hint}]\n{text[-end:]}")


def _assistant(event: Event, message: AssistantMessage) -> dict[str, Any]:
    usage, (provider, _, model) = message.usage, message.model.partition("/")
    data: dict[str, Any] = {
        "role": "assistant",
        "content": _blocks(message.content),
        "provider": provider if model else "",
        "model": model or provider,
        "usage": {
            "input": usage.input,
            "output": usage.output,
            "cacheRead": usage.cache_read,
            "cacheWrite": usage.cache_write,
            "totalTokens": usage.context_tokens,
            "cost": {"total": usage.cost_usd},
        },
        "stopReason": _PI_STOP_REASONS.get(message.stop, message.stop),
        "timestamp": int(event.at * 1000),
    }
    if message.failure is not None:
        data["errorMessage"] = message.failure.message
    return data


def _blocks(content: Iterable[Content | Thinking | ToolCall]) -> list[dict[str, Any]]:
    return [_block(block) for block in content]


def _block(block: Content | Thinking | ToolCall) -> dict[str, Any]:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Image():
            return {"type": "image", "data": block.data, "mimeType": block.media_type}
        case Document():
            return {"type": "document", "data": block.data, "mimeType": block.media_type, "name": block.name}
        case Thinking():
            return {"type": "thinking", "thinking": block.text, "thinkingSignature": block.signature}
        case ToolCall():
            return {"type": "toolCall", "id": block.id, "name": block.name, "arguments": block.arguments}


def transcript_path(folder: Path, run_id: str) -> str:
    """Return the path of the transcript of a run of this project."""
    return os.path.join(folder, "transcripts", f"{run_id}.jsonl")  # noqa: PTH118 - a quarter of the time


def wants_transcript(of_file: bool | None, of_settings: bool | None, persist: bool | None = None) -> bool:
    """Return whether a run has a transcript. The agent's file has precedence over the settings; the default is yes. A
    file with `persist`, which asks to keep the session, also gets a transcript."""
    if of_file is not None:
        return of_file
    return persist is True or of_settings is not False


MAX_OUTPUT_CHARACTERS = 4_000
"""The length of a tool's output in a transcript. The log has complete outputs."""
_CHUNK_BYTES = 1 << 20
_APPEND_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_WRITING_EVENTS = frozenset({RunCreated, RunStarted, TurnEnded, Compacted, RunEnded})
"""Events after which the collected lines are written."""


class Transcripts:
    """The transcript files of the runs of this process. Lines are collected for each run and written when a turn, a run
    or a compaction ends. No file stays open, so thousands of runs need no more descriptors.

    A file that cannot be written is reported to `failed` once per run, and tried again with the next line. Agents may
    write to files outside of the log's `folder` (`session_dir`). Such a file is opened without following links, because
    an agent could otherwise redirect its transcript into any file of the user.
    """

    def __init__(self, failed: Callable[[str, str], None], folder: Path) -> None:
        self._failed = failed
        self._folder = f"{folder}{os.sep}"
        self._files: dict[str, _TranscriptFile] = {}

    def take(self, events: Iterable[Event]) -> None:
        ready: dict[str, None] = {}
        over: list[str] = []
        for event in events:
            body = event.body
            kind = type(body)
            if kind in TRANSIENT:
                continue
            if isinstance(body, RunCreated):
                self._files[event.run_id] = _TranscriptFile(body.options.transcript or None)
            file = self._files.get(event.run_id)
            if file is None:
                continue
            if isinstance(body, RunStarted):
                file.path = body.transcript or None
            file.lines += file.transcript.take(event)
            if kind in _WRITING_EVENTS:
                ready[event.run_id] = None
                if kind is RunStarted and file.path is None:
                    del self._files[event.run_id]
                if kind is RunEnded:
                    over.append(event.run_id)
        for run_id in ready:
            self._write(run_id)
        for run_id in over:
            self._files.pop(run_id, None)

    def reopen(self, run_id: str, path: Path, events: Iterable[Event]) -> None:
        """Continue the file of a resumed run: remove a half-written line, and add the lines that are missing after a
        crash."""
        file = self._files[run_id] = _TranscriptFile(str(path))
        leads_elsewhere = not self._is_own(str(path)) and path.resolve() != path
        lines = (line for event in events for line in file.transcript.take(event))
        unwritten = list(islice(lines, 0 if leads_elsewhere else repair(path), None))
        file.lines = [] if leads_elsewhere else unwritten
        self._write(run_id)

    def _write(self, run_id: str) -> None:
        file = self._files.get(run_id)
        if file is None or file.path is None or not file.lines:
            return
        try:
            append(file.path, file.lines, follow=self._is_own(file.path))
            file.lines = []
        except OSError as error:
            if not file.failed:
                file.failed = True
                self._failed(run_id, f"the transcript {file.path} cannot be written ({error.strerror or error})")

    def _is_own(self, path: str) -> bool:
        return path.startswith(self._folder)


class _TranscriptFile(Struct):
    path: str | None
    lines: list[bytes] = []
    failed: bool = False
    transcript: TranscriptLines = field(default_factory=lambda: TranscriptLines(MAX_OUTPUT_CHARACTERS))


def append(path: str, lines: list[bytes], *, follow: bool = True) -> None:
    """Append lines. If not all of them can be written, none is. Unless `follow`, a link anywhere in the path is an
    OSError."""
    if not follow:
        descriptor = _open_without_links(Path(path))
    else:
        try:
            descriptor = os.open(path, _APPEND_FLAGS, 0o600)
        except FileNotFoundError:
            private_folder(Path(path).parent)
            descriptor = os.open(path, _APPEND_FLAGS, 0o600)
    data, written = b"".join(lines), 0
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:] if written else data)
    except OSError:
        os.ftruncate(descriptor, os.lseek(descriptor, 0, os.SEEK_END) - written)
        raise
    finally:
        os.close(descriptor)


def _open_without_links(path: Path) -> int:
    """Open an absolute path for appending, folder by folder, so that no folder can be replaced by a link in the
    meantime. Create missing folders."""
    # Windows cannot open relative to a folder.
    if os.open not in os.supports_dir_fd:
        private_folder(path.parent)
        return os.open(path, _APPEND_FLAGS, 0o600)
    folder = os.open(path.anchor, _FOLDER_FLAGS)
    try:
        for name in path.parts[1:-1]:
            try:
                inner = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
            except FileNotFoundError:
                os.mkdir(name, 0o700, dir_fd=folder)
                inner = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(path.name, _APPEND_FLAGS | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    finally:
        os.close(folder)


def repair(path: Path) -> int:
    """Remove an incomplete last line, which a kill during a write leaves. Return the number of complete lines."""
    lines = complete = read = 0
    try:
        with path.open("rb") as file:
            while data := file.read(_CHUNK_BYTES):
                lines += data.count(b"\n")
                last = data.rfind(b"\n")
                if last >= 0:
                    complete = read + last + 1
                read += len(data)
    except FileNotFoundError:
        return 0
    if complete < read:
        os.truncate(path, complete)
    return lines
