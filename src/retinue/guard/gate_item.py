"""The inbox item of a call that needs a person: the exact call, a diff where it changes a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from retinue.core.inbox import APPROVALS, InboxItem
from retinue.core.permission import Decision, ToolUse
from retinue.core.tool import Preview, ToolContext
from retinue.guard.desk import new_item_id

if TYPE_CHECKING:
    from retinue.guard.desk_party import Party

_ONCE = ("allow", "deny")
_TITLE = 200
_TELLING = ("command", "path", "file_path", "url", "query", "pattern", "description", "prompt", "name")
"""Arguments that say what a call is about, the most telling first."""


async def approval(
    use: ToolUse, decision: Decision, party: Party, rule: str | None, context: ToolContext, preview: Preview | None
) -> InboxItem:
    """`rule` is what could be granted beyond this call; None where nothing may be."""
    return InboxItem(
        id=new_item_id(),
        kind="approval",
        run_id=party.place.run_id,
        root_id=party.place.root_id,
        agent=party.agent,
        description=party.description,
        title=call_title(use.tool, use.arguments),
        detail=await _detail(preview, use, context),
        payload={"tool": use.tool, "arguments": dict(use.arguments), "call_id": use.call_id},
        risk=decision.risk,
        reason=decision.reason,
        rule=rule,
        options=APPROVALS if rule is not None else _ONCE,
    )


def call_title(tool: str, arguments: Mapping[str, Any]) -> str:
    """`edit src/a.py`, `bash: make test`: one line."""
    said = next((arguments[name] for name in _TELLING if isinstance(arguments.get(name), str)), "")
    text = " ".join(said.split())
    text = text if len(text) <= _TITLE else text[: _TITLE - 1] + "…"
    if not text:
        return tool
    if tool == "write" and arguments.get("delete"):
        return f"delete {text}"
    return f"{tool}: {text}" if tool == "bash" else f"{tool} {text}"


async def _detail(preview: Preview | None, use: ToolUse, context: ToolContext) -> str:
    """What a tool that can tell says about what would change. Never a reason not to ask."""
    if preview is None:
        return ""
    try:
        return await preview(use.arguments, context)
    except Exception as error:  # noqa: BLE001 - the question is put without it
        return f"(What it would change cannot be shown: {type(error).__name__}: {error})"
