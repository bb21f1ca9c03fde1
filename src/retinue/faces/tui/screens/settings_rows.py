"""Settings as rows of an editor: value and origin of each, how one is typed, what a change did."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.text import Text

from retinue.faces.cli.settings import HIDDEN, explanation, plain, shown
from retinue.faces.tui.board.marks import STYLES
from retinue.faces.tui.board.text import one_line
from retinue.faces.tui.screens.agents_edit import Spoken
from retinue.faces.tui.screens.sheet import HEADING, Row, columns, near
from retinue.settings.field import Field
from retinue.settings.kinds import Choice, Flag, Number, Texts, Whole
from retinue.settings.kinds import Text as TextKind
from retinue.settings.load import Explanation, Loaded
from retinue.settings.table import fields
from retinue.settings.variables import raw_value
from retinue.settings.write import Saved, Target

TARGETS: tuple[Target, ...] = ("project", "local", "user")
WHERE = {
    "project": "project (.retinue/settings.json, shared)",
    "local": "local (.retinue/settings.local.json, yours)",
    "user": "user (everywhere, yours)",
}
_STRENGTH = {"user": 0, "project": 1, "local": 2}


def setting_rows(loaded: Loaded, words: Iterable[str], room: int) -> list[Row]:
    """By section. What differs from the default is marked and says from where."""
    wanted = [word.casefold() for word in words]
    sections: dict[str, list[Row]] = {}
    for name, field in fields().items():
        text = f"{name} {field.doc} {field.section}".casefold()
        if all(word in text for word in wanted):
            sections.setdefault(field.section, []).append((name, _row(loaded.explain(name), room)))
    rows: list[Row] = []
    for section, found in sections.items():
        rows += [(HEADING + section, Text(section, STYLES["accent"])), *found]
    return rows


def _row(found: Explanation, room: int) -> Text:
    layer = found.origin.layer
    set_here = layer != "default"
    wide = max(min(34, room // 2 - 4), 10)
    cells = [
        ("*" if set_here else " ", 1, "warning"),
        (found.field.name, wide, "" if set_here else "dim"),
        (layer if set_here else "", 11, "dim"),
        (shown(found.value), 0, "" if set_here else "dim"),
    ]
    return columns(cells, room)


def about(found: Explanation) -> Text:
    """Meaning, what is accepted, every layer that has a say."""
    first, *rest = explanation(found).splitlines()
    return Text.assemble((one_line(first), "bold"), *((f"\n{line.rstrip()}", STYLES["dim"]) for line in rest))


# Typing a value


def choices(field: Field) -> list[tuple[str, str]] | None:
    """The few values there are, to choose from; None where a value must be typed."""
    if isinstance(field.kind, Flag):
        return [("true", "true"), ("false", "false")]
    if isinstance(field.kind, Choice):
        return [(word, word) for word in field.kind.words]
    return None


def is_line(field: Field) -> bool:
    """Whether a value fits a line; objects and lists of them want more room."""
    return isinstance(field.kind, Whole | Number | TextKind | Texts)


def as_text(field: Field, value: Any) -> str:
    """A value to begin typing with."""
    if value is None:
        return ""
    if isinstance(field.kind, Texts):
        return ", ".join(value)
    if isinstance(value, str):
        return value
    return json.dumps(plain(value), ensure_ascii=False, indent=None if is_line(field) else 2)


def problem(field: Field, text: str) -> str:
    """Why a typed text is no value of the setting; empty when it is one."""
    if HIDDEN in text:
        return f"{HIDDEN} stands for a secret that would be lost. Edit the file instead."
    complaints: list[str] = []
    field.kind.read(
        raw_value(field, text), field.name, lambda at, accepts: complaints.append(f"{at} must be {accepts}.")
    )
    return complaints[0] if complaints else ""


def own_value(loaded: Loaded, field: Field, target: Target) -> Any:
    """What the file of `target` itself says; None when it says nothing."""
    for layer in loaded.layers:
        if layer.origin.layer == target and field.attribute in layer.values:
            return layer.values[field.attribute]
    return None


def after(found: Explanation, saved: Saved, target: Target, cwd: Path, *, unset: bool) -> Spoken:
    """What a change did, and what the person might not expect of it."""
    now = f"{found.field.name} = {shown(found.value)} ({found.origin.layer})."
    if not saved.persisted:
        return Spoken(f"{now} (session only; failed to persist) {saved.problem or ''}", "warning")
    done = f"{'Removed from' if unset else 'Written to'} {near(saved.path, cwd)}."
    layer = found.origin.layer
    if not unset and (layer in ("environment", "flag") or _STRENGTH.get(layer, 0) > _STRENGTH[target]):
        return Spoken(f"{done} It has no effect here: {found.origin} goes before it.", "warning")
    late = "" if found.field.applies == "live" else f" It holds from the {found.field.applies} on."
    return Spoken(f"{now} {done}{late}", "success")
