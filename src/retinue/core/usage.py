"""Tokens and money that runs used, and the limits and budgets that bound them.

`Limits` bound one run, `Budget` a tree of runs as people write it down: six numbers, each optional.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from msgspec import Struct

from retinue.errors import UsageError

N = TypeVar("N", int, float)
_MAX_AMOUNT = 10**15


class Budget(Struct, frozen=True, kw_only=True):
    """The most that a tree of runs may spend. None: not limited. 0: nothing may be spent."""

    tokens: int | None = None
    usd: float | None = None
    turns: int | None = None
    tool_calls: int | None = None
    seconds: float | None = None
    spawns: int | None = None

    @classmethod
    def read(cls, raw: Any, where: str = "budget") -> Budget:
        """Read a budget from a file or a call: `{"usd": 0.5, "toolCalls": 40}`. Raise UsageError for an invalid one: it
        must not become no budget."""
        fields = cls.__struct_fields__
        # In the spelling of files and of the command line.
        names = ", ".join(sorted(fields)).replace("tool_calls", "toolCalls")
        if not isinstance(raw, Mapping):
            raise UsageError(f"`{where}` must be a mapping.", remedy=f"It may have: {names}.")
        values: dict[str, Any] = {}
        for key, value in raw.items():
            name = "tool_calls" if key == "toolCalls" else key
            if name not in fields:
                raise UsageError(f"`{where}.{key}` is unknown.", remedy=f"Known: {names}.")
            values[name] = None if value is None else _amount(value, f"{where}.{key}", name in ("usd", "seconds"))
        return cls(**values)

    def as_dict(self) -> dict[str, float]:
        """Return the amounts that are limited, by name."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}

    def within(self, other: Budget) -> Budget:
        """The tighter of the two budgets, number by number."""
        return Budget(**{name: lower(getattr(self, name), getattr(other, name)) for name in self.__struct_fields__})


def _amount(value: Any, where: str, fraction: bool) -> float:
    kinds = (int, float) if fraction else (int,)
    if type(value) not in kinds or not 0 <= value <= _MAX_AMOUNT:
        what = "a number" if fraction else "a whole number"
        raise UsageError(f"`{where}` must be {what} from 0 to {_MAX_AMOUNT}.", remedy="Leave it out for no limit.")
    amount: float = value
    return amount


def lower(one: N | None, other: N | None) -> N | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


NO_LIMITS = Budget()


LimitName = Literal["turns", "time", "idle", "tool_time", "tool_calls", "repeated_calls", "tokens", "cost", "spawns"]


class Limits(Struct, frozen=True):
    """The limits of one run. None means unlimited; a 0 in a file or option is turned into None when it is read.

    `max_turns` asks once for a wrap-up; `grace_turns` later the run is aborted.
    `idle_seconds` counts from the last sign of life of model or tool.
    `repeated_calls` ends a run that makes the same failing call that many times in a row, or twice
    as often the same call with the same result.
    """

    max_turns: int | None = None
    grace_turns: int = 5
    seconds: float | None = None
    idle_seconds: float | None = 180.0
    tool_seconds: float | None = 600.0
    max_tool_calls: int | None = None
    repeated_calls: int | None = 5


class Usage(Struct, frozen=True):
    """Lifetime counters: they only grow, and compaction never resets them.

    `input` excludes what the provider read from its cache; `cost_usd` is None while any
    part of the sum is unpriced, so that "unknown" never reads as "free".
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost_usd: float | None = 0.0

    def __add__(self, other: Usage) -> Usage:
        cost = None
        if self.cost_usd is not None and other.cost_usd is not None:
            cost = self.cost_usd + other.cost_usd
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            cost,
        )

    @property
    def total_tokens(self) -> int:
        """Tokens that were new work. Cache reads are left out: they repeat every turn."""
        return self.input + self.output + self.cache_write

    def is_counted(self, turns: int, model: str) -> bool:
        """Return whether the tokens of a run are known: no language model answers a turn with none."""
        return bool(self.context_tokens) or not turns or model.startswith("offline/")

    @property
    def context_tokens(self) -> int:
        """Return the tokens that this one request occupied in the model's window."""
        return self.input + self.cache_read + self.cache_write + self.output


NOTHING = Usage()


def larger(counted: Usage, total: Usage, turn: Usage | None = None) -> Usage:
    """Return `total` if it includes what was counted so far; else `counted` with the usage of the turn. A resumed run
    may only report its usage since then, and the sum over its life must not shrink."""
    if total.input >= counted.input and total.output >= counted.output:
        return total
    return counted + turn if turn is not None else counted
