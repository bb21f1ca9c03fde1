"""Approvals for programs: `approve`, `retinue.inbox`, and the terminal's understanding of a line."""

from __future__ import annotations

import asyncio

import pytest

from retinue import Retinue, tool
from retinue.app.approvals import headline, item_lines
from retinue.core.permission import APPROVALS, InboxAnswer, InboxItem
from retinue.core.person_prompt import PromptBlock
from retinue.errors import AnsweredError, UsageError
from retinue.frontends.cli.console.questions import understood
from tests.program.model_server import Reply, Request

EDIT = ("edit", {"path": "f0.txt", "edits": [{"old": "beta", "new": "gamma"}]})


def edits(request: Request) -> Reply:
    return Reply(calls=[EDIT]) if request.turn == 0 else Reply(text="done")


async def later(item: InboxItem) -> str:
    await asyncio.sleep(0)
    return "allow-run"


def broken(item: InboxItem) -> bool:
    raise RuntimeError("no idea")


@pytest.mark.parametrize(
    ("approve", "allowed"),
    [
        (lambda item: True, True),
        (lambda item: False, False),
        (lambda item: item.risk != "high" and "allow", True),
        (lambda item: InboxAnswer("deny", "Never."), False),
        (later, True),
        (broken, False),
        (lambda item: "nonsense", False),
    ],
)
async def test_a_callable_decides(project, serve, approve, allowed):
    serve(edits)
    project.mode = "default"
    async with Retinue(project.cwd, environment=project.environment, approve=approve) as retinue:
        outcome = await (await retinue.spawn("general-purpose", "edit")).wait()
    assert ("gamma" in (project.cwd / "f0.txt").read_text()) == allowed
    assert bool(outcome.evidence.denials) != allowed


async def test_an_item_names_the_words_of_a_person_and_not_what_is_attached_to_them(project, serve):
    serve(edits)
    project.mode = "default"
    asked = []

    def approve(item: InboxItem) -> bool:
        asked.append(item.description)
        return True

    output = PromptBlock("command_output", "ls", "f0.txt")
    async with Retinue(project.cwd, environment=project.environment, approve=approve) as retinue:
        await (await retinue.prompt("Edit it", attached=[output])).wait()
    assert asked == ["Edit it"]


async def test_a_program_that_watches_the_inbox_is_asked_and_answers_once(project, serve):
    serve(edits)
    project.mode = "default"
    async with Retinue(project.cwd, environment=project.environment) as retinue:

        async def watch() -> InboxItem:
            async for item in retinue.inbox:
                assert [each.id for each in retinue.inbox.items()] == [item.id]
                with pytest.raises(UsageError):
                    await retinue.inbox.answer(item.id, "perhaps")
                await retinue.inbox.answer(item.id[:5], "deny", "Not today.")
                with pytest.raises(AnsweredError):
                    await retinue.inbox.answer(item.id, "allow")
                return item
            raise AssertionError

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.01)
        outcome = await (await retinue.spawn("general-purpose", "edit")).wait()
        item = await watching
        assert "Not today." in outcome.evidence.denials[0]
        assert [each.state for each in retinue.inbox.items(all=True)] == ["answered"]
        assert (item.agent, item.kind) == ("general-purpose", "approval")


async def test_a_mode_for_the_whole_program(project, serve):
    serve(edits)
    project.mode = "default"
    async with Retinue(project.cwd, environment=project.environment, permission_mode="acceptEdits") as retinue:
        await (await retinue.spawn("general-purpose", "edit")).wait()
    assert "gamma" in (project.cwd / "f0.txt").read_text()


async def test_a_program_vouches_for_its_own_tools_unless_a_rule_forbids_them(project, serve):
    serve(lambda request: Reply(calls=[("ring", {})]) if request.turn == 0 else Reply(text="done"))
    project.mode = "default"
    rung = []

    @tool
    def ring() -> str:
        """Rings the bell."""
        rung.append(1)
        return "rung"

    for rules in ({}, {"RETINUE_PERMISSIONS_DENY": "ring(*)"}, {"RETINUE_PERMISSIONS_ASK": "ring"}):
        async with Retinue(project.cwd, environment=project.environment | rules, tools=[ring]) as retinue:
            await (await retinue.spawn("general-purpose", "ring")).wait()
    assert len(rung) == 1


def item(**fields: object) -> InboxItem:
    known = {"id": "1a2b", "kind": "approval", "run_id": "r" * 17, "root_id": "r", "agent": "a", "title": "t"}
    return InboxItem(**{**known, **fields})


@pytest.mark.parametrize(
    ("line", "choice", "message"),
    [
        ("y", "allow", ""),
        ("Y", "allow", ""),
        ("r", "allow-run", ""),
        ("a", "allow-agent", ""),
        ("A", "always", ""),
        ("n", "deny", ""),
        ("no", "deny", ""),
        ("yes", "allow", ""),
        ("always", "always", ""),
        ("yes, but elsewhere", "deny", "yes, but elsewhere"),
        ("use f1.txt", "deny", "use f1.txt"),
        ("x", "deny", "x"),
    ],
)
def test_a_typed_line(line, choice, message):
    given = understood(item(options=APPROVALS), line)
    assert given is not None and (given.choice, given.message) == (choice, message)


def test_a_key_for_what_is_not_offered_denies():
    given = understood(item(options=("allow", "deny")), "A")
    assert given is not None and given.choice == "deny"
    assert understood(item(), "") is None


def test_a_question_takes_a_number_or_words():
    asked = item(kind="question", options=("blue", "red"))
    assert [understood(asked, line).choice for line in ("2", "3", "green")] == ["red", "3", "green"]


def test_what_a_terminal_would_hide_is_written_out():
    hidden = "rm -rf x\rls\x1b[2K\u202e\u200b"
    shown = item(title=f"bash: {hidden}", payload={"tool": "bash", "arguments": {"command": hidden}})
    text = "\n".join([headline(shown), *item_lines(shown)])
    assert "rm -rf x\\rls\\x1b[2K\\u202e\\u200b" in text
    assert all(character.isprintable() or character == "\n" for character in text)
