"""Consent to what the files of a project bring along (hooks, servers, wider settings), which has no effect without it.

Consent is for exactly this content of exactly this file: another folder, a copy or a changed file needs a new one.
It is stored in `RETINUE_HOME/trust.json`, which only its owner can read, and never in the project. A setting needs
consent when it widens rights: hooks, allowing rules, further folders, a wider mode, a larger budget, a model server
elsewhere. One that takes rights away (deny and ask rules, a narrower mode, a smaller budget) always has effect.
`core/foreign.py` decides which provenance needs consent. On a worker the files of a project are those of a sender:
they need the permission of the worker's operator, and the consent of the sender, which comes with the run.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal, assert_never

from msgspec import Struct, ValidationError, convert
from msgspec.structs import force_setattr, replace

from retinue.core.controls import in_line
from retinue.core.files import read_file
from retinue.core.foreign import Provenance, Right, requirement
from retinue.core.hook_events import events_of
from retinue.core.spec import AgentSpec
from retinue.errors import StateError
from retinue.http.address import is_loopback, origin_of
from retinue.models.keys import named_variables
from retinue.models.presets import BUILT_IN, OTHER_NAMES, PRESETS
from retinue.settings.foreign import read_object
from retinue.settings.load import Loaded, Read, SettingsProblem, load_settings
from retinue.settings.places import private_folder, retinue_home
from retinue.settings.table import fields
from retinue.settings.write import locked_folder, replace_file

FILE = "trust.json"
Answer = Literal["trusted", "refused"]


class Consent(Struct, frozen=True):
    """One stored answer. `what` is the list that the person saw."""

    path: str
    digest: str
    answer: Answer
    at: float = 0.0
    what: tuple[str, ...] = ()


def digest(content: bytes | str) -> str:
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()


class Trust:
    """`everything` trusts whatever it is asked about, for this process only (`--trust`). On a worker, `allowed` are
    the rights that its operator lets senders bring, and `consents` hashes of contents that the sender of a run has
    consented to, by file; elsewhere `allowed` is None."""

    def __init__(
        self,
        home: Path,
        *,
        everything: bool = False,
        allowed: Collection[Right] | None = None,
        consents: Mapping[Path, Collection[str]] | None = None,
    ) -> None:
        self.file = home / FILE
        self.everything = everything
        self.allowed = allowed
        self._known: Mapping[str, Mapping[str, Consent]] = {}
        self._signature: tuple[int, int, int] | None = None
        self._brought = {_key(path): frozenset(digests) for path, digests in (consents or {}).items()}

    def permits(
        self, right: Right, provenance: Provenance, path: Path, content: Callable[[], bytes | str] | None = None
    ) -> bool:
        """Return whether a file of this provenance may give `right`. `content` returns what consent is about, if that
        is not what the file holds, and may raise OSError; it is only called where consent decides."""
        needed = requirement(provenance, right)
        on_worker = self.allowed is not None
        # The files of a project are those of whoever sent the run.
        if needed == "consent" and on_worker and not self.permits(right, "machine", path, content):
            return False
        match needed:
            case "none":
                return True
            case "never":
                return False
            case "operator":
                return self.everything or right in (self.allowed or ())
            case "consent":
                try:
                    return self.everything or self.has_consent(path, content() if content else read_file(path))
                except OSError:
                    return False
            case _:
                assert_never(needed)

    def has_consent(self, path: Path, content: bytes | str) -> bool:
        """Return whether someone has consented to this content in this place; on a worker, the sender of the run."""
        return self.answer(path, content) == "trusted"

    def trusts(self, spec: AgentSpec, right: Right) -> bool:
        """Return whether an agent's definition may give `right`. One of a project that has no file was made by a
        program that uses the library: it needs no consent. A plugin's agents may bring nothing at all, even with
        consent."""
        if spec.provenance == "project" and spec.path is None:
            return True
        if not self.permits(right, spec.provenance, Path(spec.path or ""), lambda: content_of(spec)):
            return False
        # The operator lets senders bring it. Its sender must have consented to what a project's file brings.
        if self.everything or not spec.foreign or spec.source != "project":
            return True
        return any(digest(content_of(spec)) in digests for digests in self._brought.values())

    def answer(self, path: Path, content: bytes | str) -> Answer | None:
        """Return the answer for this content, or None if nobody was asked."""
        if self.allowed is not None:
            return "trusted" if digest(content) in self._brought.get(_key(path), ()) else None
        consent = self._read().get(_key(path), {}).get(digest(content))
        return None if consent is None else consent.answer

    def remedy(self, right: Right, path: Path | str) -> str:
        """Return a sentence that states how a file can be allowed to give `right`."""
        if self.allowed is None:
            return f"Consent with: retinue trust add {path}"
        if requirement("machine", right) == "operator" and right not in self.allowed:
            return f"The operator of the worker can allow it: retinue worker --allow {right}"
        if requirement("machine", right) == "operator":
            return f"Consent on the machine that sends the run: retinue trust add {path}"
        return "On a worker only its operator's own settings can give this."

    def consents(self) -> list[Consent]:
        """Return all stored answers, by file."""
        consents = self._read()
        return list(chain.from_iterable(consents[path].values() for path in sorted(consents)))

    def grant(self, path: Path, *contents: bytes | str, what: tuple[str, ...] = ()) -> None:
        """Store consent to these contents of the file, in place of earlier answers. Raise StateError if it cannot be
        stored."""
        self._put(path, contents, "trusted", what)

    def refuse(self, path: Path, *contents: bytes | str, what: tuple[str, ...] = ()) -> None:
        """Store a refusal, so that the question is not asked again."""
        self._put(path, contents, "refused", what)

    def revoke(self, path: Path) -> bool:
        """Forget all answers about a file, or about everything below a folder."""
        key = _key(path)
        with self._changing() as consents:
            gone = [file for file in consents if file == key or file.startswith(key.rstrip(os.sep) + os.sep)]
            for file in gone:
                del consents[file]
        return bool(gone)

    def follow(self, path: Path, before: bytes | str, after: bytes | str) -> None:
        """Renew existing consent to a file that a person has changed through Retinue."""
        consent = self._read().get(_key(path), {}).get(digest(before))
        if consent is not None and consent.answer == "trusted":
            self._put(path, (after,), "trusted", consent.what)

    def _put(self, path: Path, contents: tuple[bytes | str, ...], answer: Answer, what: tuple[str, ...]) -> None:
        key, now = _key(path), time.time()
        with self._changing() as consents:
            consents[key] = {
                content_digest: Consent(key, content_digest, answer, now, what)
                for content_digest in map(digest, contents)
            }

    def _read(self) -> Mapping[str, Mapping[str, Consent]]:
        try:
            status = self.file.stat()
        except OSError:
            self._known, self._signature = {}, None
            return self._known
        signature = (status.st_mtime_ns, status.st_size, status.st_ino)
        # Another process may have changed the file: its stamp tells without reading it.
        if signature != self._signature:
            self._known, self._signature = _decode(read_object(self.file).data), signature
        return self._known

    @contextmanager
    def _changing(self) -> Iterator[dict[str, dict[str, Consent]]]:
        try:
            with locked_folder(private_folder(self.file.parent)):
                self._signature = None
                consents = {path: dict(entries) for path, entries in self._read().items()}
                yield consents
                replace_file(self.file, _encode(consents), new_mode=0o600)
                self.file.chmod(0o600)
                self._signature = None
        except OSError as error:
            raise StateError(f"{self.file} cannot be written: {error.strerror or error}.") from error


def content_of(spec: AgentSpec) -> str:
    """Return what consent to an agent's file is about: everything that its text means, the prompt
    included, since a right is given to a prompt."""
    if spec.hash:
        return spec.hash
    from retinue.agents.parse import spec_hash

    return spec_hash(spec)


def _key(path: Path) -> str:
    """Return the key of a file. Links in the project's part of the path are not followed, so that a link to a file of
    another project does not inherit its consent."""
    location = Path(os.path.abspath(path))  # noqa: PTH100 - links must stay
    # The part from the last dotted folder on (`.retinue/…`) belongs to the project.
    dotted = [at for at, segment in enumerate(location.parts) if segment.startswith(".")]
    cut = dotted[-1] if dotted else len(location.parts) - 1
    return str(Path(os.path.realpath(Path(*location.parts[:cut])), *location.parts[cut:]))


def _decode(data: Mapping[str, Any]) -> dict[str, dict[str, Consent]]:
    """Return the stored answers. An unreadable entry gives no consent."""
    consents: dict[str, dict[str, Consent]] = {}
    files = data.get("files")
    for path, entries in files.items() if isinstance(files, dict) else ():
        with suppress(ValidationError):
            answers = convert(entries, dict[str, dict[str, Any]])
            consents[path] = {
                content_digest: convert({**answers[content_digest], "path": path, "digest": content_digest}, Consent)
                for content_digest in answers
            }
    return consents


def _encode(consents: Mapping[str, Mapping[str, Consent]]) -> bytes:
    import json

    files = {
        path: {
            content_digest: {"answer": c.answer, "at": c.at, "what": list(c.what)}
            for content_digest, c in entries.items()
        }
        for path, entries in sorted(consents.items())
    }
    return (json.dumps({"version": 1, "files": files}, indent=2) + "\n").encode()


def effective_settings(loaded: Loaded, trust: Callable[[], Trust]) -> Loaded:
    """Return the settings without values of a project's files that nobody consented to."""
    if all(layer.origin.personal for layer in loaded.layers):
        return loaded
    return withhold(loaded, trust())


