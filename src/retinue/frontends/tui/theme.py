"""The light and the dark theme, and whether the person wants motion."""

from __future__ import annotations

from collections.abc import Mapping

from textual.theme import Theme

from retinue.app import rich_text

DARK = Theme(
    name="retinue-dark",
    primary="#7aa2f7",
    secondary="#9aa5ce",
    accent="#7dcfff",
    success="#9ece6a",
    warning="#e0af68",
    error="#f7768e",
    foreground="#d5d9e8",
    background="#16161e",
    surface="#1a1b26",
    panel="#24283b",
    dark=True,
)
LIGHT = Theme(
    name="retinue-light",
    primary="#1f4fbf",
    secondary="#4a5270",
    accent="#00639c",
    success="#2f6b1f",
    warning="#8a5a00",
    error="#b3123c",
    foreground="#1c1f2b",
    background="#fafafc",
    surface="#ffffff",
    panel="#e8eaf2",
    dark=False,
)
THEMES = (DARK, LIGHT)
_LIGHT_BACKGROUNDS = frozenset(map(str, (7, *range(9, 16))))


def wants_motion(environment: Mapping[str, str]) -> bool:
    return not environment.get("RETINUE_REDUCED_MOTION") and environment.get("TEXTUAL_ANIMATIONS") != "none"


def theme_for(choice: str, environment: Mapping[str, str]) -> Theme:
    """Return the theme `light` or `dark`; for another choice, the theme of the terminal. COLORFGBG ends with the number
    of its background, of which 7 and those above 8 are light."""
    light = choice == "light"
    if choice == "auto":
        background = environment.get("COLORFGBG", "").rpartition(";")[2]
        light = background in _LIGHT_BACKGROUNDS
    return LIGHT if light else DARK


def use_colours(theme: Theme, *, colour: bool = True) -> None:
    """Draw the lines of the board in the colours of the theme."""
    if not colour:
        rich_text.STYLES.update(accent="bold", success="", warning="bold", error="bold reverse", dim="dim")
        return
    rich_text.STYLES.update(
        accent=f"bold {theme.accent}",
        success=str(theme.success),
        warning=str(theme.warning),
        error=f"bold {theme.error}",
        dim=str(theme.secondary),
    )
