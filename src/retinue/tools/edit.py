"""Changing a file: check, lock, write beside, rename. All or nothing, and never over a change the run has not seen.

Between reading what is there and renaming the new content over it, the folder is locked
against other Retinue runs (threads by a lock, processes by flock), so of two runs that read
the same version only one can write; the other is told that its version is stale. What changed is
shown as a short diff.

edit: exact replacements in one file, all or none, with the reason when one cannot be done.

write: a whole file, created or replaced.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, ClassVar

from msgspec import Struct

from retinue.core.format import format_bytes
from retinue.core.permission import ToolEffect, TouchedPath
from retinue.core.programs import lock_file
from retinue.core.tool import ToolContext, ToolOutput, ok
from retinue.tools.base import PATH_NAMES, Aliases, Arguments, BuiltinTool, Properties, ToolError
from retinue.tools.content import (
    PROPERTIES,
    SNIFFED,
    CellChange,
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
from retinue.tools.paths import Confined, FolderEntry, confine, open_regular, refuse_irregular, spot
from retinue.tools.processes import in_thread
from retinue.tools.safe_dir import replace_entry

LARGEST = 64 * 1024 * 1024
"""Files beyond this size are neither hashed nor rewritten by tools."""

_LOCKS = tuple(threading.Lock() for _ in range(64))
_FLOCK_SECONDS = 2.0


class Change(Struct, frozen=True):
    """What a rewrite did. `old` is None when there was no file."""

    old: bytes | None
    new: bytes
    effect: ToolEffect


def rewrite(
    confined: Confined, context: ToolContext, change: Callable[[bytes | None], bytes], *, executable: bool = False
) -> Change:
    """Replace the content of `confined` by what `change` makes of it. `change` gets None for a
    file that does not exist, and raises ToolError to leave everything as it is. A file that
    exists keeps its mode; a new one can be made `executable`."""
    made = 0o777 if executable else 0o666
    mode = made
    # Looked at before the folder is locked: making the folders above must wait until the change is accepted.
    fresh = _existing(confined) is None
    # Before any folder is made: a refusal leaves no trace.
    new = change(None) if fresh else b""
    ledger = context.ledger
    with _lease(confined, context), spot(confined, create=fresh) as where, _lock(where, confined):
        found = where.stat()
        old = None
        if found is not None:
            old = read_whole(where, confined)
            mode = found.st_mode
        if old is not None or not fresh:
            new = change(old)
        _refuse_readonly(found, confined)
        after = content_hash(new)
        touched = _touched_path(confined, old, after)
        if new != old:
            if ledger:
                ledger.writing(confined.path, old, new, mode)
            if found is None or not hasattr(os, "fchmod"):
                replace_entry(where.folder, where.name, new, made)
            else:
                keep = partial(_keep_owner_and_mode, old=found)
                replace_entry(where.folder, where.name, new, made, keep)
            if ledger:
                ledger.wrote(confined.path, touched.before, after)
    context.seen[confined.real] = after
    return Change(old, new, ToolEffect(writes=(touched,)))


def remove(confined: Confined, context: ToolContext) -> ToolEffect:
    """Delete a file. What was in it is kept for undo first. Raise ToolError where a rewrite would."""
    ledger = context.ledger
    with _lease(confined, context), spot(confined) as where, _lock(where, confined):
        found = where.stat()
        if found is None:
            raise ToolError(f"{confined.shown} does not exist.")
        old = read_whole(where, confined)
        check_fresh(confined, context, old)
        _refuse_readonly(found, confined)
        before = content_hash(old)
        if ledger:
            ledger.writing(confined.path, old, None, found.st_mode)
        os.unlink(where.name, dir_fd=where.folder)
        if ledger:
            ledger.wrote(confined.path, before, None)
    context.seen.pop(confined.real, None)
    return ToolEffect(writes=(TouchedPath(confined.real, before, None),))


def _refuse_readonly(found: os.stat_result | None, confined: Confined) -> None:
    if found is not None and not found.st_mode & 0o222:
        raise ToolError(f"{confined.shown} is marked read-only. Change its mode first if it must be changed.")


def check_fresh(confined: Confined, context: ToolContext, current: bytes) -> None:
    """Refuse when this run's knowledge of the file is older than the file."""
    known, now = context.seen.get(confined.real), content_hash(current)
    if known is not None and known != now:
        who = changed_by(confined, context, now)
        changed = "changed since it was last read here"
        if who:
            changed = f"was changed by {who} since you read it"
        raise ToolError(f"{confined.shown} {changed}. Read it again, then redo the change.")


