"""How much a tree of runs may spend, as people write it down. Six numbers, each optional."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from retinue.core.lean import dataclass
from retinue.errors import UsageError

N = TypeVar("N", int, float)
_MOST = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """None: not limited. 0: nothing may be spent."""

    tokens: int | None = None
    usd: float | None = None
    turns: int | None = None
    tool_calls: int | None = None
    seconds: float | None = None
    spawns: int | None = None

    @classmethod
    def read(cls, raw: Any, where: str = "budget") -> Budget:
        """From a file or a call: `{"usd": 0.5, "toolCalls": 40}`. Raises UsageError for anything
        else: a budget that is misread must not become no budget."""
        known = {field.name for field in fields(cls)}
        if not isinstance(raw, Mapping):
            raise UsageError(f"`{where}` must be a mapping.", remedy=f"It may have: {', '.join(sorted(known))}.")
        values: dict[str, Any] = {}
        for key, value in raw.items():
            name = "tool_calls" if key == "toolCalls" else key
            if name not in known:
                raise UsageError(f"`{where}.{key}` is unknown.", remedy=f"Known: {', '.join(sorted(known))}.")
            values[name] = None if value is None else _amount(value, f"{where}.{key}", name in ("usd", "seconds"))
        return cls(**values)

    def said(self) -> dict[str, float]:
        """What is limited, by name."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) is not None}

    def within(self, other: Budget) -> Budget:
        """The tighter of both, one by one."""
        return Budget(
            **{each.name: lower(getattr(self, each.name), getattr(other, each.name)) for each in fields(self)}
        )


def _amount(value: Any, where: str, fraction: bool) -> float:
    kinds = (int, float) if fraction else (int,)
    if type(value) not in kinds or not 0 <= value <= _MOST:
        what = "a number" if fraction else "a whole number"
        raise UsageError(f"`{where}` must be {what} from 0 to {_MOST}.", remedy="Leave it out for no limit.")
    amount: float = value
    return amount


def lower(one: N | None, other: N | None) -> N | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


NO_LIMITS = Budget()
