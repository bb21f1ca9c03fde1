"""The user's folder of Retinue, as text. A Tab in a shell needs no more than this: pathlib takes 5 ms to import."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def home_path(environment: Mapping[str, str]) -> str:
    """Return the user's home, overridable through HOME as everywhere."""
    chosen = environment.get("HOME")
    if chosen:
        return chosen
    own = os.path.expanduser("~")  # noqa: PTH111 - pathlib raises where the system does not know the user
    return "/" if own == "~" else own


def own_folder_path(variable: str, environment: Mapping[str, str]) -> str:
    """Return RETINUE_HOME, else ~/.retinue. Where there is no ~/.retinue and `variable` (XDG_CONFIG_HOME,
    XDG_STATE_HOME) is set, return `retinue` in there."""
    chosen = environment.get("RETINUE_HOME")
    if chosen:
        return os.path.expanduser(chosen)  # noqa: PTH111
    usual = os.path.join(home_path(environment), ".retinue")  # noqa: PTH118
    # A relative path in such a variable is to be ignored, says the specification.
    base = environment.get(variable, "")
    if not os.path.isabs(base) or os.path.isdir(usual):  # noqa: PTH112, PTH117
        return usual
    return os.path.join(base, "retinue")  # noqa: PTH118


def cache_path(environment: Mapping[str, str]) -> str:
    """Return the folder of what can be found again at any time."""
    return os.path.join(own_folder_path("XDG_STATE_HOME", environment), "cache")  # noqa: PTH118
