"""Exit codes, JSON and plain text of a handler, event by event, and what they amount to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.capabilities.hooks.answer import MAX_ANSWER_CHARACTERS, HandlerResult, merge, read_opinion
from retinue.capabilities.hooks.sources import GUARDING_EVENTS, Handler, from_spec
from retinue.core.permission import HookEvent, HookResult
from retinue.core.spec import HookSpec

EVERY: tuple[HookEvent, ...] = (
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PermissionRequest",
    "PermissionDenied",
    "UserPromptSubmit",
    "SessionStart",
    "SessionEnd",
    "Stop",
    "StopFailure",
    "SubagentSpawn",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "PostCompact",
    "Notification",
    "WorktreeCreate",
    "WorktreeRemove",
    "ModelRequest",
    "ModelResponse",
    "TurnStart",
    "TurnEnd",
)


def handler(event: str, **raw: Any) -> Handler:
    raw = raw or {"command": "./guard"}
    made, problem = from_spec(HookSpec(event, raw), source="here", dialect="claude")
    assert problem is None
    return made[0]


def heard(event: str, code: int = 0, out: Any = "", err: str = "", **raw: Any) -> HookResult:
    return read_opinion(
        handler(event, **raw), HandlerResult(code, out if isinstance(out, str) else json.dumps(out), err)
    )


def specific(event: str, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


DENIED = {"verdict": "deny"}

# (event, exit code, standard output, standard error) -> what must be in the result
TABLE: list[tuple[str, int, Any, str, dict[str, Any]]] = [
    # exit 0, nothing said
    *((event, 0, "", "", {"verdict": None, "context": ""}) for event in EVERY),
    # exit 2 blocks where something can be blocked
    ("PreToolUse", 2, "", "not here", {"verdict": "deny", "reason": "not here"}),
    ("PreToolUse", 2, "", "", {"verdict": "deny", "reason": "no reason was given"}),
    ("PreToolUse", 2, specific("PreToolUse", permissionDecision="allow"), "no", {"verdict": "deny", "reason": "no"}),
    ("PreToolUse", 2, {"reason": "why"}, "", {"verdict": "deny", "reason": "why"}),
    ("PermissionRequest", 2, "", "no", {"verdict": "deny", "reason": "no"}),
    ("UserPromptSubmit", 2, "", "no", {"verdict": "deny", "reason": "no"}),
    ("SubagentSpawn", 2, "", "no", {"verdict": "deny", "reason": "no"}),
    ("PostToolUse", 2, "", "look again", {"verdict": "deny", "reason": "look again"}),
    ("PostToolUseFailure", 2, "", "look", {"verdict": None, "context": "look"}),
    ("Stop", 2, "", "not yet", {"verdict": "deny", "context": "not yet"}),
    ("SubagentStop", 2, "", "not yet", {"verdict": "deny", "context": "not yet"}),
    ("PreCompact", 2, "", "keep", {"verdict": "deny", "reason": "keep"}),
    ("WorktreeCreate", 2, "", "no", {"verdict": "deny"}),
    ("SessionStart", 2, "", "oh", {"verdict": None, "context": ""}),
    ("Notification", 2, "", "oh", {"verdict": None}),
    ("SessionEnd", 2, "", "oh", {"verdict": None}),
    # other exit codes are failures, which guards answer with no
    *((event, 1, "", "boom", {"verdict": "deny"}) for event in sorted(GUARDING_EVENTS)),
    ("WorktreeCreate", 1, "", "boom", {"verdict": "deny"}),
    *(
        (event, 1, "", "boom", {"verdict": None})
        for event in EVERY
        if event not in {*GUARDING_EVENTS, "WorktreeCreate"}
    ),
    ("PreToolUse", 127, "", "not found", {"verdict": "deny"}),
    # …unless they come with valid JSON
    ("PreToolUse", 1, specific("PreToolUse", permissionDecision="ask"), "", {"verdict": "ask"}),
    # plain text
    ("PostToolUse", 0, "all fine", "", {"verdict": None, "context": "", "output": "all fine"}),
    # what a guard says in no form that counts is no yes
    ("PreToolUse", 0, "all fine", "", {"verdict": "deny", "context": ""}),
    ("PreToolUse", 0, "deny: not allowed", "", {"verdict": "deny"}),
    ("PreToolUse", 0, '"deny"', "", {"verdict": "deny"}),
    ("PreToolUse", 0, {"permissionDecision": "deny"}, "", {"verdict": "deny"}),
    ("PreToolUse", 0, {"permissionDecision": "allow"}, "", {"verdict": "deny"}),
    ("PreToolUse", 0, {"decison": "deny"}, "", {"verdict": "deny"}),
    ("PreToolUse", 0, {"Decision": "deny"}, "", {"verdict": "deny"}),
    ("PreToolUse", 0, {"continue": "false"}, "", {"verdict": "deny"}),
    ("PreToolUse", 0, {"hookSpecificOutput": {"permissionDecison": "deny"}}, "", {"verdict": "deny"}),
    (
        "PreToolUse",
        0,
        {"decision": "block", **specific("PreToolUse", permissionDecision="allow")},
        "",
        {"verdict": "deny"},
    ),
    ("PermissionRequest", 0, "no", "", {"verdict": "deny"}),
    ("SubagentSpawn", 0, "no", "", {"verdict": "deny"}),
    ("UserPromptSubmit", 0, {"deny": True}, "", {"verdict": "deny"}),
    ("UserPromptSubmit", 0, "background", "", {"verdict": None, "context": "background"}),
    ("PreToolUse", 0, {}, "", {"verdict": None}),
    ("PreToolUse", 0, {"continue": True, "suppressOutput": True, "systemMessage": "hm"}, "", {"verdict": None}),
    ("UserPromptSubmit", 0, "it is Monday", "", {"verdict": None, "context": "it is Monday"}),
    ("SessionStart", 0, "it is Monday", "", {"context": "it is Monday"}),
    ("SubagentStart", 0, "it is Monday", "", {"context": ""}),
    ("WorktreeCreate", 0, "/tmp/tree\n", "", {"output": "/tmp/tree"}),
    ("PreToolUse", 0, "[1]", "", {"verdict": "deny"}),
    # broken JSON
    ("PreToolUse", 0, "{", "", {"verdict": "deny"}),
    ("PreToolUse", 0, '{"a": nonsense}', "", {"verdict": "deny"}),
    ("PostToolUse", 0, "{", "", {"verdict": None}),
    # PreToolUse
    ("PreToolUse", 0, specific("PreToolUse", permissionDecision="allow"), "", {"verdict": "allow"}),
    (
        "PreToolUse",
        0,
        specific("PreToolUse", permissionDecision="deny", permissionDecisionReason="why"),
        "",
        {"verdict": "deny", "reason": "why"},
    ),
    ("PreToolUse", 0, specific("PreToolUse", permissionDecision="defer"), "", {"verdict": "ask"}),
    (
        "PreToolUse",
        0,
        specific("PreToolUse", updatedInput={"command": "ls"}, additionalContext="note"),
        "",
        {"verdict": None, "updated_input": {"command": "ls"}, "context": "note"},
    ),
    ("PreToolUse", 0, specific("PreToolUse", updatedInput="ls"), "", {"verdict": "deny"}),
    ("PreToolUse", 0, specific("PreToolUse", permissionDecision="maybe"), "", {"verdict": "deny"}),
    ("PreToolUse", 0, specific("PreToolUse", permissionDecision=1), "", {"verdict": "deny"}),
    ("PreToolUse", 0, specific("PostToolUse", permissionDecision="allow"), "", {"verdict": "deny"}),
    ("PreToolUse", 0, {"hookSpecificOutput": "allow"}, "", {"verdict": "deny"}),
    ("PreToolUse", 0, {"decision": "approve", "reason": "ok"}, "", {"verdict": "allow", "reason": "ok"}),
    ("PreToolUse", 0, {"decision": "block", "reason": "no"}, "", {"verdict": "deny", "reason": "no"}),
    ("PreToolUse", 0, {"continue": False, "stopReason": "enough"}, "", {"stop": "enough"}),
    ("PreToolUse", 0, {"systemMessage": "hello"}, "", {"messages": ("hello",), "verdict": None}),
    ("PreToolUse", 0, {}, "", {"verdict": None}),
    # PermissionRequest
    ("PermissionRequest", 0, specific("PermissionRequest", decision={"behavior": "allow"}), "", {"verdict": "allow"}),
    (
        "PermissionRequest",
        0,
        specific("PermissionRequest", decision={"behavior": "allow", "updatedInput": {"command": "ls"}}),
        "",
        {"verdict": "allow", "updated_input": {"command": "ls"}},
    ),
    (
        "PermissionRequest",
        0,
        specific("PermissionRequest", decision={"behavior": "deny", "message": "no", "interrupt": True}),
        "",
        {"verdict": "deny", "reason": "no", "stop": "no"},
    ),
    ("PermissionRequest", 0, specific("PermissionRequest", decision={"behavior": "yes"}), "", {"verdict": "deny"}),
    # PostToolUse
    (
        "PostToolUse",
        0,
        {"decision": "block", "reason": "wrong", **specific("PostToolUse", additionalContext="see x")},
        "",
        {"verdict": "deny", "reason": "wrong", "context": "see x"},
    ),
    ("PostToolUse", 0, specific("PostToolUse", updatedToolOutput="other"), "", {"updated_output": "other"}),
    ("PostToolUse", 0, specific("PostToolUse", updatedToolOutput={"a": 1}), "", {"updated_output": '{"a": 1}'}),
    ("PostToolUse", 0, specific("PostToolUse", updatedMCPToolOutput="other"), "", {"updated_output": "other"}),
    # ends
    ("Stop", 0, {"decision": "block", "reason": "test first"}, "", {"verdict": "deny", "context": "test first"}),
    ("SubagentStop", 0, {"decision": "block", "reason": "go on"}, "", {"verdict": "deny", "context": "go on"}),
    ("SubagentStop", 0, specific("Stop", additionalContext="more"), "", {"verdict": "deny", "context": "more"}),
    ("SubagentStop", 0, {"decision": "approve"}, "", {"verdict": "allow", "context": ""}),
    ("SubagentStop", 0, {"decision": "perhaps"}, "", {"verdict": None}),
    ("SubagentStop", 0, {"continue": False}, "", {"verdict": None}),
    # the rest
    ("SubagentStart", 0, specific("SubagentStart", additionalContext="c"), "", {"verdict": None, "context": "c"}),
    ("SessionStart", 0, specific("SessionStart", additionalContext="c"), "", {"context": "c"}),
    (
        "UserPromptSubmit",
        0,
        {"decision": "block", "reason": "secret", **specific("UserPromptSubmit", additionalContext="c")},
        "",
        {"verdict": "deny", "reason": "secret", "context": "c"},
    ),
    ("PreCompact", 0, {"decision": "block", "reason": "no"}, "", {"verdict": "deny"}),
]


@pytest.mark.parametrize(("event", "code", "out", "err", "wanted"), TABLE)
def test_what_a_handler_said_means(event: str, code: int, out: Any, err: str, wanted: dict[str, Any]) -> None:
    result = heard(event, code, out, err)
    assert {name: getattr(result, name) for name in wanted} == wanted


@pytest.mark.parametrize("event", EVERY)
def test_a_failure_names_the_hook_and_why_and_is_a_no_only_where_it_guards(event: HookEvent) -> None:
    result = read_opinion(handler(event), HandlerResult(failure="did not answer within 5 seconds"))
    assert result.failures == (f"{event} hook './guard' of here did not answer within 5 seconds",)
    if event in GUARDING_EVENTS or event == "WorktreeCreate":
        assert result.verdict == "deny"
        assert "./guard" in result.reason
        assert "did not answer within 5 seconds" in result.reason
    else:
        assert result.verdict is None


@pytest.mark.parametrize(
    ("point", "out", "wanted"),
    [
        ("tool.approval.pre", {"decision": "deny", "reason": "no"}, {"verdict": "deny", "reason": "no"}),
        ("tool.approval.pre", {"decision": "ask"}, {"verdict": "ask"}),
        (
            "tool.approval.pre",
            {"decision": "allow", "modifiedInput": {"command": "ls"}},
            {"verdict": "allow", "updated_input": {"command": "ls"}},
        ),
        ("tool.approval.pre", "", {"verdict": None}),
        ("tool.approval.pre", "null and void", {"verdict": "deny"}),
        ("agent.turn.stop", {"decision": "continue", "injection": "more"}, {"verdict": "deny", "context": "more"}),
        ("agent.turn.stop", {"decision": "continue"}, {"verdict": "deny", "context": "(continue)"}),
        ("agent.turn.stop", {"decision": "allow"}, {"verdict": "allow"}),
        ("agent.subagent.spawn.before", {"decision": "deny", "reason": "no"}, {"verdict": "deny", "reason": "no"}),
        ("agent.subagent.spawn.before", {"decision": "continue"}, {"verdict": None}),
    ],
)
def test_decisions_of_codingcode(point: str, out: Any, wanted: dict[str, Any]) -> None:
    result = heard(point, 0, out, command="./guard", type="decision")
    assert {name: getattr(result, name) for name in wanted} == wanted


def test_modified_output_of_codingcode() -> None:
    result = heard("tool.execute.after", 0, {"modifiedOutput": "short"}, command="./x", type="decision")
    assert result.updated_output == "short"


def test_observers_are_not_listened_to_and_their_failures_block_nothing() -> None:
    said = {"decision": "deny"}
    assert heard("tool.execute.before", 0, said, command="./x", type="observer").verdict is None
    failed = heard("tool.execute.before", 1, "", "boom", command="./x", type="observer")
    assert failed.verdict is None
    assert "boom" in failed.failures[0]


def test_deny_goes_before_ask_and_ask_before_allow() -> None:
    allow, ask, deny = (HookResult(verdict=verdict, reason=verdict) for verdict in ("allow", "ask", "deny"))
    assert merge([allow, ask, deny], str).verdict == "deny"
    assert merge([allow, ask], str).verdict == "ask"
    assert merge([HookResult(), allow], str).reason == "allow"
    both = merge([HookResult(verdict="deny", reason="one"), HookResult(verdict="deny", reason="two"), allow], str)
    assert both.reason == "one\ntwo"


def test_of_several_changed_inputs_the_first_counts_and_people_are_told() -> None:
    changes = [HookResult(updated_input={"a": number}) for number in (1, 2)]
    result = merge(changes, str)
    assert result.updated_input == {"a": 1}
    assert len(result.messages) == 1
    assert merge([changes[0], changes[0]], str).messages == ()


def test_long_texts_are_cut_and_kept() -> None:
    kept: list[str] = []

    def spill(text: str) -> str:
        kept.append(text)
        return "/there"

    long = "x" * (MAX_ANSWER_CHARACTERS + 5)
    result = merge([HookResult(context=long, reason=long, verdict="deny")], spill)
    assert len(result.context) == len(result.reason) == MAX_ANSWER_CHARACTERS
    assert "in /there]" in result.context
    assert kept == [long, long]
    exact = "x" * MAX_ANSWER_CHARACTERS
    assert merge([HookResult(context=exact)], spill).context == exact


_WORDS = st.text(max_size=8) | st.sampled_from(["allow", "approve", "deny", "ask"])
_KEYS = st.text(max_size=5) | st.sampled_from(
    ["hookSpecificOutput", "permissionDecision", "decision", "behavior", "updatedInput", "continue", "reason"]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.sampled_from(EVERY), st.sampled_from([0, 1, 2, 126, 127]), _JSON | st.text(), st.text(max_size=20))
def test_whatever_a_handler_says_nothing_is_raised_and_only_a_yes_is_a_yes(
    event: HookEvent, code: int, out: Any, err: str
) -> None:
    text = out if isinstance(out, str) else json.dumps(out)
    result = read_opinion(handler(event), HandlerResult(code, text, err))
    merge([result], str)
    if result.verdict == "allow":
        assert code != 2
        assert '"allow"' in text or '"approve"' in text
    if event in GUARDING_EVENTS and code != 0:
        assert result.verdict is not None or text.strip().startswith("{")


@pytest.mark.parametrize(
    ("event", "on_failure", "verdict"),
    [
        ("PreToolUse", None, "deny"),
        ("PreToolUse", "continue", None),
        ("PreToolUse", "block", "deny"),
        ("PostToolUse", None, None),
        ("PostToolUse", "block", "deny"),
        ("SessionStart", "block", None),
    ],
)
def test_a_handler_may_say_itself_what_it_means_when_it_breaks(event, on_failure, verdict):
    spec = HookSpec(event, {"command": "guard", **({"onFailure": on_failure} if on_failure else {})})
    (made,), problem = from_spec(spec, source="f", dialect="claude")
    assert problem is None
    result = read_opinion(made, HandlerResult(failure="timed out"))
    assert result.verdict == verdict
    assert len(result.failures) == 1


def test_an_on_failure_that_is_no_word_of_ours_is_reported_and_the_guard_still_guards():
    (made,), problem = from_spec(
        HookSpec("PreToolUse", {"command": "g", "onFailure": "ignore"}), source="f", dialect="claude"
    )
    assert "onFailure is continue or block, not 'ignore'" in problem
    assert read_opinion(made, HandlerResult(failure="timed out")).verdict == "deny"