def settings_in_effect(cwd: Path, environment: Mapping[str, str]) -> Loaded:
    """Return the settings of runs that start in `cwd`. Each removed value becomes a problem."""
    return effective_settings(load_settings(cwd, environment=environment), lambda: Trust(retinue_home(environment)))


WIDE_MODES = frozenset({"acceptEdits", "auto", "bypassPermissions"})
"""Modes that allow actions which `default` asks about."""
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
"""Settings that need another right than `settings`, the default."""
_SANDBOX = "sandbox."
_GIVES_WHEN_TRUE = ("hooks.failOpen", "disableAllHooks", "allowWrite", "subagents.allowWrite")
_WEAKENS_WHEN_FALSE = ("checkpoints.enabled", "worktreeIsolation")
_PERMISSIONS = ("permissions.allow", "permissions.additionalDirectories", "permissions.defaultMode")
"""Settings that widen permissions: they need consent as well, and are withheld where the rules are gathered."""
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
    """Return the parts of an agent's definition that need a right, one line each."""
    hooks = [f"{describe_event(hook.event, hook.matcher)}: {describe_program(hook.handler)}" for hook in spec.hooks]
    servers = [
        f"MCP server {server.name}: {describe_program(server.config)}" for server in spec.servers or () if server.config
    ]
    modes = [f"permission mode {spec.permission_mode}"] if spec.permission_mode in WIDE_MODES else []
    lines_by_right: dict[Right, list[str]] = {"hooks": hooks, "servers": servers, "permissions": modes}
    return {right: tuple(lines) for right, lines in lines_by_right.items() if lines}


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
    """Return the agents of a project that need consent."""
    subjects = []
    for spec in specs:
        what = [line for lines in brings(spec).values() for line in lines]
        if what and spec.provenance == "project" and spec.path is not None:
            path = Path(spec.path)
            with suppress(OSError):
                subjects.append(TrustSubject(path, (content_of(spec), read_file(path)), tuple(what)))
    return subjects


