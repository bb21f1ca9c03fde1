"""What a tainted run may do unasked, and who is tainted."""

from __future__ import annotations

import pytest

from retinue.core.permission import Decision, ToolEffect, ToolUse
from retinue.core.tool_names import TOOL_EFFECTS
from retinue.guard.permissions.modes import Taint, TaintedPermissions


class Everything:
    """Permissions that say one thing."""

    def __init__(self, mode: str = "bypassPermissions", verdict: str = "allow") -> None:
        self.mode = mode
        self.verdict = verdict

    def decide(self, use: ToolUse) -> Decision:
        return Decision(self.verdict, "Because.", "mode", rule="Bash")  # type: ignore[arg-type]

    def grant(self, rule: str) -> None:
        pass


def tainted() -> Taint:
    taint = Taint()
    taint.observe(ToolEffect(hosts=("stranger.example",)))
    return taint


def decide(tool: str, *, effects: frozenset[str] | None = None, confined: bool = False, **inner: str) -> Decision:
    use = ToolUse(tool, {}, TOOL_EFFECTS.get(tool, frozenset()) if effects is None else effects, confined=confined)  # type: ignore[arg-type]
    return TaintedPermissions(Everything(**inner), tainted()).decide(use)  # type: ignore[arg-type]


@pytest.mark.parametrize("tool", ["bash", "Agent", "subagent", "dispatch_agent", "steer_subagent", "mcp__server__tool"])
def test_what_reaches_outward_is_asked_about_in_every_mode(tool: str) -> None:
    for mode in ("default", "acceptEdits", "auto", "bypassPermissions"):
        decision = decide(tool, mode=mode)
        assert (decision.verdict, decision.by, decision.risk) == ("ask", "taint", "high")
        assert "stranger.example" in decision.reason
        assert decision.rule is None
    assert decide(tool, mode="dontAsk").verdict == "deny"


def test_a_tool_of_a_program_that_talks_to_others_is_asked_about() -> None:
    assert decide("post_message", effects=frozenset({"network"})).verdict == "ask"
    assert decide("look_up", effects=frozenset({"read"})).verdict == "allow"


@pytest.mark.parametrize(
    "tool", ["read", "grep", "edit", "write", "web_search", "fetch_content", "get_search_content", "todo"]
)
def test_reading_and_edits_that_can_be_undone_are_not(tool: str) -> None:
    assert decide(tool).verdict == "allow"


def test_a_shell_that_can_change_nothing_is_not() -> None:
    assert decide("bash", confined=True).verdict == "allow"


def test_what_the_permissions_deny_or_ask_stays_as_it_is() -> None:
    for verdict in ("deny", "ask"):
        assert decide("bash", verdict=verdict).by == "mode"


def test_a_run_that_heard_no_stranger_is_not_tainted() -> None:
    taint = Taint()
    taint.observe(ToolEffect(reads=("a",), command="make"))
    assert TaintedPermissions(Everything(), taint).decide(ToolUse("bash", {}, TOOL_EFFECTS["bash"])).verdict == "allow"  # type: ignore[arg-type]


def test_taint_goes_up_and_down_and_not_sideways() -> None:
    main = Taint()
    early, other = Taint(main), Taint(main)
    Taint(early).mark("stranger.example")
    assert early.source == main.source == "stranger.example"
    assert other.source is None
    assert Taint(main).source == "stranger.example"
    assert Taint(None, "kept.example").source == "kept.example"
