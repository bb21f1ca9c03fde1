"""edit: exact replacements in one file, all or none, with the reason when one cannot be done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from retinue.core.permission import ToolEffect
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
    forms_of,
    read_cell_change,
)
from retinue.tools.file_change import check_fresh, read_whole, rewrite, short_diff, unified_diff
from retinue.tools.paths import Confined, confine, spot
from retinue.tools.processes import in_thread

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
