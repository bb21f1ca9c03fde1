"""The result object of devkit-pi's kind: codes, reports, truncation (cases AA02–AA08)."""

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from retinue.core.encode import dump
from retinue.core.messages import AssistantMessage, Text, Thinking, ToolCall
from retinue.core.outcome import Failure, Outcome
from retinue.core.usage import Limits, Usage
from retinue.loop.result import (
    MAX_OUTPUT_BYTES,
    ErrorCode,
    ResultCall,
    ResultText,
    display_items,
    refused,
    result_document,
    truncate_output,
)
from retinue.testing import Fail, FakeClock, Hang, ScriptedModel, Turn, drive


def made(outcome, **options):
    document = result_document(outcome, agent="explorer", task="find it", run_id="12345678", **options)
    result = json.loads(dump(document))
    return result["content"][0]["text"], result["details"]


def test_there_are_exactly_eight_error_codes():
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


def test_a_refused_call_has_no_results_and_the_same_words_twice():
    result = to_builtins(refused("UNKNOWN_AGENT", "There is no agent 'x'. Agents: a, b."))
    assert result["details"]["results"] == [] and "runId" not in result["details"]
    assert result["details"]["error"] == {"code": "UNKNOWN_AGENT", "message": result["content"][0]["text"]}
    assert refused("SUBAGENT_DEPTH_EXCEEDED", "x", mode="management").details.mode == "management"


def test_success_is_the_answer_with_usage_and_exit_code():
    outcome = Outcome("completed", "It is in a.py:3.", usage=Usage(10, 5, 2, 1, 0.123), turns=1)
    text, details = made(outcome, session_file="/t/s.jsonl")
    assert text == "It is in a.py:3." and "error" not in details
    assert (details["mode"], details["runId"]) == ("single", "12345678")
    [result] = details["results"]
    assert result == {
        "agent": "explorer",
        "task": "find it",
        "exitCode": 0,
        "status": "completed",
        "usage": {"input": 10, "output": 5, "cacheRead": 2, "cacheWrite": 1, "cost": 0.123, "turns": 1},
        "sessionFile": "/t/s.jsonl",
        "output": "It is in a.py:3.",
        "displayItems": [],
    }


def test_usage_that_is_missing_is_zero_and_a_cost_that_is_unknown_is_null():
    _, details = made(Outcome("completed"))
    assert details["results"][0]["usage"] == {
        "input": 0,
        "output": 0,
        "cacheRead": 0,
        "cacheWrite": 0,
        "cost": 0.0,
        "turns": 0,
    }
    _, details = made(Outcome("completed", usage=Usage(cost_usd=None)))
    assert details["results"][0]["usage"]["cost"] is None


def test_an_empty_answer_says_so():
    text, details = made(Outcome("completed"))
    assert text == "No output." and details["results"][0]["output"] == ""


async def test_a_hard_timeout_is_its_own_code_with_exit_124():
    clock = FakeClock()
    import asyncio

    task = asyncio.create_task(drive(ScriptedModel(Turn(Hang())), clock=clock, limits=Limits(seconds=0.075)))
    await clock.advance(0.08)
    text, details = made((await task).outcome)
    assert details["error"]["code"] == "SUBAGENT_TIMEOUT"
    assert "exceeded maximum runtime after 75ms" in text and details["error"]["message"] == text
    assert (details["results"][0]["exitCode"], details["results"][0]["timeoutReason"]) == (124, "runtime")


def test_an_idle_timeout_names_its_reason():
    outcome = Outcome("timeout", failure=Failure("limit", "75ms without activity."), limit="idle")
    _, details = made(outcome)
    assert details["results"][0]["timeoutReason"] == "idle" and details["error"]["code"] == "SUBAGENT_TIMEOUT"


async def test_a_failure_keeps_partial_output_under_its_own_heading():
    run = await drive(ScriptedModel(Turn("Let me check…", Fail("overloaded", "the provider is busy"))))
    text, details = made(run.outcome, session_file="/t/s.jsonl")
    assert text.split("\n\n") == [
        "Subagent failed with exit code 1.",
        "Error:\nthe provider is busy",
        "Partial output:\nLet me check…",
        "Session file:\n/t/s.jsonl",
    ]
    assert details["error"] == {"code": "SUBAGENT_FAILED", "message": text}
    assert details["results"][0]["error"] == "the provider is busy"
    assert details["results"][0]["output"] == "Let me check…"


