"""The stories of runs, from the frames of the event stream: for protocols of other programs.

These can only add text. So the text that such a client gets for an answer is the `piece` of each step: while it is
written, and the rest when it is complete.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from retinue.app.stream import FeedFrame
from retinue.core.encode import decode, is_known_type
from retinue.core.events import Body, Event
from retinue.core.story import Step, Story
from retinue.log.follow import TextPiece


class _Place(Struct):
    root_id: str
    seq: int
    at: float


class FrameStories:
    """Takes the frames of any number of runs, those of each run in order."""

    def __init__(self) -> None:
        self._stories: dict[str, Story] = {}

    def take(self, frame: FeedFrame) -> tuple[Event, list[Step]] | None:
        """Return the event of a frame and what it changes; None for a notice."""
        story = self._stories.get(frame.run_id)
        if story is None:
            story = self._stories[frame.run_id] = Story()
        if frame.piece is not None:
            root_id, seq, at = frame.piece.place.root_id, frame.piece.seq, 0.0
            body = _text_body(story, frame.type, frame.piece)
        elif is_known_type(frame.type):
            place = msgspec.json.decode(frame.data, type=_Place)
            root_id, seq, at = place.root_id, place.seq, place.at
            body = decode(frame.data)
        else:
            return None
        event = Event(frame.run_id, frame.parent_id, root_id, seq, at, body)
        return event, story.take(body, seq, at)


def _text_body(story: Story, kind: str, piece: TextPiece) -> Body:
    body = piece.body
    if kind.endswith("partial"):
        # A client that came later gets the text so far, of which it may have a part.
        return type(body)(body.text[story.count_written(type(body)) :])
    return body
