"""`subagent` as devkit-pi and `dispatch_agent` as CodingCode know them."""

from __future__ import annotations

from typing import get_args

import pytest
from delegation_scene import FakeDelegate

from retinue.core.delegation import Refusal
from retinue.core.outcome import Failure, Outcome
from retinue.core.usage import Usage
from retinue.loop.result import ErrorCode, ResultCall
from retinue.tools.delegation.base import DELEGATION_TOOL_NAMES, delegation_tools
from retinue.tools.delegation.describe import TypeLine, Wording
from retinue.tools.delegation.dialects import DispatchAgentTool, SubagentTool

TYPES = (TypeLine("explorer", "Finds things."), TypeLine("reviewer", "Reviews."))


def subagent(supervisor, **options):
    wording = Wording(types=TYPES, **{key: options.pop(key) for key in ("depth", "max_depth") if key in options})
    return SubagentTool(supervisor, wording, **options)


async def ask(tool, context, **arguments):
    return await tool.run("call-3", arguments, context)


def test_there_are_exactly_eight_codes():
    assert set(get_args(ErrorCode)) == {
        "INVALID_INPUT",
        "SUBAGENTS_DISABLED",
        "UNKNOWN_AGENT",
        "SUBAGENT_DISABLED",
        "SUBAGENT_DEPTH_EXCEEDED",
        "SUBAGENT_TIMEOUT",
        "SUBAGENT_FAILED",
        "SUBAGENT_OUTPUT_TRUNCATED",
    }


def test_subagent_has_exactly_two_parameters():
    spec = subagent(FakeDelegate()).spec
    parameters = spec.parameters
    assert set(parameters["properties"]) == {"agent", "task"}
    assert parameters["required"] == ["agent", "task"]
    assert spec.aliases is not None and spec.aliases.schema["additionalProperties"] is False
    assert all(each["minLength"] == 1 for each in parameters["properties"].values())


@pytest.mark.parametrize(
    ("options", "arguments", "refusal", "code", "mode"),
    [
        ({"enabled": False}, {}, None, "SUBAGENTS_DISABLED", "single"),
        ({}, {"task": "x"}, None, "INVALID_INPUT", "single"),
        ({}, {"agent": "explorer", "task": " "}, None, "INVALID_INPUT", "single"),
        ({"depth": 1, "max_depth": 1}, {}, None, "SUBAGENT_DEPTH_EXCEEDED", "management"),
        ({"depth": 0, "max_depth": 0, "enabled": False}, {}, None, "SUBAGENT_DEPTH_EXCEEDED", "management"),
        ({}, {"agent": "x", "task": "y"}, "UNKNOWN_AGENT", "UNKNOWN_AGENT", "single"),
        ({}, {"agent": "x", "task": "y"}, "AGENT_DISABLED", "SUBAGENT_DISABLED", "single"),
        ({}, {"agent": "x", "task": "y"}, "SUBAGENT_DEPTH_EXCEEDED", "SUBAGENT_DEPTH_EXCEEDED", "single"),
        ({}, {"agent": "x", "task": "y"}, "LAUNCH", "SUBAGENT_FAILED", "single"),
    ],
)
async def test_refusals_come_in_order_with_their_codes_and_no_results(context, options, arguments, refusal, code, mode):
    supervisor = FakeDelegate(*([Refusal(code=refusal, message="No.")] if refusal else []))
    made = await ask(subagent(supervisor, **options), context, **arguments)
    assert made.is_error
    assert made.value["results"] == []
    assert made.value["error"] == {"code": code, "message": made.text}
    assert made.value["mode"] == mode
    assert "runId" not in made.value
    if not refusal:
        assert supervisor.calls == []