def changed_by(confined: Confined, context: ToolContext, now: str) -> str | None:
    """Return which other run wrote the content with the hash `now`, where that is known."""
    return None if context.ledger is None else context.ledger.changed_by(confined.path, now)


def _lease(confined: Confined, context: ToolContext) -> AbstractContextManager[object]:
    return nullcontext() if context.ledger is None else context.ledger.lease(confined.path)


def _touched_path(confined: Confined, old: bytes | None, after: str) -> TouchedPath:
    if old is None:
        return TouchedPath(confined.real, None, after)
    return TouchedPath(confined.real, content_hash(old), after)


def read_whole(where: FolderEntry, confined: Confined) -> bytes:
    descriptor = open_regular(where, confined)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ToolError(
            f"{confined.shown} is larger than {LARGEST // 2**20} MB: too large to rewrite. Use bash instead."
        )
    return data


def _existing(confined: Confined) -> os.stat_result | None:
    try:
        with spot(confined) as where:
            found = where.stat()
    except FileNotFoundError:
        return None
    if found is not None:
        refuse_irregular(found, confined)
    return found


def _keep_owner_and_mode(descriptor: int, old: os.stat_result) -> None:
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) != (old.st_uid, old.st_gid):
        with suppress(OSError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    # After the owner, because changing the owner clears the set-uid bits.
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


@contextmanager
def _lock(where: FolderEntry, confined: Confined) -> Iterator[None]:
    # The flock is best effort; within this process the order is certain.
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


_CONTEXT = 2
_COMPARED = 1000
"""Lines of difference beyond which both sides are summarised instead of aligned."""
_CHARACTERS = 3000
_FOR_PEOPLE = 20_000


def short_diff(old: str, new: str, most: int = _CHARACTERS) -> str:
    if old.endswith("\n") and new.endswith("\n"):
        # What follows the last line end is no line.
        old, new = old[:-1], new[:-1]
    before, after = old.split("\n"), new.split("\n")
    start = _common(before, after)
    rest_before, rest_after = before[start:], after[start:]
    end = _common(rest_before[::-1], rest_after[::-1])
    middle_before = rest_before[: len(rest_before) - end]
    middle_after = rest_after[: len(rest_after) - end]
    if len(middle_before) + len(middle_after) > _COMPARED:
        return f"@@ line {start + 1} @@ {len(middle_before)} lines became {len(middle_after)}"
    lead = before[max(0, start - _CONTEXT) : start]
    trail = rest_before[len(rest_before) - end :][:_CONTEXT]
    hunks = _hunks(lead + middle_before + trail, lead + middle_after + trail, max(0, start - _CONTEXT))
    return head_and_tail("\n".join(hunks), most, "")


def unified_diff(name: str, old: str, new: str, *, fresh: bool = False) -> str:
    """Return the diff for people who decide: longer, under a head that names the file. A `fresh` file
    was not there before, and is shown from its first line on."""
    if not fresh:
        return f"--- {name}\n+++ {name}\n{short_diff(old, new, _FOR_PEOPLE)}"
    lines = new.removesuffix("\n").split("\n")
    added = "\n".join(_prefix_lines("+", lines))
    return f"--- /dev/null\n+++ {name}\n@@ -0,0 +1,{len(lines)} @@\n{head_and_tail(added, _FOR_PEOPLE, '')}"


def _common(first: list[str], second: list[str]) -> int:
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return index
    return min(len(first), len(second))


def _hunks(before: list[str], after: list[str], skipped: int) -> list[str]:
    from difflib import SequenceMatcher

    lines: list[str] = []
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(_CONTEXT):
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


_ONE: Aliases = {
    "old_string": ("old", "oldString", "old_str", "oldText", "old_text", "search", "find"),
    "new_string": ("new", "newString", "new_str", "newText", "new_text", "replace", "replacement"),
    "replace_all": ("all", "replaceAll", "every"),
}
_REPLACEMENT: Properties = {
    "old_string": {"type": "string", "description": "Exact text"},
    "new_string": {"type": "string"},
    "replace_all": {"type": "boolean"},
}


class EditTool(BuiltinTool):
    name = "edit"
    exclusive = True
    required = ("path",)
    properties: ClassVar[Properties] = {
        "path": {"type": "string"},
        **_REPLACEMENT,
        "edits": {
            "type": "array",
            "description": "Several instead",
            "items": {
                "type": "object",
                "properties": {name: {"type": part["type"]} for name, part in _REPLACEMENT.items()},
                "required": ["old_string", "new_string"],
                "additionalProperties": False,
            },
        },
    }
    hidden: ClassVar[Properties] = PROPERTIES
    aliases: ClassVar[Aliases] = {
        "path": PATH_NAMES,
        **_ONE,
        "edits": ("edit", "replacements", "changes"),
        **{f"edits.{name}": others for name, others in _ONE.items()},
    }
    ignored = frozenset({"instruction", "explanation"})

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        confined = confine(given.text("path"), context, writing=True)
        cell = read_cell_change(given)
        if cell is not None:
            made = await in_thread(
                lambda: rewrite(confined, context, lambda old: _notebook(confined, context, old, cell))
            )
            return ok(f"Made the change of a cell ({cell.mode}) in {confined.shown}.", made.effect)
        edits = _edits(given)
        diff, effect = await in_thread(lambda: _edit_file(confined, context, edits))
        count = f"{len(edits)} edits" if len(edits) > 1 else "the edit"
        return ok(f"Made {count} in {confined.shown}:\n{diff}", effect)

    async def preview(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Return what the call would change, as a diff for people. Change nothing."""
        return await in_thread(lambda: _preview(Arguments(self.name, arguments, self.aliases), context))


def _preview(given: Arguments, context: ToolContext) -> str:
    try:
        confined = confine(given.text("path"), context, writing=True)
        with spot(confined) as where:
            data = read_whole(where, confined)
        cell = read_cell_change(given)
        if cell is not None:
            new = _notebook(confined, context, data, cell)
            return unified_diff(confined.shown, data.decode("utf-8", "replace"), new.decode())
        return unified_diff(confined.shown, *_apply_edits(confined, context, _edits(given), data)[1])
    except (ToolError, OSError) as error:
        return f"(It would fail: {error})"


def _notebook(confined: Confined, context: ToolContext, data: bytes | None, cell: CellChange) -> bytes:
    if data is None:
        raise ToolError(f"{confined.shown} does not exist. Use write to create it.")
    check_fresh(confined, context, data)
    return change_notebook(data, cell, confined.shown)


def _edit_file(confined: Confined, context: ToolContext, edits: list[Edit]) -> tuple[str, ToolEffect]:
    texts = ("", "")

    def change(data: bytes | None) -> bytes:
        nonlocal texts
        new, texts = _apply_edits(confined, context, edits, data)
        return new

    effect = rewrite(confined, context, change).effect
    return short_diff(*texts), effect


def _edits(given: Arguments) -> list[Edit]:
    """Return the replacement at the top of the call, and then those of `edits`."""
    items = given.items("edits") or []
    edits: list[Edit] = []
    if not items or given.find("old_string") is not None:
        edits.append(_edit(given))
    for item in items:
        if not isinstance(item, Mapping):
            raise given.wrong("edits", 'a list of {"old_string": ..., "new_string": ...}', item)
        edits.append(_edit(Arguments("edit", item, _ONE)))
    return edits


def _edit(given: Arguments) -> Edit:
    old, new = _string(given, "old_string"), _string(given, "new_string")
    if not old:
        raise ToolError(
            'edit: "old_string" must not be empty. Use write to create a file; to insert, replace a line near it.'
        )
    if old == new:
        raise ToolError('edit: "old_string" and "new_string" are the same, so nothing would change.')
    return Edit(old, new, given.flag("replace_all"))


def _string(given: Arguments, name: str) -> str:
    value: Any = given.find(name)
    if value is None:
        raise ToolError(
            f'edit needs "{name}" for each replacement: {{"path": ..., "old_string": ..., "new_string": ...}}.'
        )
    if not isinstance(value, str):
        raise given.wrong(name, "a string", value)
    return value


def _apply_edits(
    confined: Confined, context: ToolContext, edits: list[Edit], data: bytes | None
) -> tuple[bytes, tuple[str, str]]:
    """Return the new bytes and both texts. Of the ways to read the bytes the first in which every
    edit matches is taken, so a file with stray bytes can still be edited as it was shown."""
    if data is None:
        who = None
        if context.ledger is not None and confined.real in context.seen:
            who = context.ledger.changed_by(confined.path, "")
        if who:
            raise ToolError(
                f"{confined.shown} was deleted by {who} since you read it. Use write if it must exist again."
            )
        raise ToolError(f"{confined.shown} does not exist. Use write to create it.")
    kind = binary_kind(data[:SNIFFED])
    if kind is not None:
        raise ToolError(f"{confined.shown} is {kind}; edit works on text.")
    check_fresh(confined, context, data)
    reason: ToolError | None = None
    # A file with stray bytes was shown to the model in one of these forms.
    for form in forms_of(data):
        text = form.decode(data)
        try:
            new = apply(text, edits, confined.shown)
        except ToolError as error:
            reason = reason or error
            continue
        return _encode(form, new), (text, new)
    raise reason or ToolError(f"{confined.shown} is not valid text in the encoding its first bytes announce.")


def _encode(form: TextForm, text: str) -> bytes:
    try:
        return form.encode(text)
    except UnicodeEncodeError as error:
        bad = text[error.start : error.start + 1]
        raise ToolError(f"The file is {form.codec} text, which cannot hold {bad!r}. Use other characters.") from None


class WriteTool(BuiltinTool):
    name = "write"
    exclusive = True
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
    """The last two are for apply_patch: deleting and moving have the rules, the undo and the walls of writing."""
    asked_for = ("path",)
    aliases: ClassVar[Aliases] = {
        "path": PATH_NAMES,
        "content": ("contents", "text", "file_text", "file_content", "data"),
    }

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        confined = confine(given.text("path"), context, writing=True)
        if given.flag("delete"):
            _refuse_link(given.text("path"), confined, context)
            return ok(f"Deleted {confined.shown}", await in_thread(lambda: remove(confined, context)))
        content = given.find("content")
        # Other systems append with the same tool: replacing the file instead would lose its content.
        if given.flag("append") or (given.optional_text("mode") or "").startswith("a"):
            raise ToolError("write replaces the whole file and cannot append. Use edit to add text at its end.")
        if content is None:
            raise ToolError('write needs "content": the whole new content of the file, as a string (may be empty).')
        if not isinstance(content, str):
            raise given.wrong("content", "a string", content)
        executable = given.flag("executable")
        change = await in_thread(
            lambda: rewrite(confined, context, lambda old: _new(confined, context, content, old), executable=executable)
        )
        return ok(_report(confined, content, change), change.effect)

    async def preview(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Return what the call would change, as a diff for people. Change nothing."""
        return await in_thread(lambda: _preview_whole(Arguments(self.name, arguments, self.aliases), context))


def _preview_whole(given: Arguments, context: ToolContext) -> str:
    content = given.find("content")
    try:
        confined = confine(given.text("path"), context, writing=True)
        try:
            with spot(confined) as where:
                old: bytes | None = read_whole(where, confined)
        except FileNotFoundError:
            old = None
        text = _form(old).decode(old or b"")
        if given.flag("delete"):
            return f"(The file would be deleted.)\n{unified_diff(confined.shown, text, '')}"
        if not isinstance(content, str):
            content = ""
        return unified_diff(confined.shown, text, content, fresh=old is None)
    except (ToolError, OSError, ValueError) as error:
        return f"(What is there cannot be shown: {error})"


def _refuse_link(text: str, confined: Confined, context: ToolContext) -> None:
    """Refuse to delete through a link: it leads to a file that the call did not name."""
    if (context.root / text).is_symlink():
        raise ToolError(f"{text} is a symbolic link to {confined.shown}. Delete the one you mean with the shell.")


def _new(confined: Confined, context: ToolContext, content: str, old: bytes | None) -> bytes:
    if old is not None:
        if confined.real not in context.seen:
            who = changed_by(confined, context, content_hash(old))
            by = f" (it was written by {who})" if who else ""
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
    """Return the form of a file, which a replaced one keeps: the model was not shown encoding, mark
    and line ends."""
    if old is None or binary_kind(old) is not None:
        return TextForm()
    # The last form can hold every byte of the old file, so that nothing of it is in the way.
    return (TextForm(), *forms_of(old))[-1]


def _report(confined: Confined, content: str, change: Change) -> str:
    did = "Replaced"
    if change.old is None:
        did = "Created"
    elif change.old == change.new:
        did = "Unchanged:"
    kept = "; kept its CRLF line ends" if _form(change.old).crlf else ""
    lines = line_count(content)
    counted = "1 line" if lines == 1 else f"{lines} lines"
    return f"{did} {confined.shown} ({counted}, {format_bytes(len(change.new))}{kept})"
