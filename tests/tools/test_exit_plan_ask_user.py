"""The end of plan mode, and a question of the main agent, in the spellings of Claude Code."""

from __future__ import annotations

from typing import Any

from retinue.core.tool import Question, Reply, ToolContext
from retinue.testing import Call, ScriptedModel, ToolBench, Turn, drive
from retinue.tools.companions import FinalPlanTool


class Person:
    """Answers every question with its first option; `patience` questions at most."""

    def __init__(self, patience: int = 10) -> None:
        self.asked: list[Question] = []
        self.patience = patience

    async def ask(self, question: Question, call_id: str) -> Reply:
        self.asked.append(question)
        if len(self.asked) > self.patience:
            return Reply("nobody", "nobody is there who could.")
        return Reply("answered", question.options[0] if question.options else "yes", "ada")


async def asked(folder, person: Person, **arguments: Any) -> str:
    """What the model reads after a call of AskUserQuestion."""
    context = ToolContext("run-1", (folder,), folder)
    context.dialogue = person  # type: ignore[assignment]
    model = ScriptedModel(Turn(Call("AskUserQuestion", arguments)), "ok")
    run = await drive(model, tools=[ToolBench(folder).tool("ask_user")], context=context)
    return run.messages[2].results[0].text


async def test_where_nobody_can_approve_it_the_plan_is_the_answer_of_the_run_and_says_so() -> None:
    model = ScriptedModel(Turn(Call("ExitPlanMode", {"plan": "1. Change a.py"})))
    run = await drive(model, tools=[FinalPlanTool()])
    assert run.outcome.ended == "completed"
    assert run.outcome.text.startswith("1. Change a.py\n\nNothing was changed: this was plan mode")


async def test_a_question_is_asked_as_claude_code_asks_it(tmp_path) -> None:
    person = Person()
    options = [{"label": "Tabs", "description": "as before"}, {"label": "Spaces", "description": "new"}]
    question: dict[str, Any] = {"question": "Which?", "header": "Style", "options": options, "multiSelect": False}
    assert "Answer of ada: Tabs" in await asked(tmp_path, person, questions=[question])
    assert person.asked == [Question("Which?", ("Tabs", "Spaces"), ("as before", "new"))]


async def test_several_questions_are_asked_one_after_the_other_and_answered_together(tmp_path) -> None:
    person = Person()
    first = {"question": "Which?", "options": [{"label": "Tabs"}, {"label": "Spaces"}], "multiSelect": True}
    said = await asked(tmp_path, person, questions=[first, {"question": "What name?"}, "Why?"])
    assert said == "Which? Tabs\nWhat name? yes\nWhy? yes"
    assert [each.several for each in person.asked] == [True, False, False]


async def test_where_nobody_answers_one_of_several_questions_the_rest_is_not_asked(tmp_path) -> None:
    person = Person(patience=1)
    said = await asked(tmp_path, person, questions=[{"question": f"{number}?"} for number in range(3)])
    assert said.startswith("0? yes\n1? Nobody has answered: nobody is there who could.")
    assert len(person.asked) == 2


async def test_questions_that_are_wrong_are_refused_before_the_first_is_asked(tmp_path) -> None:
    person = Person()
    assert "question 2" in await asked(tmp_path, person, questions=[{"question": "a?"}, {"options": ["x"]}])
    assert "at most 4 questions" in await asked(tmp_path, person, questions=[{"question": "a?"}] * 5)
    assert "question" in await asked(tmp_path, person)
    assert person.asked == []


async def test_more_than_one_option_can_be_asked_for_in_our_own_form(tmp_path) -> None:
    person = Person()
    await asked(tmp_path, person, question="Which?", options=["a", "b"], several=True)
    assert person.asked == [Question("Which?", ("a", "b"), ("", ""), several=True)]
