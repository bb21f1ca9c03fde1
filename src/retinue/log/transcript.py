"""The transcript of a run as JSON lines, and the files of transcripts.

    {"isSidechain":true,"agentId":…,"type":"user|assistant|toolResult","message":…,"timestamp":…,"cwd":…}

A transcript is a projection of the log: its lines come from events, so compaction cannot shift them and they can be
made again at any time. Messages have the shape of the pi family; a compaction leaves a `compact_boundary` line as
Claude Code writes it. The first line is the prompt. Only the writer's thread appends to the files, after each commit;
it mends the file of a run that is taken up again.
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

_STOP: dict[StopReason, str] = {"end": "stop", "tool_use": "toolUse", "refusal": "stop"}


class TranscriptLines:
    """Turns the events of one run into lines, one event at a time and always the same way. Of the output of a tool
    at most `output_kept` characters are kept; None keeps all."""

    def __init__(self, output_kept: int | None = None) -> None:
        self._output_kept = output_kept
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
                # The prompt is there since the run was created.
                if task is None or message.origin != "task" or message.text != task:
                    is_text = all(isinstance(part, Text) for part in message.content)
                    yield {"role": "user", "content": message.text if is_text else _parts(message.content)}
            case ToolMessage():
                for result in message.results:
                    content = result.content
                    if self._output_kept is not None:
                        content = tuple(_shortened(part, self._output_kept, event.run_id) for part in content)
                    yield {
                        "role": "toolResult",
                        "toolCallId": result.call_id,
                        "toolName": result.name,
                        "content": _parts(content),
                        "isError": result.is_error,
                    }

    def _line(self, event: Event, message: dict[str, Any]) -> bytes:
        return self._encode(event, {"type": message["role"], "message": message})

    def _encode(self, event: Event, fields: dict[str, Any]) -> bytes:
        moment = datetime.fromtimestamp(event.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"isSidechain": True, "agentId": event.run_id, **fields, "timestamp": moment, "cwd": self._cwd}
        return dump(line) + b"\n"


def _shortened(part: Content, most: int, run_id: str) -> Content:
    """Return the beginning and the end of long content, and where all of it is."""
    where = f"all of it: retinue runs show {run_id} --json"
    if not isinstance(part, Text):
        return part if len(part.data) <= most else Text(f"[{part.media_type}, {len(part.data)} characters; {where}]")
    if len(part.text) <= most:
        return part
    gone, end = len(part.text) - most, most // 4
    return Text(f"{part.text[: most - end]}\n[{gone} characters left out; {where}]\n{part.text[-end:]}")


def _assistant(event: Event, message: AssistantMessage) -> dict[str, Any]:
    usage, (provider, _, model) = message.usage, message.model.partition("/")
    data: dict[str, Any] = {
        "role": "assistant",
        "content": _parts(message.content),
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
        "stopReason": _STOP.get(message.stop, message.stop),
        "timestamp": int(event.at * 1000),
    }
    if message.failure is not None:
        data["errorMessage"] = message.failure.message
    return data


def _parts(content: Iterable[Content | Thinking | ToolCall]) -> list[dict[str, Any]]:
    return [_part(part) for part in content]


def _part(part: Content | Thinking | ToolCall) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Image():
            return {"type": "image", "data": part.data, "mimeType": part.media_type}
        case Document():
            return {"type": "document", "data": part.data, "mimeType": part.media_type, "name": part.name}
        case Thinking():
            return {"type": "thinking", "thinking": part.text, "thinkingSignature": part.signature}
        case ToolCall():
            return {"type": "toolCall", "id": part.id, "name": part.name, "arguments": part.arguments}


def transcript_path(folder: Path, run_id: str) -> str:
    """Return the path of the transcript of a run of this project."""
    return os.path.join(folder, "transcripts", f"{run_id}.jsonl")  # noqa: PTH118 - a quarter of the time


def wants_transcript(of_file: bool | None, of_settings: bool | None, persist: bool | None = None) -> bool:
    """Return whether a run has a transcript: the agent's file decides before the settings; without either there is one.
    With `persist` the file asks for its session to be kept, which is the same here."""
    if of_file is not None:
        return of_file
    return persist is True or of_settings is not False


MAX_OUTPUT_CHARACTERS = 4_000
"""Of a tool in a transcript; the log has all of them."""
_CHUNK_BYTES = 1 << 20
_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_BREAKS = frozenset({RunCreated, RunStarted, TurnEnded, Compacted, RunEnded})


class Transcripts:
    """Lines gather per run and are written when a turn, a run or a compaction ends. Files are only appended to; none
    stays open, so thousands of runs need no more descriptors.

    A file that cannot be written is reported to `complain` once per run and tried again with the next line. A file
    outside of `folder`, the log's own, is where agents may write (`session_dir`): it is reached without following
    links, or an agent could lead its transcript into any file of the user.
    """

    def __init__(self, complain: Callable[[str, str], None], folder: Path) -> None:
        self._complain = complain
        self._folder = f"{folder}{os.sep}"
        self._files: dict[str, _File] = {}

    def take(self, events: Iterable[Event]) -> None:
        ready: dict[str, None] = {}
        over: list[str] = []
        for event in events:
            body = event.body
            kind = type(body)
            if kind in TRANSIENT:
                continue
            if isinstance(body, RunCreated):
                self._files[event.run_id] = _File(body.options.transcript or None)
            file = self._files.get(event.run_id)
            if file is None:
                continue
            if isinstance(body, RunStarted):
                file.path = body.transcript or None
            file.lines += file.transcript.take(event)
            if kind in _BREAKS:
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
        """Go on with the file of a run that is taken up again: what a crash left half-written
        is cut off, what it left unwritten is added, and all the rest stays."""
        file = self._files[run_id] = _File(str(path))
        leads_elsewhere = not self._is_own(str(path)) and path.resolve() != path
        lines = (line for event in events for line in file.transcript.take(event))
        unwritten = list(islice(lines, 0 if leads_elsewhere else mend(path), None))
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
                self._complain(run_id, f"the transcript {file.path} cannot be written ({error.strerror or error})")

    def _is_own(self, path: str) -> bool:
        return path.startswith(self._folder)


class _File(Struct):
    path: str | None
    lines: list[bytes] = []
    failed: bool = False
    transcript: TranscriptLines = field(default_factory=lambda: TranscriptLines(MAX_OUTPUT_CHARACTERS))


def append(path: str, lines: list[bytes], *, follow: bool = True) -> None:
    """Add whole lines: if not all of them can be written, none is left behind. Unless `follow`, a
    link anywhere in the path is an OSError."""
    if not follow:
        descriptor = _open_without_links(Path(path))
    else:
        try:
            descriptor = os.open(path, _APPENDING, 0o600)
        except FileNotFoundError:
            private_folder(Path(path).parent)
            descriptor = os.open(path, _APPENDING, 0o600)
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
    """Open an absolute path for appending, folder by folder, so that none can be swapped for a link
    meanwhile; make the folders that are missing."""
    # Windows: nothing there holds a folder open.
    if os.open not in os.supports_dir_fd:
        private_folder(path.parent)
        return os.open(path, _APPENDING, 0o600)
    above = os.open(path.anchor, _FOLDER)
    try:
        for name in path.parts[1:-1]:
            try:
                inner = os.open(name, _FOLDER, dir_fd=above)
            except FileNotFoundError:
                os.mkdir(name, 0o700, dir_fd=above)
                inner = os.open(name, _FOLDER, dir_fd=above)
            os.close(above)
            above = inner
        return os.open(path.name, _APPENDING | os.O_NOFOLLOW, 0o600, dir_fd=above)
    finally:
        os.close(above)


def mend(path: Path) -> int:
    """Cut off a last line that has no end, which is what a kill in the middle of a write
    leaves. Return the number of complete lines."""
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
