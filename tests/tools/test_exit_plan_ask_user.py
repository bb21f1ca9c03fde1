"""The end of plan mode, and a question of the main agent, in the spellings of Claude Code."""

from __future__ import annotations

from typing import Any

from retinue.core.tool import Reply, ToolContext
from retinue.testing import Call, ScriptedModel, ToolBench, Turn, drive
from retinue.tools.companions import FinalPlanTool


class Person:
    """Answers every question with its first option."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    async def ask(self, question: str, options: tuple[str, ...], call_id: str) -> Reply:
        self.asked.append((question, options))
        return Reply("answered", options[0] if options else "yes", "ada")


async def test_where_nobody_can_approve_it_the_plan_is_the_answer_of_the_run_and_says_so() -> None:
    model = ScriptedModel(Turn(Call("ExitPlanMode", {"plan": "1. Change a.py"})))
    run = await drive(model, tools=[FinalPlanTool()])
    assert run.outcome.ended == "completed"
    assert run.outcome.text.startswith("1. Change a.py\n\nNothing was changed: this was plan mode")


async def test_a_question_is_asked_as_claude_code_asks_it(tmp_path) -> None:
    person = Person()
    context = ToolContext("run-1", (tmp_path,), tmp_path)
    context.companion = person  # type: ignore[assignment]
    options = [{"label": "Tabs", "description": "as before"}, {"label": "Spaces", "description": "new"}]
    question: dict[str, Any] = {"question": "Which?", "header": "Style", "options": options, "multiSelect": False}
    model = ScriptedModel(Turn(Call("AskUserQuestion", {"questions": [question]})), "ok")
    run = await drive(model, tools=[ToolBench(tmp_path).tool("ask_user")], context=context)
    assert person.asked == [("Which?", ("Tabs", "Spaces"))]
    assert "Answer of ada: Tabs" in run.messages[2].results[0].text
