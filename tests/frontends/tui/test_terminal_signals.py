"""What the terminal hears beside the screen: its title, its progress bar, a bell, a notification."""

from __future__ import annotations

from retinue.frontends.tui.terminal import LONG_SECONDS, TerminalSignals


def test_the_title_says_the_task_and_how_it_stands_and_is_written_once() -> None:
    signals = TerminalSignals({"TERM": "xterm-256color"})
    assert signals.update("idle", "", 0.0, seen=True, notify=True) == "\x1b]2;retinue\x07"
    begun = signals.update("working", "Fix the\nparser\x1b]2;evil\x07", 1.0, seen=True, notify=True)
    assert begun.startswith("\x1b]2;Fix the parser") and begun.endswith(" · working · retinue\x07")
    assert begun.count("\x1b") == 1 and begun.count("\x07") == 1, "words of a task write no sequence of their own"
    assert signals.update("working", "Fix the\nparser\x1b]2;evil\x07", 2.0, seen=True, notify=True) == ""


def test_the_bell_rings_for_a_question_and_after_long_work_only() -> None:
    signals = TerminalSignals({})
    signals.update("working", "x", 0.0, seen=True, notify=True)
    assert not signals.update("idle", "x", 1.0, seen=True, notify=True).endswith("\x07\x07")
    short = TerminalSignals({})
    short.update("working", "x", 0.0, seen=True, notify=True)
    assert short.update("waiting", "x", 1.0, seen=False, notify=True) == "\x1b]2;x · waits for you · retinue\x07\x07"
    assert short.update("working", "x", 2.0, seen=False, notify=True) == "\x1b]2;x · working · retinue\x07"
    assert short.update("idle", "x", LONG_SECONDS, seen=True, notify=True).endswith("\x07\x07")


def test_nobody_is_notified_who_does_not_want_it() -> None:
    signals = TerminalSignals({"TERM_PROGRAM": "ghostty"})
    signals.update("working", "x", 0.0, seen=False, notify=False)
    ended = signals.update("idle", "x", 100.0, seen=False, notify=False)
    assert ended.startswith("\x1b]2;x · done · retinue\x07\x1b]9;4;0\x07") and not ended.endswith("\x07")


def test_each_terminal_gets_only_what_it_understands() -> None:
    def ended(environment: dict[str, str]) -> str:
        signals = TerminalSignals(environment)
        signals.update("working", "a;b", 0.0, seen=False, notify=True)
        return signals.update("idle", "a;b", 1.0, seen=False, notify=True)

    assert "\x1b]777;notify;Retinue;a,b · done · retinue\x07" in ended({"TERM_PROGRAM": "WezTerm"})
    assert "\x1b]9;4;0\x07" in ended({"TERM_PROGRAM": "WezTerm"})
    assert "\x1b]9;a,b" in ended({"TERM_PROGRAM": "iTerm.app"}) and "9;4" not in ended({"TERM_PROGRAM": "iTerm.app"})
    assert "]777" not in ended({}) and "]9;" not in ended({})
    assert TerminalSignals({}).close() == "\x1b[23;2t"


def test_a_terminal_that_shows_programs_is_told_the_state_without_words_of_the_task() -> None:
    for environment in ({"TERM_PROGRAM": "ghostty"}, {"RETINUE_PROGRAM_STATUS": "1"}):
        signals = TerminalSignals(environment)
        told = "".join(
            signals.update(standing, "the task", 0.0, seen=True, notify=False)
            for standing in ("idle", "working", "waiting", "working", "idle")
        )
        reports = [part.split("\x1b\\")[0] for part in told.split("\x1b]7501;")[1:]]
        states = ["working", "blocked", "working", "done"]
        assert reports == [f"state={state}:app=retinue" for state in states]
        assert "\x1b]7501;state=clear" in signals.close()
    silent = TerminalSignals({"TERM_PROGRAM": "ghostty", "RETINUE_PROGRAM_STATUS": "0"})
    assert "7501" not in silent.update("working", "x", 0.0, seen=True, notify=False) + silent.close()