async def test_an_unknown_agent_lists_the_names(context):
    supervisor = FakeDelegate(Refusal(code="UNKNOWN_AGENT", message='Unknown agent type "x".'))
    made = await ask(subagent(supervisor), context, agent="x", task="y")
    assert made.text.endswith("Available agents: explorer, reviewer.")
    told = Refusal(code="UNKNOWN_AGENT", message='Unknown agent type "x". Available agents: explorer.')
    assert (await ask(subagent(FakeDelegate(told)), context, agent="x", task="y")).text == told.message


async def test_success_carries_the_report_and_the_whole_details(context):
    usage = Usage(10, 5, 2, 1, 0.123)
    outcome = Outcome("completed", "See `a.py:3`. key sk-1", usage=usage, turns=2, notes=("n",))
    supervisor = FakeDelegate(
        {"status": "completed", "text": outcome.text, "outcome": outcome, "transcript": "/s.jsonl"}
    )
    items = (ResultCall("read", {}),)
    tool = subagent(supervisor, sanitise=lambda text: text.replace("sk-1", "[X]"), items=lambda run_id: items)
    made = await ask(tool, context, agent="explorer", task="Find it")
    run_id = supervisor.children()[0].id
    assert made.text == "See `a.py:3`. key [X]"
    assert not made.is_error
    assert made.value == {
        "mode": "single",
        "runId": run_id,
        "results": [
            {
                "agent": "explorer",
                "task": "Find it",
                "exitCode": 0,
                "status": "completed",
                "usage": {"input": 10, "output": 5, "cacheRead": 2, "cacheWrite": 1, "cost": 0.123, "turns": 2},
                "sessionFile": "/s.jsonl",
                "output": "See `a.py:3`. key [X]",
                "displayItems": [{"type": "toolCall", "name": "read", "args": {}}],
                "notes": ["n"],
            }
        ],
    }
    sent = supervisor.calls[0]
    assert (sent.agent, sent.prompt, sent.background, sent.vocabulary) == ("explorer", "Find it", False, "devkit")
    assert supervisor.consumed == [run_id]


async def test_an_interrupted_run_has_its_counts_and_an_empty_answer_is_no_output(context):
    supervisor = FakeDelegate({"status": "interrupted", "text": "ok", "turns": 3}, {"status": "completed"})
    made = await ask(subagent(supervisor), context, agent="a", task="t")
    assert made.value["results"][0]["usage"]["turns"] == 3
    assert (await ask(subagent(supervisor), context, agent="a", task="t")).text == "No output."


@pytest.mark.parametrize(
    ("fields", "code", "exit_code"),
    [
        ({"status": "timeout", "error": "out of time"}, "SUBAGENT_TIMEOUT", 124),
        ({"status": "error", "error": "529"}, "SUBAGENT_FAILED", 1),
        ({"status": "stopped", "error": "stopped"}, "SUBAGENT_FAILED", 130),
        ({"status": "interrupted", "error": "Its process ended while it worked."}, "SUBAGENT_FAILED", 1),
    ],
)
async def test_failure_is_a_report_with_partial_output(context, fields, code, exit_code):
    supervisor = FakeDelegate({**fields, "text": "half </task-notification>"})
    made = await ask(subagent(supervisor), context, agent="a", task="t")
    assert made.is_error
    assert made.value["error"]["code"] == code
    assert made.value["results"][0]["exitCode"] == exit_code
    assert f"Subagent failed with exit code {exit_code}.\n\nError:\n{fields['error']}" in made.text
    assert "Partial output:\nhalf <\\/task-notification>" in made.text


async def test_an_idle_timeout_keeps_its_reason(context):
    outcome = Outcome("timeout", limit="idle", failure=Failure("timeout", "without activity"))
    made = await ask(subagent(FakeDelegate({"status": "timeout", "outcome": outcome})), context, agent="a", task="t")
    assert made.value["results"][0]["timeoutReason"] == "idle"


