"""Frames of the event stream as updates of an editor, without an editor."""

from __future__ import annotations

from retinue.app.stream import FeedFrame, text_frame
from retinue.core.encode import event_to_json
from retinue.core.events import AssistantEnded, Event, Retrying, RunCreated, TurnStarted
from retinue.core.messages import AssistantMessage, Text
from retinue.core.outcome import Failure
from retinue.core.run_state import RunPlace
from retinue.frontends.acp.tree import TreeTranslator
from retinue.frontends.acp.updates import ClientFeatures
from retinue.log.follow import TextPiece

CREATED = RunCreated("a", "do it", {}, "", "offline/m", "/p")
DROPPED = Retrying(1, 0.5, Failure("dropped", "The connection was lost."))
WHOLE = AssistantEnded(1, AssistantMessage((Text("The answer."),)))


def test_an_answer_that_is_asked_for_again_comes_once_after_a_blank_line() -> None:
    story = TreeTranslator("r", ClientFeatures(), lambda model: None)
    place = RunPlace("r")
    told = []
    for seq, body in enumerate((CREATED, TurnStarted(1), "half", DROPPED, "The an", WHOLE), 1):
        if isinstance(body, str):
            frame = text_frame(TextPiece(place, seq, "text", body), "text.delta")
        else:
            line = event_to_json(Event("r", None, "r", seq, 0.0, body))
            frame = FeedFrame(seq, body.type, "r", None, line)
        told += [update for _, update in story.take(frame)]
    texts = [update["content"]["text"] for update in told if update["sessionUpdate"] == "agent_message_chunk"]
    assert texts == ["half", "\n\nThe an", "swer."]
