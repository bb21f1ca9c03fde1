"""A short mark of every request that a run made, by which two runs are compared.

It has three parts, so that a difference says what differs: the system prompt, the offered tools, and the
conversation up to there. It is made from the portable events of the run, for a past run and for its replay alike.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from msgspec import Struct

from retinue.core.events import AssistantEnded, Body, Compacted, MessageAdded, Rewound, ToolsEnded
from retinue.log.encode import dump

_LENGTH = 12
_SURROUNDINGS = re.compile(r"^(?:Git repository: |Not a git repository|Branch: |Platform: |Date: ).*\n?", re.MULTILINE)
"""Lines of a system prompt that tell the machine and the day."""


class RequestMark(Struct, frozen=True):
    """What was sent for one turn. Equal marks: an equal request."""

    system: str
    tools: str
    messages: str

    def differences(self, other: RequestMark) -> list[str]:
        """Return the names of the parts that differ."""
        return [name for name in self.__struct_fields__ if getattr(self, name) != getattr(other, name)]


class RequestMarks:
    """Follows one run from its first event on."""

    def __init__(self, system: bytes) -> None:
        text = system.decode("utf-8", "replace").replace("\\n", "\n")
        self._system = _digest(_SURROUNDINGS.sub("", text).encode())
        self._tools = ""
        self._messages = ""

    def offer(self, tools: Sequence[str]) -> None:
        """Note which tools the run has."""
        self._tools = _digest("\n".join(tools).encode())

    def take(self, body: Body, portable: bytes) -> None:
        """Note a body that may have changed the conversation. `portable` is its portable JSON."""
        match body:
            case MessageAdded() | ToolsEnded() | Rewound():
                self._messages = _digest(self._messages.encode() + portable)
            case AssistantEnded():
                self._messages = _digest(self._messages.encode() + portable_content(body, portable))
            case Compacted():
                self._messages = _digest(portable)
            case _:
                pass

    @property
    def mark(self) -> RequestMark:
        """The request that is made now."""
        return RequestMark(self._system, self._tools, self._messages)


def portable_content(body: AssistantEnded, portable: bytes) -> bytes:
    """Return the part of an answer that later requests repeat: what it used and cost is not sent again."""
    usage = b',"usage":' + dump(body.message.usage)
    return portable.replace(usage, b"", 1)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_LENGTH]
