"""edit and write: atomic changes of a file, which never overwrite a change that the run has not seen.

Between reading the old content and renaming the new content over it, the folder is locked against other Retinue runs
(threads by a lock, processes by flock). If two runs have read the same version, only one can write; the other gets an
error that its version is stale. The result shows the change as a short diff.
"""

from __future__ import annotations

import os
import stat
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, ClassVar

from msgspec import Struct

from retinue.core.format import format_bytes
from retinue.core.permission import ToolEffect, TouchedPath
from retinue.core.programs import lock_file
from retinue.core.tool import ToolContext, ToolOutput, ok
from retinue.tools.base import PATH_NAMES, Aliases, Arguments, BuiltinTool, Properties, ToolError
from retinue.tools.content import (
    CELL_PROPERTIES,
    MAX_HASHED_BYTES,
    SNIFFED_BYTES,
    Edit,
    TextForm,
    apply,
    binary_kind,
    change_notebook,
    content_hash,
    forms_of,
    head_and_tail,
    line_count,
    read_cell_change,
)
from retinue.tools.paths import Confined, FolderEntry, confine, open_parent, open_regular, refuse_irregular
from retinue.tools.processes import in_thread
from retinue.tools.safe_dir import replace_entry

_LOCKS = tuple(threading.Lock() for _ in range(64))
_FLOCK_SECONDS = 2.0

ContentChange = Callable[[bytes | None], bytes | None]
"""Makes the new content of a file from the old one; None is for a file that does not exist, or is to be deleted. Raises
ToolError to leave everything unchanged."""


class Change(Struct, frozen=True):
    """The content of a file before and after a change; None where there was or is no file."""

    old: bytes | None
    new: bytes | None
    effect: ToolEffect

    @property
    def diff(self) -> str:
        return short_diff(_shown_text(self.old), _shown_text(self.new))


def rewrite(confined: Confined, context: ToolContext, change: ContentChange, *, executable: bool = False) -> Change:
    """Replace the content of `confined` by the result of `change`. A file that exists keeps its mode; a new one can be
    made `executable`."""
    mode = new_mode = 0o777 if executable else 0o666
    # Checked before the folder is locked, because folders above are made only after the change is accepted.
    fresh = _existing(confined) is None
    # Before any folder is made: a refusal leaves no trace.
    new = change(None) if fresh else None
    ledger = context.ledger
    lease = nullcontext() if ledger is None else ledger.lease(confined.path)
    with lease, open_parent(confined, create=fresh) as where, _lock(where, confined):
        status = where.stat()
        old = None
        if status is not None:
            old = read_whole(where, confined)
            mode = status.st_mode
        if old is not None or not fresh:
            new = change(old)
        if not mode & 0o222:
            raise ToolError(f"{confined.shown} is marked read-only. Change its mode first if it must be changed.")
        before, after = (None if content is None else content_hash(content) for content in (old, new))
        if before != after:
            if ledger:
                ledger.writing(confined.path, old, new, mode)
            if new is None:
                os.unlink(where.name, dir_fd=where.folder)
            elif status is None or not hasattr(os, "fchmod"):
                replace_entry(where.folder, where.name, new, new_mode)
            else:
                replace_entry(where.folder, where.name, new, new_mode, partial(_keep_owner_and_mode, old=status))
            if ledger:
                ledger.wrote(confined.path, before, after)
    context.seen.pop(confined.real, None)
    if after is not None:
        context.seen[confined.real] = after
    return Change(old, new, ToolEffect(writes=(TouchedPath(confined.real, before, after),)))


def check_fresh(confined: Confined, context: ToolContext, current: bytes) -> None:
    """Raise ToolError if the file has changed since this run last read it."""
    seen, now = context.seen.get(confined.real), content_hash(current)
    if seen is not None and seen != now:
        writer = _changed_by(confined, context, now)
        changed = f"was changed by {writer} since you read it" if writer else "changed since it was last read here"
        raise ToolError(f"{confined.shown} {changed}. Read it again, then redo the change.")


def _changed_by(confined: Confined, context: ToolContext, now: str) -> str | None:
    """Return which other run wrote the content with the hash `now`, where that is known."""
    return None if context.ledger is None else context.ledger.changed_by(confined.path, now)


def read_whole(where: FolderEntry, confined: Confined) -> bytes:
    descriptor = open_regular(where, confined)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MAX_HASHED_BYTES + 1)
    if len(data) > MAX_HASHED_BYTES:
        limit = MAX_HASHED_BYTES // 2**20
        raise ToolError(f"{confined.shown} is larger than {limit} MB: too large to rewrite. Use bash instead.")
    return data


def _existing(confined: Confined) -> os.stat_result | None:
    try:
        with open_parent(confined) as where:
            status = where.stat()
    except FileNotFoundError:
        return None
    if status is not None:
        refuse_irregular(status, confined)
    return status


