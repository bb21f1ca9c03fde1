"""The base of values that name their own type in JSON."""

from __future__ import annotations

from msgspec import Struct


class Tagged(Struct, frozen=True, tag_field="type"):
    """A value whose JSON begins with `"type"`, so that a reader of the log knows its class.

    Reading a union of such classes chooses the member by that name; the order of the keys does not matter, because
    logs written before this base existed have it last.
    """

    @property
    def type(self) -> str:
        """The name of this value's class in JSON, such as `run.started`."""
        return str(self.__struct_config__.tag)
