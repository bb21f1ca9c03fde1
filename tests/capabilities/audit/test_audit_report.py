"""A run's effects, turn by turn, from its events."""

from retinue.capabilities.audit.report import WrittenFile, effects_of
from retinue.core.events import Body, Event, InboxClosed, ToolEnded, ToolStarted, TurnStarted, Undone
from retinue.core.messages import Text, ToolCall, ToolResult
from retinue.core.permission import ToolEffect, TouchedPath


def events(*bodies: Body) -> list[Event]:
    return [Event("run", None, "run", number, float(number), body) for number, body in enumerate(bodies, 1)]


def started(call_id: str, **arguments: object) -> ToolStarted:
    return ToolStarted(ToolCall(call_id, "bash", arguments))


def ended(call_id: str, effect: ToolEffect, *, error: bool = False) -> ToolEnded:
    return ToolEnded(call_id, "bash", ToolResult(call_id, "bash", (Text("x"),), error), effect, 1)


def test_writes_have_a_status_and_calls_say_who_allowed_them():
    touched = (
        TouchedPath("a", None, "1"),
        TouchedPath("b", "1", "2"),
        TouchedPath("c", "1", None),
        TouchedPath("d", "1", "1"),
    )
    effect = ToolEffect(writes=touched, command="make", exit_code=2, hosts=("h",), allowed="mode: bypassPermissions")
    found = effects_of(events(TurnStarted(1), started("1"), ended("1", effect, error=True)), "run", "x")
    call = found.turns[0].calls[0]
    assert [each.status for each in call.writes] == ["created", "changed", "deleted", "unchanged"]
    assert (call.status, call.exit_code, call.hosts, call.allowed) == ("failed", 2, ("h",), "mode: bypassPermissions")


def test_denials_and_answers_of_people_are_told_apart():
    denied = ToolEffect("failed", denied="a rule")
    found = effects_of(
        events(
            TurnStarted(1),
            started("1"),
            InboxClosed("item", "answered", "allow", "cli", call_id="1"),
            ended("1", ToolEffect(command="ls", exit_code=0)),
            TurnStarted(2),
            started("2"),
            ended("2", denied, error=True),
        ),
        "run",
        "x",
    )
    assert found.turns[0].calls[0].approval == "allow by cli"
    assert (found.turns[1].turn, found.turns[1].calls[0].status, found.turns[1].calls[0].denied) == (
        2,
        "denied",
        "a rule",
    )


def test_a_call_without_an_end_is_unknown_and_names_what_changed_meanwhile():
    meanwhile = {"1": (WrittenFile("a.txt", "created"),)}
    told = events(TurnStarted(3), started("1", command="make"))
    call = effects_of(told, "run", "x", meanwhile=meanwhile).turns[0].calls[0]
    assert (call.status, call.command, call.writes) == ("unknown", "make", meanwhile["1"])
    assert effects_of(told, "run", "x", live=True).turns[0].calls[0].status == "running"
    cut = events(TurnStarted(3), started("1", command="make"), ended("1", ToolEffect("unknown"), error=True))
    assert effects_of(cut, "run", "x", meanwhile=meanwhile).turns[0].calls[0].writes == meanwhile["1"]


def test_undo_is_part_of_the_record():
    assert effects_of(events(Undone(restored=("a",))), "run", "x").undone == (Undone(restored=("a",)),)
