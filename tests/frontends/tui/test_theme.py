"""Colours that can be read: WCAG's 4.5 for every colour of text on every ground it stands on."""

from __future__ import annotations

import pytest
from textual.color import Color
from textual.theme import Theme

from retinue.frontends.tui import frame as keys
from retinue.frontends.tui.theme import DARK, LIGHT, THEMES, theme_for, wants_motion


def _ratio(one: str, other: str) -> float:
    bright, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(name: str) -> float:
    def linear(value: float) -> float:
        return value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(part / 255) for part in Color.parse(name).rgb)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
@pytest.mark.parametrize("colour", ["foreground", "primary", "secondary", "accent", "success", "warning", "error"])
def test_every_colour_can_be_read_on_every_ground(theme: Theme, colour: str) -> None:
    for ground in ("background", "surface", "panel"):
        assert _ratio(getattr(theme, colour), getattr(theme, ground)) >= 4.5, ground


@pytest.mark.parametrize(
    ("choice", "environment", "theme"),
    [
        ("dark", {"COLORFGBG": "0;15"}, DARK),
        ("light", {}, LIGHT),
        ("auto", {}, DARK),
        ("auto", {"COLORFGBG": "0;15"}, LIGHT),
        ("auto", {"COLORFGBG": "0;default;7"}, LIGHT),
        ("auto", {"COLORFGBG": "15;0"}, DARK),
        ("auto", {"COLORFGBG": "nonsense"}, DARK),
        ("auto", {"COLORFGBG": "15;8"}, DARK),
    ],
)
def test_the_theme_follows_the_terminal(choice: str, environment: dict[str, str], theme: Theme) -> None:
    assert theme_for(choice, environment) is theme


def test_motion_can_be_switched_off() -> None:
    assert wants_motion({})
    assert not wants_motion({"RETINUE_REDUCED_MOTION": "1"})
    assert not wants_motion({"TEXTUAL_ANIMATIONS": "none"})


def test_keys_are_changed_by_name_and_never_taken_twice() -> None:
    table, problems = keys.choose_keys({"fold": "f7", "nonsense": "f8"}, "ctrl+r")
    assert {key.name: key.key for key in table}["fold"] == "f7"
    assert {key.name: key.key for key in table}["resend"] == "ctrl+r"
    assert problems == ["keys.nonsense: there is no action of that name"]
    table, problems = keys.choose_keys({"fold": "escape"})
    assert {key.name: key.key for key in table}["fold"] == "ctrl+o"
    assert "already the key for interrupt" in problems[0]
