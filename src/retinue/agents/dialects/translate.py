"""From the keys of a file to the fields of a spec, and what became of every key.

The steps are the same for every dialect. They guarantee: each key has exactly one fate; a
bad value is reported and replaced by the default of its field, and refuses the launch if the field restricts; two
keys for one field never add up to more than either; a misspelt key limits but never grants.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from retinue.agents.dialects.table import RESTRICTING, UNSET, BadValueError, Dialect, Match, squeeze
from retinue.agents.dialects.tables import SLIP
from retinue.agents.dialects.tools import DENY_ALL, ToolChoice, ToolRules, both_allow
from retinue.agents.dialects.values import ModelChoice
from retinue.agents.yaml_reader import Item, scalar_text
from retinue.core.spec import AgentSpec, Fate, ModelPolicy, Problem, SessionPolicy, Severity, Source, ToolPolicy
from retinue.core.spelling import distance

GRANTING_MODES = frozenset({"acceptEdits", "auto", "bypass", "bypassPermissions"})
NOT_IN_PLUGINS = frozenset({"hooks", "servers", "permission_mode"})

_MAY_BE_BLANK = frozenset({"hooks", "subagents", "tools.allow"})
"""Fields of which a key without a value has a meaning: no hooks, no agents, no tools."""

_HOOKS_REMEDY = "Write 'hooks' in a file of Claude Code, CodingCode or Retinue, or remove the key."
_BEYOND_BUILTIN = ("skills", "tools.extensions", "tools.exclude_extensions")
_KEY_IN_TEXT = re.compile(r"\s*([A-Za-z_][\w-]*)\s*[:=：]")


def _ignored(why: str) -> Fate:
    return Fate("ignored", None, why)


_NO_VALUE = _ignored("no value")
_NO_MODEL = ModelChoice("", None)
_EVERY_TOOL = ToolChoice((), allow=None)
_NO_RULES = ToolRules()


class SpecDraft:
    """The fields as read so far. `rows` remembers which row gave a field, to settle two rows
    that mean the same one."""

    def __init__(self, dialect: Dialect, source: Source) -> None:
        self.dialect = dialect
        self._exact = dialect.exact
        self.in_plugin = source == "plugin"
        self.values: dict[str, Any] = {}
        self.rows: dict[str, tuple[int, str]] = {}
        self.fates: dict[str, Fate] = {}
        self.extra: dict[str, Any] = {}
        self.problems: list[Problem] = []

    def add(self, item: Item) -> None:
        """Take one key of the file."""
        match = self._exact.get(item.key) or self.dialect.match(item.key)
        target = match.field.to if match is not None else None
        if (
            not self.in_plugin
            and (match is None or match.how != "own")
            and distance(squeeze(item.key), "hooks", 1) <= 1
        ):
            # Hooks guard, so they are not passed over; they start programs, so they are not guessed at.
            self.ignore(item, _ignored("not a key of this dialect"))
            self.refuse(item, "hooks", f"there is no such key in a file of {self.dialect.title}", _HOOKS_REMEDY)
            return
        if match is None or target is None:
            self.ignore(item, _ignored("unknown key") if match is None else match.fate)
            return
        if (match.how != "own" or self.in_plugin) and not self.accepts_key(item, match):
            return
        value = self.read(item, match, target)
        if value is UNSET:
            return
        if target in self.values:
            self.settle(item, match, target, value)
        else:
            self.values[target] = value
            self.rows[target] = (match.rank, item.key)

    def read(self, item: Item, match: Match, target: str) -> Any:
        """Return the value of the field, and report what is wrong with it."""
        row = match.field
        value = item.value
        kind = row.kind
        if kind.textual and isinstance(value, (bool, int, float)):
            # A scalar is its source text there.
            value = item.text if item.text is not None else scalar_text(value)
        try:
            value = kind.blank if value is None else kind.reader(value)
        except BadValueError as error:
            why = f"bad value: {error.why}"
            if row.restricts:
                self.refuse(item, target, error.why, error.remedy, error.code)
            else:
                self.report(error.code, "warning", item, f"'{item.key}': {error.why}.", error.remedy)
            if error.instead is UNSET:
                self.ignore(item, _ignored(why))
            else:
                self.fates[item.key] = Fate("translated", row.to, why)
            return error.instead
        says_nothing = value is UNSET and item.value in (None, "")
        self.fates[item.key] = _NO_VALUE if says_nothing else match.fate
        if item.value is None and row.restricts and target not in _MAY_BE_BLANK:
            # Such as `isolation:` with no value after it.
            self.refuse(item, target, "there is no value")
        elif item.value is None and target == "tools.allow":
            text = f"'{item.key}' has no value, so the agent has no tools."
            remedy = f"Write '{item.key}: none' to mean that, name tools, or remove the key to have them all."
            self.report("empty-tools", "warning", item, text, remedy)
        return value

    def settle(self, item: Item, match: Match, target: str, value: Any) -> None:
        """Settle a field that has a value: combine the two if that means fewer rights, else take the better row."""
        # Two restrictions that cannot be combined refuse the launch: either choice could be the wider one.
        combine = match.field.kind.combine
        old_rank, old_key = self.rows[target]
        before = self.values[target]
        if combine is not None:
            self.values[target] = combine(before, value)
        elif match.rank > old_rank:
            self.ignore(item, _ignored(f"'{old_key}' says it already"))
            return
        else:
            self.values[target] = value
            if old_key != item.key:
                self.fates[old_key] = _ignored(f"'{item.key}' says it")
        self.rows[target] = (match.rank, item.key)
        both = self.values[target]
        contradicts = combine is None
        if isinstance(both, ToolChoice):
            contradicts = both.allow == () and bool(before.allow and value.allow)
        if match.field.restricts and contradicts and before != value:
            self.refuse(item, target, f"it says something else than '{old_key}' before it", "Keep one of the two.")

    def accepts_key(self, item: Item, match: Match) -> bool:
        """Return whether to honour a key in a plugin, or one in another spelling than the dialect's; report it either
        way."""
        row = match.field
        if self.in_plugin and row.to in NOT_IN_PLUGINS:
            self.ignore(item, _ignored("not allowed in a plugin"))
            self.report("not-in-plugin", "info", item, f"'{item.key}' is ignored in plugins.")
            return False
        if match.how == "own":
            return True
        # A mode may let it act more freely than its own program would.
        stricter_mode = row.to == "permission_mode" and str(item.value).strip() not in GRANTING_MODES
        grants = row.kind.role == "grants" and not stricter_mode
        if match.how == "foreign" and grants:
            self.ignore(item, _ignored("unknown key, which would widen its rights"))
            text = f"'{item.key}: {item.value}' is ignored: no such key is known here, and it would widen rights."
            self.report("near-miss-key", "warning", item, text)
            return False
        if match.how == "typo" or grants:
            self.ignore(item, _ignored(f"unknown key; did you mean '{row.key}'?"))
            text = f"There is no key '{item.key}'; it is ignored."
            self.report("near-miss-key", "warning", item, text, f"Did you mean '{row.key}'?")
            return False
        if match.how != "foreign" or row.note is SLIP:
            text = f"'{item.key}' is not a key here; it was read as '{row.key}'."
            self.report("near-miss-key", "warning", item, text, f"Write '{row.key}'.")
        return True

    def mark_ignored(self) -> None:
        """Correct the fates of keys that another key of the file leaves without effect."""
        if self.values.get("isolated"):
            for target in _BEYOND_BUILTIN:
                if target in self.values:
                    self.fates[self.rows[target][1]] = _ignored("'isolated' leaves the built-in tools only")
        if self.values.get("session.persist") is False and "session.directory" in self.values:
            self.fates[self.rows["session.directory"][1]] = _ignored("'persist_session' is false")

    def refuse_missed_limits(self, block: str, items: Iterable[Item]) -> None:
        """Report each line that seems to be a key that restricts, and was read as part of a text: of a frontmatter
        that is not YAML."""
        lines = block.split("\n")
        missed = set(range(len(lines)))
        for item in items:
            missed.discard(item.line - 1)
            if not isinstance(item.value, str) or lines[item.line - 1].rstrip().endswith(("|", ">", "|-", ">-")):
                missed.difference_update(range(item.line - 1, item.end_line))
        for number in sorted(missed):
            key = _KEY_IN_TEXT.match(lines[number])
            match = self.dialect.match(key[1]) if key is not None else None
            if match is None or match.how not in ("own", "foreign") or not match.field.restricts:
                continue
            item = Item(match.field.key, None, number + 1, 1, number + 1)
            remedy = f"Write '{item.key}: …' at the start of the line, and put text that holds a colon in quotes."
            self.refuse(item, match.field.to or "", "the line was not read as 'key: value'", remedy)

    def ignore(self, item: Item, fate: Fate) -> None:
        self.fates[item.key] = fate
        self.extra[item.key] = item.value

    def report(
        self, code: str, severity: Severity, item: Item, text: str, remedy: str = "", *, refuses: bool = False
    ) -> None:
        self.problems.append(Problem(code, severity, text, remedy, item.key, item.line, item.column, refuses))

    def refuse(self, item: Item, field: str, why: str, remedy: str = "", code: str = "bad-value") -> None:
        """Report a problem that keeps the agent from being started."""
        effect = f"It decides {RESTRICTING[field]}, so the agent is not started until it is corrected."
        remedy = remedy or f"Correct the value of '{item.key}', or remove the key."
        self.report(code, "error", item, f"'{item.key}': {why}. {effect}", remedy, refuses=True)


def translate(dialect: Dialect, items: Iterable[Item], source: Source) -> SpecDraft:
    """Return the fields that the keys of a file mean."""
    draft = SpecDraft(dialect, source)
    for item in items:
        draft.add(item)
    draft.mark_ignored()
    return draft


def build(
    draft: SpecDraft, *, name: str, prompt: str, source: Source, path: str, problems: tuple[Problem, ...]
) -> AgentSpec:
    """Return the spec of a draft that is fit to be one. Its hash is still to come: see `parse.seal`."""
    values = draft.values
    fields = {target: value for target, value in values.items() if "." not in target}
    if prompt:
        fields["prompt"] = prompt
    choice: ModelChoice = values.get("model.name", _NO_MODEL)
    fallbacks = (*choice.fallbacks, *values.get("model.fallbacks", ()))
    return AgentSpec(
        name=name,
        **fields,
        tools=_tool_policy(values),
        model=ModelPolicy(choice.name, fallbacks, values.get("model.thinking"), values.get("model.temperature")),
        session=SessionPolicy(
            values.get("session.persist"), values.get("session.directory"), values.get("session.transcript")
        ),
        extra=draft.extra,
        source=source,
        path=path,
        dialect=draft.dialect.name,
        fates=draft.fates,
        problems=problems,
    )


def _tool_policy(values: Mapping[str, Any]) -> ToolPolicy:
    choice: ToolChoice = values.get("tools.allow", _EVERY_TOOL)
    rules: ToolRules = values.get("tools.rules", _NO_RULES)
    refused = tuple(name for name in choice.refused if name != "*")
    denied = (*values.get("tools.deny", ()), *refused, *rules.deny)
    allow = both_allow(choice.allow, rules.only)
    if DENY_ALL[0] in denied:
        allow = ()
    extensions, excluded = values.get("tools.extensions"), values.get("tools.exclude_extensions", ())
    return ToolPolicy(allow, tuple(dict.fromkeys(denied)), choice.selectors, extensions, excluded, rules.rules)
