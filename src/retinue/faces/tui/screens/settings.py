"""Settings: see their values and origins, and change one in the file the user chooses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from retinue.capabilities.trust.attach import consent_stays
from retinue.faces.cli.settings import HIDDEN, explanation, plain, shown
from retinue.faces.tui.board.marks import STYLES
from retinue.faces.tui.board.text import one_line
from retinue.faces.tui.screens.dialogs import Ask, Pick, Write
from retinue.faces.tui.screens.external_editor import Spoken
from retinue.faces.tui.screens.sheet import HEADING, Row, Rows, Sheet, columns, near
from retinue.settings.field import Field
from retinue.settings.kinds import Choice, Flag, Number, Texts, Whole
from retinue.settings.kinds import Text as TextKind
from retinue.settings.load import Explanation, Loaded, raw_value
from retinue.settings.table import fields
from retinue.settings.write import Saved, Target, counts_in, save_settings, target_file

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


class SettingsScreen(Sheet[None]):
    """`words` narrow the list from the start, as in `/settings web`."""

    DEFAULT_CSS = """
    SettingsScreen #about { height: 9; padding: 0 1; border-top: solid $panel; scrollbar-size-vertical: 1; }
    """
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

    def body(self) -> Iterable[Static | Rows]:
        yield Rows()
        with VerticalScroll(id="about", can_focus=False):
            yield Static()

    def on_mount(self) -> None:
        self.query_one(Rows).focus()
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def on_option_list_option_highlighted(self) -> None:
        self._about()

    def on_option_list_option_selected(self) -> None:
        field = self._field
        if field is not None:
            self.do(self._change(field))

    def action_target(self) -> None:
        self._target = TARGETS[(TARGETS.index(self._target) + 1) % len(TARGETS)]
        self._draw()

    def action_unset(self) -> None:
        field = self._field
        if field is not None:
            self.do(self._save(field, None))

    def action_narrow(self) -> None:
        self.do(self._narrow())

    # What is shown

    @property
    def _loaded(self) -> Loaded:
        return self.host.retinue.supervisor.project.settings

    @property
    def _field(self) -> Field | None:
        return fields().get(self.query_one(Rows).chosen or "")

    def _draw(self) -> None:
        narrowed = f" · find: {' '.join(self._words)}" if self._words else ""
        self.head(f"Settings{narrowed} · writing to {WHERE[self._target]}")
        self.query_one(Rows).fill(setting_rows(self._loaded, self._words, self.room))
        self._about()

    def _about(self) -> None:
        field = self._field
        self.query_one("#about Static", Static).update(about(self._loaded.explain(field.name)) if field else "")

    # What is done

    async def _narrow(self) -> None:
        said = await self.app.push_screen_wait(
            Ask("Find settings", detail="Words of a name, a meaning or a section; none shows all.", empty=True)
        )
        if said is not None:
            self._words = said.split()
            self._draw()
            rows = self.query_one(Rows)
            if not any(not (each.id or HEADING).startswith(HEADING) for each in rows.options):
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
            return await self.app.push_screen_wait(Pick(field.name, few, detail=about_it, start=start.strip('"')))
        if is_line(field):
            ask = Ask(field.name, detail=about_it, value=start, check=lambda text: problem(field, text))
            return await self.app.push_screen_wait(ask)
        wrong, said = "", start
        while True:
            answer = await self.app.push_screen_wait(Write(field.name, said, detail=wrong or f"{about_it} As JSON."))
            if answer is None:
                return None
            wrong, said = problem(field, answer), answer
            if not wrong:
                return answer

    async def _save(self, field: Field, raw: Any) -> None:
        target: Target = self._target if counts_in(self._target, field, raw) else "user"
        saved = await asyncio.to_thread(self._write, field, raw, target)
        project = self.host.retinue.supervisor.project
        if saved.persisted or raw is None:
            project.session_settings.pop(field.name, None)
        else:
            project.session_settings[field.name] = raw
        self.host.retinue.supervisor.reload_settings(persisted=saved.persisted)
        await self._follow()
        self._draw()
        said = after(self._loaded.explain(field.name), saved, target, project.cwd, unset=raw is None)
        self.say(said.text, said.kind)

    async def _follow(self) -> None:
        """What this session keeps going follows the switches at once."""
        retinue = self.host.retinue
        if retinue.supervisor.settings.scheduling_enabled:
            retinue.schedules.begin()
        elif retinue.schedules.active:
            await retinue.schedules.end()

    def _write(self, field: Field, raw: Any, target: Target) -> Saved:
        """A person changes the file through us: what they agreed to before stays agreed to."""
        project = self.host.retinue.supervisor.project
        with consent_stays(project, target_file(project.cwd, target, project.environment)):
            return save_settings({field.name: raw}, cwd=project.cwd, target=target, environment=project.environment)