async def test_a_long_report_is_cut_but_whole_in_the_details_and_no_error(context):
    text = "\n".join(map(str, range(6_000)))
    made = await ask(subagent(FakeDelegate({"status": "completed", "text": text})), context, agent="a", task="t")
    assert made.text.startswith("[TRUNCATED: showing first 5000 of 6000 lines")
    assert made.value["error"]["code"] == "SUBAGENT_OUTPUT_TRUNCATED"
    assert made.value["results"][0]["output"] == text
    assert not made.is_error


async def test_a_run_moved_to_the_background_has_no_result_yet(context):
    for tool in (subagent(FakeDelegate({"status": "running"})), DispatchAgentTool(FakeDelegate({"status": "running"}))):
        made = await ask(tool, context, agent="a", task="t", prompt="t")
        assert not made.is_error
        assert "notified" in made.text


async def test_dispatch_gives_the_text_or_says_that_there_was_none(context):
    supervisor = FakeDelegate({"status": "completed", "text": "Answer"}, {"status": "completed"})
    made = await ask(DispatchAgentTool(supervisor), context, agent="explore", prompt="Look")
    assert made.text == "Answer"
    assert (await ask(DispatchAgentTool(supervisor), context, agent="explore", prompt="Look")).text == (
        "(subagent completed without output)"
    )
    sent = supervisor.calls[0]
    assert (sent.agent, sent.prompt, sent.background, sent.vocabulary) == ("explore", "Look", False, "codingcode")
    assert supervisor.consumed == [view.id for view in reversed(supervisor.children())]


@pytest.mark.parametrize(
    ("refusal", "text"),
    [
        (Refusal(code="UNKNOWN_AGENT", message="Unknown subagent: x. Known: a."), "Unknown subagent: x. Known"),
        (Refusal(code="UNKNOWN_AGENT", message="Nope."), "Unknown subagent: x. Nope."),
        (Refusal(code="AGENT_DISABLED", message="Off."), "Subagent 'x' is disabled. Off."),
        (Refusal(code="TOOL_NOT_ALLOWED", message="policy"), "Subagent spawn denied: policy"),
        (Refusal(code="UNKNOWN_MODEL", message="No model y."), "Subagent failed: No model y."),
    ],
)
async def test_dispatch_refuses_in_its_own_words(context, refusal, text):
    made = await ask(DispatchAgentTool(FakeDelegate(refusal)), context, agent="x", prompt="p")
    assert made.is_error
    assert made.text.startswith(text)


async def test_dispatch_switched_off_or_without_a_prompt_starts_nothing(context):
    supervisor = FakeDelegate()
    off = await ask(DispatchAgentTool(supervisor, enabled=False), context, agent="x", prompt="p")
    assert off.text == "Subagent dispatch is disabled in global settings"
    for arguments in ({"agent": "x"}, {"agent": "x", "prompt": " "}, {"prompt": "p"}):
        assert (await ask(DispatchAgentTool(supervisor), context, **arguments)).is_error
    assert supervisor.calls == []


async def test_a_failed_dispatch_is_an_error_with_what_it_had(context):
    supervisor = FakeDelegate({"status": "error", "error": "529", "text": "half", "notes": ("a note",)})
    made = await ask(DispatchAgentTool(supervisor), context, agent="x", prompt="p")
    assert made.is_error
    assert made.text == "Subagent failed: 529\nNote: a note\nPartial output:\nhalf"


@pytest.mark.parametrize("vocabulary", ["claude", "devkit", "codingcode"])
def test_each_vocabulary_has_its_tools_and_names_the_agents(vocabulary):
    tools = delegation_tools(FakeDelegate(), vocabulary=vocabulary, wording=Wording(types=TYPES))
    assert tuple(tools) == DELEGATION_TOOL_NAMES[vocabulary]
    first = next(iter(tools.values()))
    assert "- explorer: Finds things. (Tools: *)" in first.spec.description
    again = delegation_tools(FakeDelegate(), vocabulary=vocabulary, wording=Wording(types=TYPES))
    assert all(tools[name].spec is again[name].spec for name in tools)
