"""write: a whole file, created or replaced, and the short diff that shows what changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from retinue.core.format import format_bytes
from retinue.core.tool import ToolContext, ToolOutput, ok
from retinue.tools.arguments import PATH_NAMES, Arguments, ToolError
from retinue.tools.base import Aliases, BuiltinTool, Properties
from retinue.tools.capture import head_and_tail, line_count
from retinue.tools.content import TextForm, binary_kind, content_hash, forms_of
from retinue.tools.file_change import Change, changed_by, check_fresh, read_whole, remove, rewrite
from retinue.tools.paths import Confined, confine, spot
from retinue.tools.processes import in_thread

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


def unified(name: str, old: str, new: str, *, fresh: bool = False) -> str:
    """Return the diff for people who decide: longer, under a head that names the file. A `fresh` file
    was not there before, and is shown from its first line on."""
    if not fresh:
        return f"--- {name}\n+++ {name}\n{short_diff(old, new, _FOR_PEOPLE)}"
    lines = new.removesuffix("\n").split("\n")
    added = "\n".join(_prefixed("+", lines))
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
                lines += _prefixed(" ", before[a:b])
            else:
                lines += _prefixed("-", before[a:b]) + _prefixed("+", after[c:d])
    return lines


def _prefixed(sign: str, lines: list[str]) -> list[str]:
    return [sign + line for line in lines]


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
            return f"(The file would be deleted.)\n{unified(confined.shown, text, '')}"
        if not isinstance(content, str):
            content = ""
        return unified(confined.shown, text, content, fresh=old is None)
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
    return f"{did} {confined.shown} ({line_count(content)} lines, {format_bytes(len(change.new))}{kept})"
