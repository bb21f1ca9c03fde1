"""What of a project's files needs consent, and taking it out of effect until there is some.

A setting needs consent when it widens rights: hooks, allowing rules, further folders, a wider mode, a
larger budget, a model server elsewhere. One that takes away (deny and ask rules, a narrower mode,
a smaller budget) never does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from retinue.core.controls import in_line
from retinue.core.files import read_file
from retinue.core.hook_events import events_of
from retinue.core.provenance import Right
from retinue.core.spec import AgentSpec
from retinue.guard.trust import Trust, content_of
from retinue.http.address import is_loopback, origin_of
from retinue.models.keys import named_variables
from retinue.models.presets import BUILT_IN, OTHER_NAMES, PRESETS
from retinue.settings.load import Loaded, Read, SettingsProblem
from retinue.settings.table import fields

WIDE_MODES = frozenset({"acceptEdits", "auto", "bypassPermissions"})
"""Modes under which things happen unasked that `default` would ask about."""
REMEDY = "See what it brings with `retinue trust`, and consent with `retinue trust add`."

_GIVES = frozenset(
    "hooks mcpServers lsp.servers extraRoots permissions.autoModel integrate.check web.allowHosts"
    " web.searxngUrl".split()
)
_RIGHTS: Mapping[str, Right] = {
    "hooks": "hooks",
    "mcpServers": "servers",
    "lsp.servers": "servers",
    "extraRoots": "folders",
}
"""What settings give that is more than a wider setting."""
_SANDBOX = "sandbox."
_GIVES_WHEN_TRUE = ("hooks.failOpen", "disableAllHooks", "allowWrite", "subagents.allowWrite")
_WEAKENS_WHEN_FALSE = ("checkpoints.enabled", "worktreeIsolation")
_PERMISSIONS = ("permissions.allow", "permissions.additionalDirectories", "permissions.defaultMode")
"""What widens permissions needs consent too; that is kept where the rules are gathered."""
_BUDGETS = "budget."
_TARGETS = ("command", "url", "python", "script", "handler")
"""Keys of a hook or server that can name what it runs."""
_LABELS = frozenset({"type", "name", "description", "statusMessage", "timeout", "matcher", "event", "point", "hook"})
"""Keys of a hook that change nothing of what it runs, or are shown before it."""


class TrustSubject(Struct, frozen=True):
    """One file of a project and what it would bring: `what` has a line for each thing, unabridged, in which every
    character shows itself. `contents` are what consent is bound to."""

    path: Path
    contents: tuple[bytes | str, ...]
    what: tuple[str, ...]

    def __post_init__(self) -> None:
        # A control character could hide on a terminal what someone is about to consent to, a line break forge a line.
        force_setattr(self, "what", tuple(map(in_line, self.what)))

    def answer(self, trust: Trust) -> str:
        """`trusted`, `refused`, or `unknown` when nobody was asked about this content."""
        if trust.everything or all(trust.has_consent(self.path, content) for content in self.contents):
            return "trusted"
        return trust.answer(self.path, self.contents[0]) or "unknown"


def brings(spec: AgentSpec) -> dict[Right, tuple[str, ...]]:
    """Return what of an agent's definition needs a right, one line each."""
    hooks = [f"{describe_event(hook.event, hook.matcher)}: {describe_program(hook.handler)}" for hook in spec.hooks]
    servers = [
        f"MCP server {server.name}: {describe_program(server.config)}" for server in spec.servers or () if server.config
    ]
    modes = [f"permission mode {spec.permission_mode}"] if spec.permission_mode in WIDE_MODES else []
    found: dict[Right, list[str]] = {"hooks": hooks, "servers": servers, "permissions": modes}
    return {right: tuple(lines) for right, lines in found.items() if lines}


def without_rights(spec: AgentSpec, rights: Iterable[Right]) -> AgentSpec:
    """Return the agent as it runs without `rights`. It keeps its hash: it is still the same file."""
    for right in rights:
        match right:
            case "hooks":
                spec = replace(spec, hooks=())
            case "servers" if spec.servers is not None:
                spec = replace(spec, servers=tuple(server for server in spec.servers if server.config is None))
            case "permissions" if spec.permission_mode in WIDE_MODES:
                spec = replace(spec, permission_mode=None)
            case _:
                pass
    return spec