def _keep_owner_and_mode(descriptor: int, old: os.stat_result) -> None:
    created = os.fstat(descriptor)
    if (created.st_uid, created.st_gid) != (old.st_uid, old.st_gid):
        with suppress(OSError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    # After the owner, because changing the owner clears the set-uid bits.
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


@contextmanager
def _lock(where: FolderEntry, confined: Confined) -> Iterator[None]:
    # The flock is best effort. Within this process the lock is reliable.
    with _LOCKS[hash(confined.real) % len(_LOCKS)], _lock_folder(where):
        yield


@contextmanager
def _lock_folder(where: FolderEntry) -> Iterator[None]:
    """Lock the folder if that is possible. A file system without locks, or a lock held for seconds,
    does not stop the write; the hash check still catches what changed before it."""
    descriptor = None
    with suppress(OSError):
        descriptor = os.open(".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=where.folder)
    try:
        if descriptor is not None:
            with suppress(OSError):
                lock_file(descriptor, _FLOCK_SECONDS)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


_CONTEXT_LINES = 2
_MAX_ALIGNED_LINES = 1000
"""The most changed lines that are aligned. A larger difference is only summarised."""
_MODEL_CHARACTERS = 3000
_PERSON_CHARACTERS = 20_000


def short_diff(old: str, new: str, most: int = _MODEL_CHARACTERS) -> str:
    if old.endswith("\n") and new.endswith("\n"):
        # No line follows the last line end.
        old, new = old[:-1], new[:-1]
    before, after = old.split("\n"), new.split("\n")
    start = _common(before, after)
    rest_before, rest_after = before[start:], after[start:]
    end = _common(rest_before[::-1], rest_after[::-1])
    middle_before = rest_before[: len(rest_before) - end]
    middle_after = rest_after[: len(rest_after) - end]
    if len(middle_before) + len(middle_after) > _MAX_ALIGNED_LINES:
        return f"@@ line {start + 1} @@ {len(middle_before)} lines became {len(middle_after)}"
    lead = before[max(0, start - _CONTEXT_LINES) : start]
    trail = rest_before[len(rest_before) - end :][:_CONTEXT_LINES]
    hunks = _hunks(lead + middle_before + trail, lead + middle_after + trail, max(0, start - _CONTEXT_LINES))
    return head_and_tail("\n".join(hunks), most, "")


def unified_diff(name: str, old: str, new: str, *, fresh: bool = False) -> str:
    """Return a longer diff with a header that names the file, for people who approve the change. A `fresh` file did not
    exist before, so all of its lines are shown."""
    if not fresh:
        return f"--- {name}\n+++ {name}\n{short_diff(old, new, _PERSON_CHARACTERS)}"
    lines = new.removesuffix("\n").split("\n")
    added = "\n".join(_prefix_lines("+", lines))
    return f"--- /dev/null\n+++ {name}\n@@ -0,0 +1,{len(lines)} @@\n{head_and_tail(added, _PERSON_CHARACTERS, '')}"


def _common(first: list[str], second: list[str]) -> int:
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return index
    return min(len(first), len(second))


def _hunks(before: list[str], after: list[str], skipped: int) -> list[str]:
    from difflib import SequenceMatcher

    lines: list[str] = []
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(_CONTEXT_LINES):
        _, first, last, begin, finish = group[0][0], group[0][1], group[-1][2], group[0][3], group[-1][4]
        lines.append(f"@@ -{skipped + first + 1},{last - first} +{skipped + begin + 1},{finish - begin} @@")
        for tag, a, b, c, d in group:
            if tag == "equal":
                lines += _prefix_lines(" ", before[a:b])
            else:
                lines += _prefix_lines("-", before[a:b]) + _prefix_lines("+", after[c:d])
    return lines


def _prefix_lines(sign: str, lines: list[str]) -> list[str]:
    return [sign + line for line in lines]


_REPLACEMENT_ALIASES: Aliases = {
    "old_string": ("old", "oldString", "old_str", "oldText", "old_text", "search", "find"),
    "new_string": ("new", "newString", "new_str", "newText", "new_text", "replace", "replacement"),
    "replace_all": ("all", "replaceAll", "every"),
}
_REPLACEMENT: Properties = {
    "old_string": {"type": "string", "description": "Exact text"},
    "new_string": {"type": "string"},
    "replace_all": {"type": "boolean"},
}


class FileChangeTool(BuiltinTool):
    """A tool that changes one file. The same function makes the change and previews it."""

    exclusive = True

    @abstractmethod
    def change(self, arguments: Arguments, confined: Confined, context: ToolContext) -> ContentChange:
        """Return the change that a call asks for. Raise ToolError where its arguments are wrong."""

    async def make_change(self, arguments: Arguments, context: ToolContext) -> tuple[Confined, Change]:
        """Make the change. Return the path and what has changed."""
        confined = confine(arguments.text("path"), context, writing=True)
        change, executable = self.change(arguments, confined, context), arguments.flag("executable")
        return confined, await in_thread(lambda: rewrite(confined, context, change, executable=executable))

    async def preview(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Return a diff for people of the change that the call would make, without making it."""
        parsed = Arguments(self.name, arguments, self.aliases)

        def preview() -> str:
            try:
                confined = confine(parsed.text("path"), context, writing=True)
                old = None
                if _existing(confined) is not None:
                    with open_parent(confined) as where:
                        old = read_whole(where, confined)
                new = self.change(parsed, confined, context)(old)
            except (ToolError, OSError) as error:
                return f"(It would fail: {error})"
            diff = unified_diff(confined.shown, _shown_text(old), _shown_text(new), fresh=old is None)
            return diff if new is not None else f"(The file would be deleted.)\n{diff}"

        return await in_thread(preview)


def _shown_text(data: bytes | None) -> str:
    """Return the content of a file as a diff shows it."""
    if not data:
        return ""
    kind = binary_kind(data[:SNIFFED_BYTES])
    return f"({kind})" if kind is not None else _form(data).decode(data)


class EditTool(FileChangeTool):
    name = "edit"
    required = ("path",)
    properties: ClassVar[Properties] = {
        "path": {"type": "string"},
        **_REPLACEMENT,
        "edits": {
            "type": "array",
            "description": "Several instead",
            "items": {
                "type": "object",
                "properties": {name: {"type": schema["type"]} for name, schema in _REPLACEMENT.items()},
                "required": ["old_string", "new_string"],
                "additionalProperties": False,
            },
        },
    }
    hidden: ClassVar[Properties] = CELL_PROPERTIES
    aliases: ClassVar[Aliases] = {
        "path": PATH_NAMES,
        **_REPLACEMENT_ALIASES,
        "edits": ("edit", "replacements", "changes"),
        **{f"edits.{name}": others for name, others in _REPLACEMENT_ALIASES.items()},
    }
    ignored = frozenset({"instruction", "explanation"})

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        confined, change = await self.make_change(arguments, context)
        cell = read_cell_change(arguments)
        if cell is not None:
            return ok(f"Made the change of a cell ({cell.mode}) in {confined.shown}.", change.effect)
        edits = _edits(arguments)
        count = f"{len(edits)} edits" if len(edits) > 1 else "the edit"
        return ok(f"Made {count} in {confined.shown}:\n{change.diff}", change.effect)

    def change(self, arguments: Arguments, confined: Confined, context: ToolContext) -> ContentChange:
        cell = read_cell_change(arguments)
        edits = [] if cell is not None else _edits(arguments)

        def change(old: bytes | None) -> bytes:
            old = _known_content(confined, context, old)
            return change_notebook(old, cell, confined.shown) if cell else _apply_edits(confined, edits, old)

        return change


def _known_content(confined: Confined, context: ToolContext, old: bytes | None) -> bytes:
    """Return the content of an existing file that has not changed since the run read it. Raise ToolError otherwise."""
    if old is not None:
        check_fresh(confined, context, old)
        return old
    writer = _changed_by(confined, context, "") if confined.real in context.seen else None
    if writer:
        raise ToolError(
            f"{confined.shown} was deleted by {writer} since you read it. Use write if it must exist again."
        )
    raise ToolError(f"{confined.shown} does not exist. Use write to create it.")


def _edits(arguments: Arguments) -> list[Edit]:
    """Return the replacement at the top of the call, and then those of `edits`."""
    items = arguments.items("edits") or []
    edits: list[Edit] = []
    if not items or arguments.find("old_string") is not None:
        edits.append(_edit(arguments))
    for item in items:
        if not isinstance(item, Mapping):
            raise arguments.wrong("edits", 'a list of {"old_string": ..., "new_string": ...}', item)
        edits.append(_edit(Arguments("edit", item, _REPLACEMENT_ALIASES)))
    return edits


def _edit(arguments: Arguments) -> Edit:
    old, new = _string(arguments, "old_string"), _string(arguments, "new_string")
    if not old:
        raise ToolError(
            'edit: "old_string" must not be empty. Use write to create a file; to insert, replace a line near it.'
        )
    if old == new:
        raise ToolError('edit: "old_string" and "new_string" are the same, so nothing would change.')
    return Edit(old, new, arguments.flag("replace_all"))


def _string(arguments: Arguments, name: str) -> str:
    value: Any = arguments.find(name)
    if value is None:
        raise ToolError(
            f'edit needs "{name}" for each replacement: {{"path": ..., "old_string": ..., "new_string": ...}}.'
        )
    if not isinstance(value, str):
        raise arguments.wrong(name, "a string", value)
    return value


def _apply_edits(confined: Confined, edits: list[Edit], data: bytes) -> bytes:
    """Return the new bytes. The old bytes are read in the first form in which every edit matches, so that a file with
    stray bytes can be edited as it was shown."""
    kind = binary_kind(data[:SNIFFED_BYTES])
    if kind is not None:
        raise ToolError(f"{confined.shown} is {kind}; edit works on text.")
    reason: ToolError | None = None
    # A file with stray bytes was shown to the model in one of these forms.
    for form in forms_of(data):
        try:
            text = apply(form.decode(data), edits, confined.shown)
        except ToolError as error:
            reason = reason or error
            continue
        try:
            return form.encode(text)
        except UnicodeEncodeError as error:
            bad = text[error.start : error.start + 1]
            raise ToolError(
                f"The file is {form.codec} text, which cannot hold {bad!r}. Use other characters."
            ) from None
    raise reason or ToolError(f"{confined.shown} is not valid text in the encoding its first bytes announce.")


class WriteTool(FileChangeTool):
    name = "write"
    required = ("path", "content")
    properties: ClassVar[Properties] = {
        "path": {"type": "string"},
        "content": {"type": "string", "description": "All of it"},
    }
    hidden: ClassVar[Properties] = {
        "append": {"type": "boolean"},
        "mode": {"type": "string"},
        "delete": {"type": "boolean"},
        "executable": {"type": "boolean"},
    }
    """The last two are for apply_patch: deleting and moving have the rules, the undo and the sandbox of writing."""
    asked_for = ("path",)
    aliases: ClassVar[Aliases] = {
        "path": PATH_NAMES,
        "content": ("contents", "text", "file_text", "file_content", "data"),
    }

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        confined, change = await self.make_change(arguments, context)
        if change.new is None:
            return ok(f"Deleted {confined.shown}", change.effect)
        done = "Replaced"
        if change.old is None:
            done = "Created"
        elif change.old == change.new:
            done = "Unchanged:"
        line_ends = "; kept its CRLF line ends" if _form(change.old).crlf else ""
        count = line_count(arguments.find("content"))
        lines = "1 line" if count == 1 else f"{count} lines"
        text = f"{done} {confined.shown} ({lines}, {format_bytes(len(change.new))}{line_ends})"
        return ok(text, change.effect)

    def change(self, arguments: Arguments, confined: Confined, context: ToolContext) -> ContentChange:
        path, content = arguments.text("path"), arguments.find("content")
        if arguments.flag("delete"):
            if (context.root / path).is_symlink():
                # The link leads to a file that the call did not name.
                raise ToolError(
                    f"{path} is a symbolic link to {confined.shown}. Delete the one you mean with the shell."
                )
            return lambda old: _deletion(confined, context, old)
        # Other systems append with the same tool: replacing the file instead would lose its content.
        if arguments.flag("append") or (arguments.optional_text("mode") or "").startswith("a"):
            raise ToolError("write replaces the whole file and cannot append. Use edit to add text at its end.")
        if content is None:
            raise ToolError('write needs "content": the whole new content of the file, as a string (may be empty).')
        if not isinstance(content, str):
            raise arguments.wrong("content", "a string", content)
        return lambda old: _new(confined, context, content, old)


def _deletion(confined: Confined, context: ToolContext, old: bytes | None) -> None:
    if old is None:
        raise ToolError(f"{confined.shown} does not exist.")
    check_fresh(confined, context, old)


def _new(confined: Confined, context: ToolContext, content: str, old: bytes | None) -> bytes:
    if old is not None:
        if confined.real not in context.seen:
            writer = _changed_by(confined, context, content_hash(old))
            by = f" (it was written by {writer})" if writer else ""
            raise ToolError(
                f"{confined.shown} exists and was not read here{by}. Read it first, so that nothing is lost unseen."
            )
        check_fresh(confined, context, old)
    form = _form(old)
    # The model was shown plain line ends, and may have sent either kind.
    if form.crlf:
        content = content.replace("\r\n", "\n")
    try:
        return form.encode(content)
    except UnicodeEncodeError:
        pass
    try:
        return TextForm(crlf=form.crlf).encode(content)
    except UnicodeEncodeError as error:
        raise ToolError(f"content has an unpaired surrogate at character {error.start}; send valid Unicode.") from None


def _form(old: bytes | None) -> TextForm:
    """Return the form of a file. A replaced file keeps it, because the model does not see encoding, mark and line
    ends."""
    if old is None or binary_kind(old) is not None:
        return TextForm()
    # The last form can represent every byte of the old file.
    return (TextForm(), *forms_of(old))[-1]
