"""What a caller asked for, checked once for every way in: library, command line, other programs.

Whatever is not understood is refused before anything is looked up or made; nothing is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args

from retinue.core.request import RunRequest
from retinue.core.spec import PermissionMode
from retinue.core.usage import Limits
from retinue.errors import UsageError
from retinue.models.efforts import LEVELS, level_of

_WHOLE = frozenset({"max_turns", "grace_turns", "max_tool_calls", "repeated_calls", "max_tokens"})
_LIMITS = Limits.__struct_fields__
_MODES = get_args(PermissionMode)


def well_formed(request: RunRequest) -> None:
    """Raise UsageError for what nobody could have meant."""
    if not isinstance(request.task, str):
        raise UsageError(f"The task must be text, not {_kind(request.task)}.")
    if request.limits:
        _check_limits(request.limits)
    if request.thinking is not None and level_of(str(request.thinking)) is None:
        raise UsageError(f"There is no thinking level '{request.thinking}'.", remedy=f"Use one of {', '.join(LEVELS)}.")
    if request.permission_mode is not None and request.permission_mode not in _MODES:
        raise UsageError(
            f"There is no permission mode '{request.permission_mode}'.", remedy=f"Use one of {', '.join(_MODES)}."
        )
    if request.schema is not None:
        from retinue.loop.finish import check_schema

        check_schema(request.schema)


def _check_limits(limits: Mapping[str, Any]) -> None:
    for name, value in limits.items():
        if name not in _LIMITS:
            raise UsageError(f"There is no limit '{name}'.", remedy=f"Known: {', '.join(_LIMITS)}.")
        if value is None:
            continue
        right = (int,) if name in _WHOLE else (int, float)
        if type(value) not in right or not 0 <= value < math.inf:
            what = "a whole number" if name in _WHOLE else "a number"
            raise UsageError(f"The limit '{name}' must be {what}, 0 or more, not {value!r}.", remedy="None: no limit.")


def _kind(value: object) -> str:
    return type(value).__name__