def agent_subjects(specs: Iterable[AgentSpec]) -> list[TrustSubject]:
    """Return the agents of a project that bring something."""
    found = []
    for spec in specs:
        what = [line for lines in brings(spec).values() for line in lines]
        if what and spec.provenance == "project" and spec.path is not None:
            path = Path(spec.path)
            with suppress(OSError):
                found.append(TrustSubject(path, (content_of(spec), read_file(path)), tuple(what)))
    return found


def settings_subject(path: Path, data: Mapping[str, Any], content: bytes) -> TrustSubject | None:
    """Return what a settings file, ours or Claude Code's, would bring; None for one that brings nothing."""
    what: list[str] = []
    hooks = data.get("hooks")
    if isinstance(hooks, Mapping):
        for event, entries in hooks.items():
            if event != "failOpen":
                what += _handlers(str(event), entries)
    elif isinstance(hooks, list):
        for entry in hooks:
            what += _handlers(named_event(entry), entry)
    elif hooks:
        what.append(f"hooks: {_text(hooks)}")
    for name, value in _list_values(data):
        gives = _needs_consent(name, value, None) or (name == "providers" and _wants_keys(value))
        if name != "hooks" and (gives or (name in _PERMISSIONS and value)):
            what.append(f"{name}: {_text(value)}")
    if what:
        return TrustSubject(path, (content,), tuple(what))
    return None


def withhold(loaded: Loaded, trust: Trust) -> Loaded:
    """Return the settings without what a project's files bring unconsented. Each thing taken out
    becomes a problem of its file, with the remedy."""
    on_worker = trust.allowed is not None
    if not any(_gives(layer, on_worker) for layer in loaded.layers):
        return loaded
    layers: list[Read] = []
    problems = list(loaded.problems)
    below: dict[str, Any] = {}
    for layer in loaded.layers:
        if not layer.origin.personal:
            layer, withheld = _withhold_from(layer, below, trust)
            problems += withheld
        layers.append(layer)
        below |= layer.values
    return Loaded(tuple(layers), tuple(problems), loaded.unknown, loaded.unused)


def _withhold_from(layer: Read, below: Mapping[str, Any], trust: Trust) -> tuple[Read, list[SettingsProblem]]:
    """Return a layer of a project without what it may not give, and what to tell of that."""
    path, provenance = Path(layer.origin.where), layer.origin.provenance
    content = cache(lambda: read_file(path))
    if trust.permits("settings", provenance, path, content):
        return _without(layer, (), consented=True), []
    names, gone = fields_by_attribute(), dict[Right, list[str]]()
    for attribute in _list_widening(layer, below, on_worker=trust.allowed is not None):
        right = _RIGHTS.get(names[attribute], "settings")
        if not trust.permits(right, provenance, path, content):
            gone.setdefault(right, []).append(attribute)
    problems = []
    for remedy, attributes in _by_remedy(gone, trust, path).items():
        withheld = tuple(map(names.__getitem__, attributes))
        problems.append(SettingsProblem(str(path), ", ".join(withheld), f"has no effect: {remedy}", withheld=withheld))
    return _without(layer, tuple(attribute for each in gone.values() for attribute in each)), problems


