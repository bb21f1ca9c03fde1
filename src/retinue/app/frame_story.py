"""Stories of runs, computed from the frames of the event stream, for clients that can only append text.

The text for such a client is the `piece` of each step: the streamed text, and at the end the remainder.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from retinue.app.stream import FeedFrame
from retinue.core.encode import decode, is_known_type
from retinue.core.events import Event, EventPlace, TextDelta, ThinkingDelta
from retinue.core.story import Story, StoryStep


def event_of(frame: FeedFrame) -> Event | None:
    """Return the event of a frame, or None for a notice. The event of a partial frame contains the whole text so
    far."""
    if frame.piece is not None:
        run = frame.piece.place
        return Event(run.run_id, run.parent_id, run.root_id, frame.piece.seq, 0.0, frame.piece.body)
    if not is_known_type(frame.type):
        return None
    position = msgspec.json.decode(frame.data, type=EventPlace)
    return Event(position.run_id, position.parent_id, position.root_id, position.seq, position.at, decode(frame.data))


class FrameStories:
    """Takes the frames of any number of runs; those of each run must be in order."""

    def __init__(self) -> None:
        self._stories: dict[str, Story] = {}

    def take(self, frame: FeedFrame) -> tuple[Event, list[StoryStep]] | None:
        """Return the event of a frame and the resulting steps; None for a notice."""
        story = self._stories.get(frame.run_id)
        if story is None:
            story = self._stories[frame.run_id] = Story()
        event = event_of(frame)
        if event is None:
            return None
        if frame.is_partial and isinstance(event.body, TextDelta | ThinkingDelta):
            # A client that connects later gets the text so far, part of which it may have.
            kind = type(event.body)
            event = replace(event, body=kind(event.body.text[story.count_written(kind) :]))
        return event, story.take(event.body, event.seq, event.at)
