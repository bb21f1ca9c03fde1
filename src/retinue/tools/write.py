"""write: a whole file, created or replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from retinue.core.format import format_bytes
from retinue.core.tool import ToolContext, ToolOutput, ok
from retinue.tools.base import PATH_NAMES, Aliases, Arguments, BuiltinTool, Properties, ToolError
from retinue.tools.capture import line_count
from retinue.tools.content import TextForm, binary_kind, content_hash, forms_of
from retinue.tools.file_change import Change, changed_by, check_fresh, read_whole, remove, rewrite, unified_diff
from retinue.tools.paths import Confined, confine, spot
from retinue.tools.processes import in_thread


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
        return await in_thread(lambda: _preview(Arguments(self.name, arguments, self.aliases), context))


def _preview(given: Arguments, context: ToolContext) -> str:
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
