"""What of a project's files needs consent, and taking it out of effect until there is some.

A setting needs consent when it widens rights: hooks, allowing rules, further folders, a wider mode, a
larger budget, a model server elsewhere. One that takes away (deny and ask rules, a narrower mode,
a smaller budget) never does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.format import replace_unprintable
from retinue.core.spec import AgentSpec
from retinue.guard.trust import Trust, content_of
from retinue.http.address import is_loopback, origin_of
from retinue.models.keys import named_variables
from retinue.models.presets import BUILT_IN, OTHER_NAMES, PRESETS
from retinue.settings.field import Origin
from retinue.settings.load import Loaded, Read, SettingsProblem
from retinue.settings.table import fields

WIDE_MODES = frozenset({"acceptEdits", "auto", "bypassPermissions"})
"""Modes under which things happen unasked that `default` would ask about."""
REMEDY = "See what it brings with `retinue trust`, and consent with `retinue trust add`."

_GIVES = frozenset(
    "hooks mcpServers lsp.servers extraRoots localModel permissions.autoModel integrate.check web.allowHosts"
    " web.searxngUrl".split()
)
_GIVES_WHEN_TRUE = ("hooks.failOpen", "disableAllHooks", "allowWrite", "subagents.allowWrite")
_WEAKENS_WHEN_FALSE = ("checkpoints.enabled", "worktreeIsolation")
_PERMISSIONS = ("permissions.allow", "permissions.additionalDirectories", "permissions.defaultMode")
"""What widens permissions needs consent too; that is kept where the rules are gathered."""
_BUDGETS = "budget."
_SHOWN = 2_000


class TrustSubject(Struct, frozen=True):
    """One file of a project and what it would bring. `contents` are what consent is bound to."""

    path: Path
    contents: tuple[bytes | str, ...]
    what: tuple[str, ...]

    def answer(self, trust: Trust) -> str:
        """`trusted`, `refused`, or `unknown` when nobody was asked about this content."""
        if all(trust.is_trusted(self.path, content) for content in self.contents):
            return "trusted"
        return trust.answer(self.path, self.contents[0]) or "unknown"


def brings(spec: AgentSpec) -> tuple[str, ...]:
    """Return what of an agent's file needs consent, one line each."""
    found = [f"hook {hook.event}: {shown_handler(hook.handler)}" for hook in spec.hooks]
    found += [f"MCP server {server.name}: {_brief(server.config)}" for server in spec.servers or () if server.config]
    if spec.permission_mode in WIDE_MODES:
        found.append(f"permission mode {spec.permission_mode}")
    return tuple(found)


def without_rights(spec: AgentSpec) -> AgentSpec:
    """Return the agent as it runs without consent. It keeps its hash: it is still the same file."""
    servers = spec.servers
    if servers is not None:
        servers = tuple(server for server in servers if server.config is None)
    mode = None if spec.permission_mode in WIDE_MODES else spec.permission_mode
    return replace(spec, hooks=(), servers=servers, permission_mode=mode)


def agent_subjects(specs: Iterable[AgentSpec]) -> list[TrustSubject]:
    """Return the agents of a project that bring something."""
    found = []
    for spec in specs:
        what = brings(spec)
        if what and spec.source == "project" and spec.path is not None:
            path = Path(spec.path)
            with suppress(OSError):
                found.append(TrustSubject(path, (content_of(spec), path.read_bytes()), what))
    return found


def settings_subject(path: Path, data: Mapping[str, Any], content: bytes) -> TrustSubject | None:
    """Return what a settings file, ours or Claude Code's, would bring; None for one that brings nothing."""
    what: list[str] = []
    hooks = data.get("hooks")
    if isinstance(hooks, Mapping):
        for event, entries in hooks.items():
            if event != "failOpen":
                what += _handlers(event, entries)
    for name, value in _list_values(data):
        gives = _needs_consent(name, value, None) or (name == "providers" and _wants_keys(value))
        if name != "hooks" and (gives or (name in _PERMISSIONS and value)):
            what.append(f"{name}: {_brief(value)}")
    if what:
        return TrustSubject(path, (content,), tuple(what))
    return None


def withhold(loaded: Loaded, trust: Trust) -> Loaded:
    """Return the settings without what a project's files bring unconsented. Each thing taken out
    becomes a problem of its file, with the remedy."""
    if not any(map(_gives, loaded.layers)):
        return loaded
    layers: list[Read] = []
    problems = list(loaded.problems)
    below: dict[str, Any] = {}
    for layer in loaded.layers:
        gone: tuple[str, ...] = ()
        if not layer.origin.personal and (trust.everything or _is_trusted(layer.origin, trust)):
            layer = _without(layer, (), consented=True)
        elif not layer.origin.personal:
            gone = _list_widening(layer, below)
        if gone:
            layer = _without(layer, gone)
            names = ", ".join(map(fields_by_attribute().__getitem__, gone))
            problems.append(SettingsProblem(layer.origin.where, names, f"has no effect: it is not trusted. {REMEDY}"))
        layers.append(layer)
        below |= layer.values
    return Loaded(tuple(layers), tuple(problems), loaded.unknown, loaded.unused)


def untrusted(loaded: Loaded) -> tuple[str, ...]:
    """Return what `withhold` has taken out, for the notes of a run."""
    return tuple(str(problem) for problem in loaded.problems if problem.message.endswith(REMEDY))


def fields_by_attribute() -> dict[str, str]:
    return {field.attribute: name for name, field in fields().items()}


def shown_handler(handler: Mapping[str, Any]) -> str:
    """Return what a hook would run, in one line."""
    words = ["?"]
    for key in ("command", "url", "python", "script", "handler"):
        if key in handler:
            words = [str(handler[key])]
            break
    arguments = handler.get("args")
    if isinstance(arguments, (list, tuple)):
        words += map(str, arguments)
    return _brief(" ".join(words))


def _handlers(event: str, entries: Any) -> list[str]:
    """Return one line for each thing that would run, in either of the two shapes."""
    found: list[str] = []
    for entry in _as_list(entries):
        head, handlers = f"hook {event}", [entry]
        if isinstance(entry, Mapping):
            handlers = _as_list(entry.get("hooks", [entry]))
            if entry.get("matcher"):
                head += f" ({entry['matcher']})"
        for handler in handlers:
            if isinstance(handler, Mapping):
                found.append(f"{head}: {shown_handler(handler)}")
            else:
                found.append(f"{head}: {_brief(handler)}")
    return found


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return [value]


def _gives(layer: Read) -> bool:
    return not layer.origin.personal and bool(_list_widening(layer, {}) or layer.values.get("providers"))


def _list_widening(layer: Read, below: Mapping[str, Any]) -> tuple[str, ...]:
    names = fields_by_attribute()
    found: list[str] = []
    for attribute, value in layer.values.items():
        if attribute in names and _needs_consent(names[attribute], value, below.get(attribute)):
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


def _is_trusted(origin: Origin, trust: Trust) -> bool:
    path = Path(origin.where)
    try:
        return trust.is_trusted(path, path.read_bytes())
    except OSError:
        return False


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


def _brief(value: Any) -> str:
    import json

    text = value
    if not isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False, default=str)
    # Control characters could hide on a terminal what someone is about to consent to.
    text = replace_unprintable(text)
    if len(text) <= _SHOWN:
        return text
    return f"{text[: _SHOWN - 1]}…"