def _by_remedy(gone: Mapping[Right, list[str]], trust: Trust, path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for right, attributes in gone.items():
        remedy = f"it is not trusted. {REMEDY}" if trust.allowed is None else trust.remedy(right, path)
        found.setdefault(remedy, []).extend(attributes)
    return found


def untrusted(loaded: Loaded, setting: str | None = None) -> tuple[str, ...]:
    """Return sentences about the settings that `withhold` has taken out; with `setting`, about that one only."""
    withheld = [problem for problem in loaded.problems if problem.withheld]
    return tuple(str(problem) for problem in withheld if setting is None or setting in problem.withheld)


def fields_by_attribute() -> dict[str, str]:
    return {field.attribute: name for name, field in fields().items()}


def named_event(entry: Any) -> str:
    """Return the event that an entry of a list of hooks names."""
    if isinstance(entry, Mapping):
        for key in ("event", "point", "hook"):
            if entry.get(key):
                return str(entry[key])
    return "?"


def describe_event(name: str, matcher: object = None) -> str:
    """Return the event of a hook and its matcher. A name that is no event is quoted, so that it passes for no other."""
    shown = f"hook {name}" if events_of(name) else f"hook of the unknown event '{name}', which has no effect"
    return f"{shown} ({matcher})" if matcher else shown


def describe_program(handler: Mapping[str, Any]) -> str:
    """Return what a hook or a server would run and how: the command or address, and all else that it sets."""
    rest = {key: value for key, value in handler.items() if key not in _LABELS}
    targets = [key for key in _TARGETS if key in rest]
    if len(targets) != 1:
        return _text(rest)
    words = [_text(rest.pop(targets[0]))]
    if isinstance(rest.get("args"), (list, tuple)):
        words += map(_text, rest.pop("args"))
    if rest:
        words.append(_text(rest))
    return " ".join(words)


def _handlers(event: str, entries: Any) -> list[str]:
    """Return one line for each thing that would run, in either of the two shapes."""
    found: list[str] = []
    for entry in _as_list(entries):
        head, handlers = describe_event(event), [entry]
        if isinstance(entry, Mapping):
            head = describe_event(event, entry.get("matcher"))
            handlers = _as_list(entry.get("hooks", [entry]))
        for handler in handlers:
            shown = describe_program(handler) if isinstance(handler, Mapping) else _text(handler)
            found.append(f"{head}: {shown}")
    return found


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return [value]


def _gives(layer: Read, on_worker: bool) -> bool:
    if layer.origin.personal:
        return False
    return bool(_list_widening(layer, {}, on_worker=on_worker) or layer.values.get("providers"))


def _list_widening(layer: Read, below: Mapping[str, Any], *, on_worker: bool) -> tuple[str, ...]:
    """Return the attributes of settings that widen rights. On a worker a project changes nothing of the sandbox."""
    names = fields_by_attribute()
    found: list[str] = []
    for attribute, value in layer.values.items():
        name = names.get(attribute, "")
        if (on_worker and name.startswith(_SANDBOX)) or (name and _needs_consent(name, value, below.get(attribute))):
            found.append(attribute)
    return tuple(found)


def _needs_consent(name: str, value: Any, below: Any) -> bool:
    if name in _GIVES:
        return bool(value)
    if name in _GIVES_WHEN_TRUE:
        return value is True
    if name in _WEAKENS_WHEN_FALSE:
        return value is False
    if name == "providers":
        return isinstance(value, Mapping) and any(_leads_away(str(name), entry) for name, entry in value.items())
    # Leaving the wider confinement of the user's own settings weakens it.
    if name == "sandbox.mode":
        return bool(below == "workspace" and value != below)
    if name == "sandbox.hidden":
        return isinstance(below, list | tuple) and any(path not in (value or ()) for path in below)
    # A run that nobody watches would stand still.
    if name == "permissions.headless":
        return bool(value == "wait")
    if name == "permissions.expirySeconds" and isinstance(value, (int, float)):
        return value > (below if isinstance(below, (int, float)) else fields()[name].default)
    if name == "web.taint":
        return bool(value == "off")
    if name.startswith(_BUDGETS) and isinstance(value, (int, float)) and isinstance(below, (int, float)):
        return value > below
    return False


def _leads_away(name: str, provider: Any) -> bool:
    """Return whether all that an agent reads would go to a host that the project names, or what is meant
    for a known provider to any other address, this machine included."""
    url = provider.get("baseUrl") if isinstance(provider, Mapping) else None
    if not isinstance(url, str) or not url.strip():
        return False
    word = name.strip().lower()
    word = OTHER_NAMES.get(word, word)
    known = BUILT_IN.get(word) or PRESETS.get(word)
    redirects = known is not None and known.needs_key and origin_of(url) != origin_of(known.url)
    return redirects or not is_loopback(url)


def _wants_keys(providers: Any) -> bool:
    """Return whether an entry names variables to be sent, or an address that could get a key."""
    entries = providers.values() if isinstance(providers, Mapping) else ()
    return any(isinstance(each, Mapping) and (each.get("baseUrl") or named_variables(each)) for each in entries)


def _without(layer: Read, gone: tuple[str, ...], *, consented: bool = False) -> Read:
    kept = Read(layer.origin._replace(consented=consented))
    kept.values, kept.names = dict(layer.values), dict(layer.names)
    for attribute in gone:
        kept.values.pop(attribute, None)
        kept.names.pop(attribute, None)
    return kept


def _list_values(data: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return values by dotted name, two levels deep, as settings files have them."""
    found: list[tuple[str, Any]] = []
    for key, value in data.items():
        found.append((f"{prefix}{key}", value))
        if isinstance(value, Mapping) and not prefix:
            found += _list_values(value, f"{key}.")
    return found


def _text(value: Any) -> str:
    import json

    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