def settings_subject(path: Path, data: Mapping[str, Any], content: bytes) -> TrustSubject | None:
    """Return the subject of consent in a settings file, ours or Claude Code's; None if it needs no consent."""
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
    """Return the settings without values of a project's files that lack consent. Each removed value becomes a problem
    of its file, with the remedy."""
    on_worker = trust.allowed is not None
    shared = [layer for layer in loaded.layers if not layer.origin.personal]
    if not any(_list_widening(source, {}, on_worker=on_worker) or source.values.get("providers") for source in shared):
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
    """Return a layer of a project without the values that it may not give, and the problems to report."""
    path, provenance = Path(layer.origin.where), layer.origin.provenance
    content = cache(lambda: read_file(path))
    if trust.permits("settings", provenance, path, content):
        return _without(layer, set(), consented=True), []
    names, gone = fields_by_attribute(), dict[str, list[str]]()
    for attribute in _list_widening(layer, below, on_worker=trust.allowed is not None):
        right = _RIGHTS.get(names[attribute], "settings")
        if not trust.permits(right, provenance, path, content):
            remedy = f"it is not trusted. {REMEDY}" if trust.allowed is None else trust.remedy(right, path)
            gone.setdefault(remedy, []).append(attribute)
    problems = []
    for remedy, attributes in gone.items():
        withheld = tuple(map(names.__getitem__, attributes))
        problems.append(SettingsProblem(str(path), ", ".join(withheld), f"has no effect: {remedy}", withheld=withheld))
    return _without(layer, set(chain.from_iterable(gone.values()))), problems


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
    """Return a description of a hook or a server: its command or address, and all other options."""
    options = {key: value for key, value in handler.items() if key not in _LABELS}
    targets = [key for key in _TARGETS if key in options]
    if len(targets) != 1:
        return _text(options)
    words = [_text(options.pop(targets[0]))]
    if isinstance(options.get("args"), (list, tuple)):
        words += map(_text, options.pop("args"))
    if options:
        words.append(_text(options))
    return " ".join(words)