async def test_a_run_that_is_only_an_error_has_no_partial_section():
    run = await drive(ScriptedModel(Turn(Fail("server", "down"))))
    text, _ = made(run.outcome)
    assert "Partial output" not in text
    text, _ = made(Outcome("error", "same words", True, failure=Failure("server", "same words")))
    assert "Partial output" not in text


@pytest.mark.parametrize(
    ("ended", "exit_code", "code"),
    [
        ("aborted", 1, "SUBAGENT_FAILED"),
        ("stopped", 130, "SUBAGENT_FAILED"),
        ("over-budget", 1, "SUBAGENT_FAILED"),
        ("error", 1, "SUBAGENT_FAILED"),
        ("timeout", 124, "SUBAGENT_TIMEOUT"),
    ],
)
def test_every_ending_has_its_exit_code_and_is_never_a_success(ended, exit_code, code):
    text, details = made(Outcome(ended, "some text", True))
    assert details["results"][0]["exitCode"] == exit_code
    assert (details["results"][0]["status"], details["error"]["code"]) == (ended, code)
    assert text.startswith(f"Subagent failed with exit code {exit_code}.")


def test_a_long_answer_is_cut_for_the_parent_and_whole_in_the_result():
    whole = "\n".join(f"line {n}" for n in range(6_000))
    text, details = made(Outcome("completed", whole))
    assert text.startswith("[TRUNCATED: showing first 5000 of 6000 lines, 47.7KB of 57.5KB]\nline 0\n")
    assert details["error"] == {
        "code": "SUBAGENT_OUTPUT_TRUNCATED",
        "message": "Output truncated: showing 5000 of 6000 lines",
    }
    assert details["results"][0]["output"] == whole and details["results"][0]["exitCode"] == 0


def test_a_long_failure_report_is_not_cut():
    whole = "x\n" * 6_000
    text, details = made(Outcome("error", whole, True, failure=Failure("server", "down")))
    assert whole.strip() in text and details["error"]["code"] == "SUBAGENT_FAILED"


@given(st.text(max_size=50), st.integers(0, 9_000))
def test_truncation_keeps_whole_characters_within_its_bounds(piece, times):
    text = (piece + "é\n") * times
    cut = truncate_output(text)
    if cut is None:
        assert text.count("\n") < 5_000 and len(text.encode()) <= MAX_OUTPUT_BYTES
    else:
        body = cut.text.split("\n", 1)[1]
        assert text.startswith(body)
        assert cut.shown == body.count("\n") + 1 <= 5_000 and cut.total == text.count("\n") + 1
        assert len(body.encode()) <= MAX_OUTPUT_BYTES


def test_one_endless_line_is_cut_too():
    cut = truncate_output("ä" * 300_000)
    assert (cut.shown, cut.total) == (1, 1) and "200.0KB of 585.9KB" in cut.text


def test_everything_a_parent_sees_is_sanitised():
    def sanitise(text):
        return text.replace("hunter2", "[REDACTED]")

    items = display_items(
        [
            AssistantMessage(
                (Thinking("hunter2"), Text("pw hunter2"), ToolCall("c", "bash", {"cmd": ["echo hunter2"]}), Text(""))
            )
        ]
    )
    outcome = Outcome("error", "partial hunter2", True, failure=Failure("server", "no hunter2"), notes=("n hunter2",))
    report = json.dumps(made(outcome, display_items=items, sanitise=sanitise))
    assert "hunter2" not in report and report.count("[REDACTED]") >= 6
    assert [type(item) for item in items] == [ResultText, ResultCall]


def test_structured_values_are_kept_even_when_they_are_false():
    for value in (0, False, "", []):
        _, details = made(Outcome("completed", json.dumps(value), value=value))
        assert details["results"][0]["value"] == value
