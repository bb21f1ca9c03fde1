"""Inbox items as questions to the user of the editor: approvals with their diff, questions as forms.

The inbox in the log is authoritative. The first answer, from this or any other front end, takes effect; the request to
the editor is then cancelled.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from retinue.app.approvals import choice_label
from retinue.app.feed import Feed
from retinue.core.files import read_text
from retinue.core.permission import InboxItem
from retinue.errors import AnsweredError, RetinueError
from retinue.frontends.acp.calls import call_facts, change_content
from retinue.frontends.acp.rpc import RpcConnection, RpcError
from retinue.frontends.acp.tree import TreeTranslator
from retinue.frontends.acp.updates import ClientFeatures, Update, call_changed, message_chunk, text_content

EDITOR_NAME = "acp"
_OPTION_KINDS = {
    "allow-run": "allow_always",
    "allow-agent": "allow_always",
    "always": "allow_always",
    "deny": "reject_once",
}
NO_ANSWER = "The user gave no answer."
_MAX_DIFFED_FILE_BYTES = 2**20


class EditorQuestions:
    """The open requests of one session."""

    def __init__(
        self,
        feed: Feed,
        connection: RpcConnection,
        story: TreeTranslator,
        features: ClientFeatures,
        send: Callable[[str, Update], None],
    ) -> None:
        """`send` sends an update to a session of the client."""
        self._feed = feed
        self._connection = connection
        self._story = story
        self._features = features
        self._send_update = send
        self._open: dict[str, asyncio.Task[None]] = {}
        self._told: set[str] = set()
        self.in_words: list[InboxItem] = []
        """Questions that this client can only answer with its next prompt."""

    async def look(self) -> None:
        """Ask about new inbox items, and cancel requests that were answered elsewhere."""
        waiting: dict[str, InboxItem] = {}
        for row in await self._feed.inbox():
            if row.item.root_id == self._story.root and not row.interrupted:
                waiting[row.item.id] = row.item
        for item_id in self._open.keys() - waiting.keys():
            self._open.pop(item_id).cancel()
        self.in_words = [item for item in self.in_words if item.id in waiting]
        for item in waiting.values():
            if item.id in self._open or item.id in self._told:
                continue
            if item.kind == "question" and not item.options and not self._features.forms:
                self._told.add(item.id)
                self.in_words.append(item)
                self._send_update(self._story.root, message_chunk("agent_message_chunk", _question_text(item)))
            else:
                self._open[item.id] = asyncio.create_task(self._ask(item), name=f"ask {item.id}")

    def close(self) -> None:
        """Cancel all requests. The items keep waiting in the inbox."""
        for task in self._open.values():
            task.cancel()
        self._open.clear()
        self.in_words.clear()

    async def consent(self, command: str, about: str) -> bool:
        """Ask whether a shell command in a command file may run."""
        call_id = f"command-{os.urandom(4).hex()}"
        call = {"toolCallId": call_id, "title": command, "kind": "execute", "content": [text_content(about)]}
        options = [_option("allow"), _option("deny")]
        params = {"sessionId": self._story.root, "toolCall": {**call, "status": "pending"}, "options": options}
        try:
            answer = await self._connection.request("session/request_permission", params)
        except RpcError:
            return False
        return _chosen(answer) == "allow"

    async def _ask(self, item: InboxItem) -> None:
        try:
            if item.kind != "question":
                await self._ask_permission(item)
            elif self._features.forms:
                await self._ask_form(item)
            else:
                await self._ask_choice(item)
        except RpcError as error:
            # It stays in the inbox for the other front ends.
            text = f"This editor cannot ask you ({error.message}). Answer with: /inbox {item.id} ANSWER\n"
            self._send_update(self._story.root, message_chunk("agent_message_chunk", text))

    async def _ask_permission(self, item: InboxItem) -> None:
        options = [_option(option, item.rule) for option in item.options]
        call = await asyncio.to_thread(self._call_of, item)
        chosen = await self._request(item, call, options)
        await self._answer(item, chosen if chosen in item.options else "deny")

    async def _ask_choice(self, item: InboxItem) -> None:
        """Ask a client without forms: the options are shown like those of an approval."""
        options = [_option(option) for option in item.options]
        content = [text_content(_question_text(item, short=True))]
        call: Update = {"title": item.title, "kind": "other", "content": content}
        chosen = await self._request(item, call, options)
        await self._answer(item, chosen if chosen in item.options else NO_ANSWER)

    async def _request(self, item: InboxItem, call: Update, options: list[Any]) -> str | None:
        """Show options to the user at the tool call in question. If the client does not show that run, create a call
        for the question."""
        session = self._story.session_of(item.run_id)
        call_id = item.payload.get("call_id")
        is_own = session != item.run_id or not isinstance(call_id, str)
        shown = f"ask-{item.id}" if is_own else self._story.call_id_of(item.run_id, str(call_id))
        if is_own:
            call = {**call, "title": f"{item.agent}: {call['title']}"}
            self._send_update(session, {"sessionUpdate": "tool_call", "toolCallId": shown, "status": "pending", **call})
        params = {"sessionId": session, "toolCall": {"toolCallId": shown, "status": "pending", **call}}
        chosen: str | None = None
        try:
            answer = await self._connection.request("session/request_permission", {**params, "options": options})
            chosen = _chosen(answer)
        finally:
            if is_own:
                status = "failed" if chosen in (None, "deny") else "completed"
                self._send_update(session, call_changed(shown, status=status))
        return chosen

    def _call_of(self, item: InboxItem) -> Update:
        """Return the tool call that the editor shows above the options, with the change that it would make."""
        run = self._story.runs.get(item.run_id)
        cwd = run.cwd if run is not None else str(self._feed.cwd)
        name, arguments = item.payload.get("tool"), item.payload.get("arguments")
        call: Update = {"title": item.title, "kind": "other"}
        if isinstance(name, str) and isinstance(arguments, Mapping):
            call = call_facts(name, arguments, cwd)
            content = change_content(name, arguments, cwd, self._content_before(name, call))
            if content:
                call["content"] = content
        if "content" not in call and item.detail:
            call["content"] = [text_content(item.detail)]
        if item.reason:
            call["content"] = [*call.get("content", ()), text_content(item.reason)]
        return call

    def _content_before(self, name: str, call: Update) -> str | None:
        """Return the current content of a file that would be written; None if it cannot be shown."""
        if name != "write" or not call["locations"]:
            return None
        path = Path(call["locations"][0]["path"])
        try:
            return self._feed.redact(read_text(path, _MAX_DIFFED_FILE_BYTES))
        except (OSError, ValueError):
            return None

    async def _ask_form(self, item: InboxItem) -> None:
        session = self._story.session_of(item.run_id)
        params: dict[str, Any] = {
            "sessionId": session,
            "mode": "form",
            "message": _question_text(item, short=True),
            "requestedSchema": _form(item),
        }
        call_id = item.payload.get("call_id")
        if session == item.run_id and isinstance(call_id, str):
            params["toolCallId"] = self._story.call_id_of(item.run_id, call_id)
        answer = await self._connection.request("elicitation/create", params)
        await self._answer(item, _filled(answer, item))

    async def _answer(self, item: InboxItem, choice: str) -> None:
        try:
            await self._feed.answer(item.id, choice, by=EDITOR_NAME)
        except AnsweredError:
            # Someone answered first, and the run continues with that answer.
            return
        except RetinueError as error:
            self._send_update(self._story.root, message_chunk("agent_message_chunk", f"{error}\n"))


def _option(option: str, rule: str | None = None) -> dict[str, str]:
    name = choice_label(option)
    if option == "always" and rule:
        name += f": {rule}"
    return {"optionId": option, "kind": _OPTION_KINDS.get(option, "allow_once"), "name": name}


def _chosen(answer: object) -> str | None:
    """Return the chosen option; None for a cancelled or invalid answer."""
    outcome = answer.get("outcome") if isinstance(answer, dict) else None
    if not isinstance(outcome, dict) or outcome.get("outcome") != "selected":
        return None
    chosen = outcome.get("optionId")
    return chosen if isinstance(chosen, str) else None


def _question_text(item: InboxItem, *, short: bool = False) -> str:
    lines = [item.title]
    if item.detail:
        lines.append(item.detail)
    if not short:
        lines.append("(Your next message is the answer.)\n")
    return "\n\n".join(lines)


def _form(item: InboxItem) -> dict[str, Any]:
    if not item.options:
        answer = {"type": "string", "title": "Answer"}
        required = [] if item.payload.get("skip") else ["answer"]
        return {"type": "object", "properties": {"answer": answer}, "required": required}
    notes = item.payload.get("notes") or ()
    choices = []
    for number, option in enumerate(item.options):
        note = notes[number] if number < len(notes) else ""
        choices.append({"const": option, "title": f"{option}: {note}" if note else option})
    chosen: dict[str, Any] = {"type": "string", "title": "Answer", "oneOf": choices}
    if item.payload.get("several"):
        chosen = {"type": "array", "title": "Answers", "items": {"anyOf": choices}}
    own = {"type": "string", "title": "Or in your own words"}
    return {"type": "object", "properties": {"answer": chosen, "words": own}}


def _filled(answer: object, item: InboxItem) -> str:
    """Return the answer in a form."""
    content = answer.get("content") if isinstance(answer, dict) and answer.get("action") == "accept" else None
    if not isinstance(content, dict):
        return str(item.payload.get("decline") or NO_ANSWER)
    chosen, words = content.get("answer"), content.get("words")
    if isinstance(chosen, list):
        chosen = ", ".join(map(str, chosen))
    parts = [str(part_of_answer) for part_of_answer in (chosen, words) if part_of_answer]
    return " ".join(parts) or str(item.payload.get("skip") or NO_ANSWER)