def _handlers(event: str, entries: Any) -> list[str]:
    """Return one line for each thing that would run, in either of the two shapes."""
    lines: list[str] = []
    for entry in entries if isinstance(entries, list) else [entries]:
        head, handlers = describe_event(event), entry
        if isinstance(entry, Mapping):
            head = describe_event(event, entry.get("matcher"))
            handlers = entry.get("hooks", entry)
        for handler in handlers if isinstance(handlers, list) else [handlers]:
            shown = describe_program(handler) if isinstance(handler, Mapping) else _text(handler)
            lines.append(f"{head}: {shown}")
    return lines


def _list_widening(layer: Read, below: Mapping[str, Any], *, on_worker: bool) -> tuple[str, ...]:
    """Return the attributes of settings that widen rights. On a worker a project changes nothing of the sandbox."""
    names = fields_by_attribute()
    attributes: list[str] = []
    for attribute, value in layer.values.items():
        name = names.get(attribute, "")
        if (on_worker and name.startswith(_SANDBOX)) or (name and _needs_consent(name, value, below.get(attribute))):
            attributes.append(attribute)
    return tuple(attributes)


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
    provider_known = BUILT_IN.get(word) or PRESETS.get(word)
    redirects = (
        provider_known is not None and provider_known.needs_key and origin_of(url) != origin_of(provider_known.url)
    )
    return redirects or not is_loopback(url)


def _wants_keys(providers: Any) -> bool:
    """Return whether an entry names variables to be sent, or an address that could get a key."""
    entries = providers.values() if isinstance(providers, Mapping) else ()
    return any(isinstance(entry, Mapping) and (entry.get("baseUrl") or named_variables(entry)) for entry in entries)


def _without(layer: Read, gone: Collection[str], *, consented: bool = False) -> Read:
    reduced = Read(layer.origin._replace(consented=consented))
    reduced.values = {name: value for name, value in layer.values.items() if name not in gone}
    reduced.names = {name: value for name, value in layer.names.items() if name not in gone}
    return reduced


def _list_values(data: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return values by dotted name, two levels deep, as settings files have them."""
    values: list[tuple[str, Any]] = []
    for key, value in data.items():
        values.append((f"{prefix}{key}", value))
        if isinstance(value, Mapping) and not prefix:
            values += _list_values(value, f"{key}.")
    return values


def _text(value: Any) -> str:
    import json

    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
