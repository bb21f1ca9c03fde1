"""Settings with their values and origins, and changes to one setting in one file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from retinue.app.text import optional
from retinue.cluster import open_project
from retinue.errors import StateError, UsageError
from retinue.guard.trust import settings_in_effect
from retinue.models.keys import environment
from retinue.settings.field import Choice, Flag, Number, Texts, Whole
from retinue.settings.field import Field as Field
from retinue.settings.field import TextValue as TextKind
from retinue.settings.foreign import foreign_files
from retinue.settings.load import RETIRED, SettingsProblem, load_settings, nearest_name, settings_files
from retinue.settings.load import Explanation as Explanation
from retinue.settings.load import Loaded as Loaded
from retinue.settings.load import raw_value as raw_value
from retinue.settings.places import has_password
from retinue.settings.table import Settings as Settings
from retinue.settings.table import fields as fields
from retinue.settings.table import find
from retinue.settings.write import Saved as Saved
from retinue.settings.write import Target as Target
from retinue.settings.write import counts_in as counts_in
from retinue.settings.write import remove_unknown, save_settings, target_file

if TYPE_CHECKING:
    from retinue.runs.project import Project

HIDDEN_VALUE = "[hidden]"
_SECRET_WORDS = ("apikey", "token", "secret", "password", "authorization")
# The precedence of the three writable files.
_LAYER_RANKS = {"user": 0, "project": 1, "local": 2}


class OriginView(Struct, frozen=True):
    """The origin of a value. `where` is a file, a variable or a flag."""

    layer: str
    where: str

    def __str__(self) -> str:
        return "default" if self.layer == "default" else f"{self.layer}: {self.where}"


class LayerView(Struct, frozen=True):
    """A layer that sets a setting. `name` is the spelling that it uses."""

    layer: str
    where: str
    name: str
    value: Any


class SettingView(Struct, frozen=True, kw_only=True):
    """One setting. `layers` are all that set it, the effective one last. `applies` states when a change takes
    effect."""

    name: str
    value: Any
    default: Any
    origin: OriginView
    layers: list[LayerView]
    accepts: str
    applies: str
    section: str
    aliases: list[str]
    variables: Sequence[str]
    doc: str


class SettingsFile(Struct, frozen=True):
    """A file that settings are read from, whether or not it exists."""

    layer: str
    path: str
    exists: bool


class SettingsList(Struct, frozen=True):
    """All settings, the files they are read from, and the values that have no effect."""

    settings: list[SettingView]
    files: list[SettingsFile]
    problems: Sequence[SettingsProblem]
    unknown: Sequence[str]
    unused: Sequence[SettingsProblem]


class SavedSetting(SettingView, frozen=True, kw_only=True):
    """A setting after a change of the file `saved`."""

    saved: str


def plain(value: Any, key: str = "") -> Any:
    """Return a value as JSON. Apparent keys and tokens are hidden, unless they name a variable."""
    if isinstance(value, Mapping):
        return {name: plain(item, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, key) for item in value]
    if not isinstance(value, str) or not value or value.startswith("$") or key.endswith("Env"):
        return value
    if any(word in key.replace("-", "").lower() for word in _SECRET_WORDS):
        return HIDDEN_VALUE
    return value


def shown(value: Any) -> str:
    """Return the value as in a settings file, with secrets hidden."""
    if value is None:
        return "(not set)"
    return json.dumps(plain(value), ensure_ascii=False)


def view_setting(explanation: Explanation) -> SettingView:
    """Return a setting with secrets hidden."""
    field = explanation.field
    return SettingView(
        name=field.name,
        value=plain(explanation.value),
        default=plain(field.default),
        origin=OriginView(explanation.origin.layer, explanation.origin.where),
        layers=[
            LayerView(origin.layer, origin.where, name, plain(value)) for origin, name, value in explanation.layers
        ],
        accepts=field.kind.accepts,
        applies=field.applies,
        section=field.section,
        aliases=[alias.name for alias in field.aliases],
        variables=field.variables,
        doc=field.doc,
    )


def explanation(setting: SettingView) -> str:
    """Return all details of a setting for people."""
    lines = [
        f"{setting.name} = {shown(setting.value)}",
        f"  {setting.doc}",
        f"  accepts   {setting.accepts}",
        f"  applies   {setting.applies}",
        f"  default   {shown(setting.default)}",
    ]
    for layer in reversed(setting.layers):
        origin = OriginView(layer.layer, layer.where)
        mark = "from" if origin == setting.origin else "under"
        written = "" if layer.name == setting.name else f" (as {layer.name})"
        lines.append(f"  {mark:<8}  {origin}{written}: {shown(layer.value)}")
    if not setting.layers:
        lines.append("  from      default")
    if setting.variables:
        lines.append(f"  variable  {', '.join(setting.variables)}")
    if setting.aliases:
        lines.append(f"  aliases   {', '.join(setting.aliases)}")
    return "\n".join(lines)


def matching_fields(words: Iterable[str]) -> list[Field]:
    """Return the settings that contain all of the words in name, description or section."""
    matches = []
    for field in fields().values():
        text = f"{field.name} {field.doc} {field.section}".casefold()
        if all(word.casefold() in text for word in words):
            matches.append(field)
    return matches


def surprise_of(setting: SettingView, target: Target, *, unset: bool) -> tuple[str, bool]:
    """Return a warning about the effect of a change, and whether the change has no effect here."""
    layer = setting.origin.layer
    is_stronger = layer in ("environment", "flag") or _LAYER_RANKS.get(layer, 0) > _LAYER_RANKS[target]
    if is_stronger and not unset:
        return f"It has no effect here: {setting.origin} goes before it.", True
    if setting.applies != "live":
        return f"It takes effect with the {setting.applies} on.", False
    return "", False


# Questions


def list_settings(cwd: Path, words: Iterable[str] = ()) -> tuple[SettingsList, Loaded]:
    """Return the settings in effect at `cwd` that match all of the words, and the loaded files."""
    loaded, variables = settings_in_effect(cwd, environment()), environment()
    files = [(foreign.layer, Path(foreign.path)) for foreign in foreign_files(cwd, variables)]
    files += settings_files(cwd, variables)
    views = SettingsList(
        [view_setting(loaded.explain(field.name)) for field in matching_fields(words)],
        [SettingsFile(layer, str(path), path.exists()) for layer, path in files],
        loaded.problems,
        loaded.unknown,
        loaded.unused,
    )
    return views, loaded


def find_setting(cwd: Path, name: str) -> tuple[SettingView, Sequence[str]]:
    """Return one setting, and the warnings of all files. Raise UsageError, with the closest name."""
    loaded = settings_in_effect(cwd, environment())
    return view_setting(_explain(loaded, name)), loaded.warnings


def _explain(loaded: Loaded, name: str) -> Explanation:
    try:
        return loaded.explain(name)
    except KeyError:
        hint = optional(" Did you mean {}?", nearest_name(name))
        if name in RETIRED:
            hint = f" There was one: {RETIRED[name]}."
        raise UsageError(
            f"There is no setting '{name}'.{hint}", remedy="See all of them with: retinue settings list --all"
        ) from None


# Changes


def set_setting(cwd: Path, name: str, value: str | None, target: Target) -> tuple[SavedSetting, list[str]]:
    """Write a value into one file, or remove the setting from it for None. Return the setting as it is now, and the
    problems of the file. Raise UsageError for an invalid change, and StateError for a file that cannot be written."""
    if name == "database" and value and has_password(value):
        raise UsageError(
            "A password in the arguments of a program is shown to every user of the machine.",
            remedy="Leave it out of the URL and put it into ~/.pgpass, or write the URL into the file with an editor.",
        )
    before, variables = load_settings(cwd), environment()
    field = _explain(before, name).field
    path = target_file(cwd, target, variables)
    if value is None and not _is_in_file(path, before, field):
        origin = before.explain(field.name).origin
        raise UsageError(f"{field.name} is not set in {path}.", remedy=f"Its value comes from: {origin}")
    raw = None if value is None else raw_value(field, value)
    saved = _checked(save_setting(open_project(cwd), field.name, raw, target))
    loaded = settings_in_effect(cwd, variables)
    problems = []
    for problem in loaded.problems:
        if problem.where == str(saved.path) and field.name in problem.field:
            problems.append(str(problem))
    view = view_setting(_explain(loaded, field.name))
    values = {key: getattr(view, key) for key in view.__struct_fields__}
    return SavedSetting(**values, saved=str(saved.path)), problems


def is_retired(cwd: Path, name: str, target: Target) -> bool:
    """Return whether the file of `target` contains a name that is not a setting."""
    if find(name) is not None:
        return False
    path = str(target_file(cwd, target, environment()))
    return name in {problem.field for problem in load_settings(cwd).problems if problem.where == path}


def remove_retired(cwd: Path, name: str, target: Target) -> Path:
    """Remove such a name from the file of `target`, and return that file."""
    return _checked(remove_unknown(name, cwd=cwd, target=target)).path


def _checked(saved: Saved) -> Saved:
    if not saved.persisted:
        raise StateError(saved.problem or f"{saved.path} cannot be written.", remedy="Nothing was changed.")
    return saved


def _is_in_file(path: Path, loaded: Loaded, field: Field) -> bool:
    """Return whether the file sets the setting, validly or not."""
    good = any(origin.where == str(path) for origin, _, _ in loaded.explain(field.name).layers)
    return good or any(field.name in problem.field for problem in loaded.problems if problem.where == str(path))


# Editing a value


def choices(field: Field) -> list[tuple[str, str]] | None:
    """Return the values to choose from; None if a value must be typed."""
    if isinstance(field.kind, Flag):
        return [("true", "true"), ("false", "false")]
    if isinstance(field.kind, Choice):
        return [(word, word) for word in field.kind.words]
    return None


def is_line(field: Field) -> bool:
    """Return whether a value fits on one line. Objects and lists of them need more room."""
    return isinstance(field.kind, Whole | Number | TextKind | Texts)


def as_text(field: Field, value: Any) -> str:
    """Return a value as text to edit."""
    if value is None:
        return ""
    if isinstance(field.kind, Texts):
        return ", ".join(value)
    if isinstance(value, str):
        return value
    indent = None if is_line(field) else 2
    return json.dumps(plain(value), ensure_ascii=False, indent=indent)


def problem(field: Field, text: str) -> str:
    """Return why a typed text is not a valid value; empty if it is."""
    if HIDDEN_VALUE in text:
        return f"{HIDDEN_VALUE} replaces a secret that would be lost. Edit the file instead."
    complaints: list[str] = []
    field.kind.read(
        raw_value(field, text), field.name, lambda at, accepts: complaints.append(f"{at} must be {accepts}.")
    )
    return "".join(complaints[:1])


def own_value(loaded: Loaded, field: Field, target: Target) -> Any:
    """Return the value in the file of `target`; None if the file does not set it."""
    for layer in loaded.layers:
        if layer.origin.layer == target and field.attribute in layer.values:
            return layer.values[field.attribute]
    return None


def save_setting(project: Project, name: str, raw: Any, target: Target) -> Saved:
    """Write one setting, or remove it for None. Consent to the file stays valid, because the person changes it through
    us."""
    from retinue.runs.project import consent_stays

    with consent_stays(project, target_file(project.cwd, target, project.environment)):
        return save_settings({name: raw}, cwd=project.cwd, target=target, environment=project.environment)
