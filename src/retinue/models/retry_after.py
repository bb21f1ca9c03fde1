"""How long a server asks us to wait, in whichever of its ways it says so."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


_AMOUNT = r"(\d+(?:\.\d+)?) ?(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)(?![a-z])"
_PROSE = rf"(?:try again|retry|wait)[^\d.]{{0,24}}((?:{_AMOUNT}\s*)+)"


def retry_after(
    headers: Mapping[str, str], details: Any = None, now: float | None = None, said: str = ""
) -> float | None:
    """Seconds from now, never negative; None if the server did not say. `headers` have
    lower-case names; `details` is the list in a Google error; `said` is its prose, the only place
    where a limit in the middle of a stream names a wait ("Please try again in 11.054s")."""
    now = time.time() if now is None else now
    for seconds in (
        _number(headers.get("retry-after-ms") or headers.get("x-ms-retry-after-ms"), 0.001),
        _number(headers.get("retry-after")),
        _http_date(headers.get("retry-after"), now),
        _google(details),
        _resets(headers, now),
        _prose(said),
    ):
        if seconds is not None:
            return max(0.0, seconds)
    return None


def _number(text: str | None, factor: float = 1.0) -> float | None:
    try:
        value = float(text) if text else None
    except ValueError:
        return None
    # inf and nan are numbers to Python and nonsense to everyone else.
    return value * factor if value is not None and abs(value * factor) < 1e10 else None


def _http_date(text: str | None, now: float) -> float | None:
    if not text or not text[:1].isalpha():
        return None
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError):
        return None


def _google(details: Any) -> float | None:
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(detail.get("retryDelay"), str):
            return duration(detail["retryDelay"])
    return None


def _prose(said: str) -> float | None:
    found = re.search(_PROSE, said[:2000], re.IGNORECASE)
    if found is None:
        return None
    total = 0.0
    for number, unit in re.findall(_AMOUNT, found[1], re.IGNORECASE):
        word = unit.lower()
        short = "ms" if word.startswith(("ms", "milli")) else word[0]
        total += float(number) * _UNITS[short]
    return total


def _resets(headers: Mapping[str, str], now: float) -> float | None:
    """When the limits that are used up are renewed: Anthropic writes moments, OpenAI durations."""
    waits: list[float] = []
    for name, value in headers.items():
        if name.startswith("anthropic-ratelimit-") and name.endswith("-reset"):
            if headers.get(name.removesuffix("reset") + "remaining") == "0":
                waits += _known(_moment(value, now))
        elif name.startswith("x-ratelimit-reset-"):
            if headers.get(name.replace("-reset-", "-remaining-")) == "0":
                waits += _known(duration(value))
        elif name == "x-ratelimit-reset" and headers.get("x-ratelimit-remaining", "0") == "0":
            waits += _known(_epoch(value, now))
    return max(waits, default=None)


def _known(seconds: float | None) -> list[float]:
    return [] if seconds is None else [seconds]


def _moment(text: str, now: float) -> float | None:
    from datetime import datetime

    try:
        return datetime.fromisoformat(text).timestamp() - now
    except (ValueError, OverflowError):
        return None


def _epoch(text: str, now: float) -> float | None:
    value = _number(text, 1e-3) if len(text) > 11 else _number(text)
    if value is None:
        return None
    return value - now if value > 1e8 else value  # small numbers are seconds from now


def duration(text: str) -> float | None:
    """`34s`, `1m30s`, `20ms`, `6m0.5s` or plain seconds."""
    total, number, unit = 0.0, "", ""
    for character in text.strip() + "\0":
        if character.isdigit() or character == "." or character == "\0":
            if unit:
                if unit not in _UNITS or (value := _number(number)) is None:
                    return None
                total, number, unit = total + value * _UNITS[unit], "", ""
            number += character
        else:
            unit += character
    rest = number.rstrip("\0")
    if rest:
        return _number(rest) if not total else None
    return total if text.strip() else None
