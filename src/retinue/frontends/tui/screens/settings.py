"""Settings: show their values and origins, and change one in a file that the user chooses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from retinue.app.rich_text import STYLES, one_line
from retinue.app.settings import (
    Explanation,
    Field,
    Loaded,
    Saved,
    Target,
    as_text,
    choices,
    counts_in,
    explanation,
    fields,
    is_line,
    matching_fields,
    own_value,
    problem,
    raw_value,
    save_setting,
    shown,
    surprise_of,
    view_setting,
)
from retinue.app.text import optional
from retinue.frontends.tui.screens.dialogs import Ask, Pick
from retinue.frontends.tui.screens.external_editor import Feedback, Write
from retinue.frontends.tui.screens.sheet import HEADING, ListSheet, Row, columns, near

TARGETS: tuple[Target, ...] = ("project", "local", "user")
WHERE = {
    "project": "project (.retinue/settings.json, shared)",
    "local": "local (.retinue/settings.local.json, yours)",
    "user": "user (everywhere, yours)",
}


def setting_rows(loaded: Loaded, words: Iterable[str], room: int) -> list[Row]:
    """Return the settings by section. A value that differs from the default is marked and shows its origin."""
    sections: dict[str, list[Row]] = {}
    for field in matching_fields(words):
        row = (field.name, _row(loaded.explain(field.name), room))
        sections.setdefault(field.section, []).append(row)
    rows: list[Row] = []
    for section, section_rows in sections.items():
        rows += [(HEADING + section, Text(section, STYLES["accent"])), *section_rows]
    return rows


def _row(setting: Explanation, room: int) -> Text:
    mark, layer, meaning = "*", str(setting.origin.layer), ""
    if layer == "default":
        mark, layer, meaning = " ", "", "dim"
    wide = max(min(34, room // 2 - 4), 10)
    cells = [(mark, 1, "warning"), (setting.field.name, wide, meaning), (layer, 11, "dim")]
    return columns([*cells, (shown(setting.value), 0, meaning)], room)


def about(setting: Explanation) -> Text:
    """Return the meaning of a setting, its accepted values, and every layer that sets it."""
    first, *others = explanation(view_setting(setting)).splitlines()
    text = Text()
    text.append(one_line(first), "bold")
    for line in others:
        text.append(f"\n{line.rstrip()}", STYLES["dim"])
    return text


def describe_change(setting: Explanation, saved: Saved, target: Target, cwd: Path, *, unset: bool) -> Feedback:
    """Return the effect of a change, with a warning where the person might expect another one."""
    now = f"{setting.field.name} = {shown(setting.value)} ({setting.origin.layer})."
    if not saved.persisted:
        return Feedback(f"{now} (session only; failed to persist) {saved.problem or ''}", "warning")
    verb = "Removed from" if unset else "Written to"
    done = f"{verb} {near(saved.path, cwd)}."
    surprise, is_without_effect = surprise_of(view_setting(setting), target, unset=unset)
    if is_without_effect:
        return Feedback(f"{done} {surprise}", "warning")
    return Feedback(f"{now} {done}{optional(' {}', surprise)}", "success")


class SettingsScreen(ListSheet[None]):
    """`words` narrow the list from the start, as in `/settings web`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "target", "where to write"),
        Binding("u,delete", "unset", "remove"),
        Binding("slash", "narrow", "find"),
    ]
    heading = "Settings"
    keys_line = "Enter change · w where it is written · u remove from there · / find · Esc back"

    def __init__(self, words: str = "") -> None:
        super().__init__()
        self._words = words.split()
        self._target: Target = "project"

    def on_option_list_option_selected(self) -> None:
        field = self._field
        if field is not None:
            self.do(self._change(field))

    def action_target(self) -> None:
        self._target = TARGETS[(TARGETS.index(self._target) + 1) % len(TARGETS)]
        self.redraw()

    def action_unset(self) -> None:
        field = self._field
        if field is not None:
            self.do(self._save(field, None))

    def action_narrow(self) -> None:
        self.do(self._narrow())

    # Display

    @property
    def _loaded(self) -> Loaded:
        return self.project.settings

    @property
    def _field(self) -> Field | None:
        return fields().get(self.chosen)

    def draw(self) -> None:
        narrowed = optional(" · find: {}", " ".join(self._words))
        self.head(f"Settings{narrowed} · writing to {WHERE[self._target]}")
        self.rows.fill(setting_rows(self._loaded, self._words, self.room))

    def about(self) -> Text | str:
        field = self._field
        if field is None:
            return ""
        return about(self._loaded.explain(field.name))

    # Actions

    async def _narrow(self) -> None:
        words = await self.ask(
            Ask("Find settings", detail="Words of a name, a meaning or a section; none shows all.", empty=True)
        )
        if words is not None:
            self._words = words.split()
            self.redraw()
            if not matching_fields(self._words):
                self.say("Nothing has these words. / looks again.", "warning")

    async def _change(self, field: Field) -> None:
        current = own_value(self._loaded, field, self._target)
        if current is None and not field.merges:
            current = self._loaded.get(field.name)
        text = await self._typed(field, as_text(field, current))
        if text is not None:
            await self._save(field, raw_value(field, text))

    async def _typed(self, field: Field, start: str) -> str | None:
        about_it = f"{field.doc}\nIt must be {field.kind.accepts}.\nWritten to: {WHERE[self._target]}"
        few = choices(field)
        if few is not None:
            return await self.ask(Pick(field.name, few, detail=about_it, start=start.strip('"')))
        if is_line(field):
            ask = Ask(field.name, detail=about_it, value=start, check=lambda text: problem(field, text))
            return await self.ask(ask)
        wrong, value = "", start
        while True:
            answer = await self.ask(Write(field.name, value, detail=wrong or f"{about_it} As JSON."))
            if answer is None:
                return None
            wrong, value = problem(field, answer), answer
            if not wrong:
                return answer

    async def _save(self, field: Field, raw: Any) -> None:
        target: Target = self._target if counts_in(self._target, field, raw) else "user"
        saved = await asyncio.to_thread(save_setting, self.project, field.name, raw, target)
        if saved.persisted or raw is None:
            self.project.session_settings.pop(field.name, None)
        else:
            self.project.session_settings[field.name] = raw
        self.retinue.supervisor.reload_settings(persisted=saved.persisted)
        await self._follow()
        self.redraw()
        setting = self._loaded.explain(field.name)
        feedback = describe_change(setting, saved, target, self.project.cwd, unset=raw is None)
        self.say(feedback.text, feedback.kind)

    async def _follow(self) -> None:
        """Apply the new settings at once to the background work of this session."""
        if self.retinue.supervisor.settings.scheduling_enabled:
            self.retinue.schedules.begin()
        elif self.retinue.schedules.active:
            await self.retinue.schedules.end()
