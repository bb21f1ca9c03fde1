"""The permission modes with explanations, and the rules with their files: choose a mode, add or remove a rule."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import ClassVar, cast

from rich.text import Text
from textual.binding import Binding, BindingType

from retinue.app.modes import BY_MODE, MODE_ENTRIES, ModeEntry, offered_modes
from retinue.app.permissions import Kind, Rule, Target, add_rule, remove_rule, rule_problem, rules_of, target_of
from retinue.app.rich_text import STYLES, one_line
from retinue.app.text import plural
from retinue.core.spec import PermissionMode
from retinue.errors import StateError
from retinue.frontends.tui.screens.dialogs import Ask, Pick, confirm
from retinue.frontends.tui.screens.sheet import HEADING, ListSheet, Row, columns

# Labels for the origins of rules.
Origin = Callable[[Rule], str]
_MODE = "mode: "
_RULE = "rule: "
_MEANINGS: dict[Kind, str] = {"allow": "success", "ask": "warning", "deny": "error"}
_KINDS: tuple[tuple[Kind, str], ...] = (
    ("allow", "allow — it is done without asking"),
    ("ask", "ask — you are asked, whatever the mode"),
    ("deny", "deny — it is never done"),
)
_TARGETS: tuple[tuple[Target, str], ...] = (
    ("user", "for all my projects (my own settings)"),
    ("local", "for this project, only for me (.retinue/settings.local.json)"),
    ("project", "for this project and everyone who works in it (.retinue/settings.json)"),
)
_ORIGINS: dict[Target, str] = {"user": "my settings", "local": "this project, for me", "project": "this project"}
_FORMS = "Examples: Bash(npm test:*)   Edit(src/**)   Read(.env)   WebFetch(domain:example.org)   mcp__server__tool"


def permission_rows(now: PermissionMode, rules: Iterable[Rule], room: int, origin: Origin) -> list[Row]:
    """Return the modes, with the current one marked, and below them the rules with their files."""
    rows: list[Row] = [(f"{HEADING}modes", Text("Modes", "bold"))]
    for entry in MODE_ENTRIES:
        mark = "●" if entry.mode == now else " "
        cells = [(mark, 1, "accent"), (entry.mode, 18, ""), (entry.words, 0, "dim")]
        rows.append((f"{_MODE}{entry.mode}", columns(cells, room)))
    rows.append((f"{HEADING}rules", Text("Rules", "bold")))
    for number, rule in enumerate(rules):
        cells = [
            (rule.kind, 5, _MEANINGS[rule.kind]),
            (rule.text, max(room - 40, 20), ""),
            (origin(rule), 0, "dim"),
        ]
        rows.append((f"{_RULE}{number}", columns(cells, room)))
    return rows


class PermissionsScreen(ListSheet[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a,n", "add", "add a rule"),
        Binding("d,delete", "remove", "remove a rule"),
    ]
    heading = "Permissions"
    keys_line = "Enter use this mode · a add a rule · d remove a rule · Esc back"

    def __init__(self) -> None:
        super().__init__()
        self._rules: list[Rule] = []

    def on_option_list_option_selected(self) -> None:
        entry = self._mode
        if entry is not None:
            self.do(self._use(entry))

    def action_add(self) -> None:
        self.do(self._add())

    def action_remove(self) -> None:
        rule = self._rule
        if rule is not None:
            self.do(self._remove(rule))

    # Display

    @property
    def _mode(self) -> ModeEntry | None:
        chosen = self.chosen
        return BY_MODE.get(cast("PermissionMode", chosen.removeprefix(_MODE)))

    @property
    def _rule(self) -> Rule | None:
        chosen = self.chosen
        if not chosen.startswith(_RULE):
            return None
        return self._rules[int(chosen.removeprefix(_RULE))]

    def draw(self) -> None:
        self._rules = rules_of(self.project)
        mode = self.host.session.mode
        self.head(f"Permissions · {BY_MODE[mode].words} · {plural(len(self._rules), 'rule')}")
        self.rows.fill(permission_rows(mode, self._rules, self.room, self._origin))

    def _origin(self, rule: Rule) -> str:
        target = target_of(rule, self.project)
        if target is None:
            return self.near(rule.source)
        return _ORIGINS[target]

    def about(self) -> Text | str:
        entry, rule = self._mode, self._rule
        if entry is not None:
            hint = "Shift+Tab in the prompt: the next mode"
            return Text.assemble((entry.words, "bold"), f"\n{entry.help}\n", (hint, STYLES["dim"]))
        if rule is None:
            return "a adds a rule: what is allowed, asked about or denied, in every mode."
        source = f"from {one_line(rule.source)}"
        if target_of(rule, self.project) is None:
            source += " (change it there)"
        return Text.assemble((f"{rule.kind} {one_line(rule.text)}", "bold"), (f"\n{source}", STYLES["dim"]))

    # Actions

    async def _use(self, entry: ModeEntry) -> None:
        host = self.host
        if host.talk is not host.session:
            raise StateError("This conversation runs in another process: its mode cannot be changed from here.")
        if entry.mode not in offered_modes(host.first_mode):
            raise StateError(
                f"The mode {entry.mode} is not chosen by a key.",
                remedy=f"Start with it: retinue --permission-mode {entry.mode}",
            )
        await host.session.change_mode(entry.mode)
        self.redraw()
        self.say(f"The main agent {entry.words.lstrip('⏵⏸ ')} from its next call on.", "success")

    async def _add(self) -> None:
        """Ask for a new rule step by step, and write it. Esc at any step cancels."""
        kind = await self.ask(Pick("What kind of rule?", _KINDS))
        if kind is None:
            return
        text = await self.ask(Ask(f"Which calls to {kind}?", detail=_FORMS, check=rule_problem))
        if text is None:
            return
        target = await self.ask(Pick("For whom?", _TARGETS))
        if target is None:
            return
        await asyncio.to_thread(add_rule, self.retinue, cast("Kind", kind), text, cast("Target", target))
        self.redraw()
        when = "from now on" if kind == "allow" else "from the next message on"
        self.say(f"{kind} {text}: it applies {when}.", "success")

    async def _remove(self, rule: Rule) -> None:
        target = target_of(rule, self.project)
        if target is None:
            raise StateError(f"{rule.text} is not from Retinue's settings.", remedy=f"Change it in {rule.source}.")
        if not await confirm(self.app, f"Remove {rule}?", f"From {rule.source}", "Remove it"):
            return
        await asyncio.to_thread(remove_rule, self.retinue, rule, target)
        self.redraw()
        self.say(f"{rule} was removed; it no longer applies from the next message on.", "success")
