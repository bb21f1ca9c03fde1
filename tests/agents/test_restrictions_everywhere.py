"""Every restricting value in every place it can stand, mutated: rights never grow, or nothing starts.

A mutation changes how a value is written: separators, quotes, nesting, case, one letter, the type. It is judged by
what a run would have: its tools, the verdicts of its rules, the guards that hear a call, the limits in force.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest
import yaml

from retinue.agents.catalog import Catalog
from retinue.agents.dialects.tables import DIALECTS
from retinue.agents.parse import parse
from retinue.app.session_options import SessionOptions, apply_options
from retinue.app.session_options import read_object as read_option
from retinue.capabilities.hooks import SessionHooks
from retinue.capabilities.hooks.bus import applies_to
from retinue.capabilities.hooks.sources import HookSources, agent_hooks, read_hooks
from retinue.capabilities.permissions import permissions_for
from retinue.cluster import open_project
from retinue.core.permission import ToolUse
from retinue.core.request import RunRequest
from retinue.core.spec import AgentSpec, DialectName, PermissionMode, ToolPolicy
from retinue.core.tool import Tool
from retinue.core.tool_names import TOOL_EFFECTS, canonical
from retinue.errors import ConfigurationError, LaunchError, UsageError
from retinue.guard.permissions import policy as policies
from retinue.runs.guard import NO_PATTERNS
from retinue.settings.field import Field, Whole
from retinue.settings.load import LIMITING_SETTINGS, check_limits
from retinue.settings.table import fields
from retinue.tools.base import builtin_tools
from retinue.tools.filter import select_tools

LISTS = (("Write", "Bash"), ("Bash(touch:*)", "Write"), ("WebFetch", "Edit", "mcp__srv__tool"))
"""Sound deny lists; every place gets the mutations of each."""
SEPARATORS = (
    *(",", ", ", " , ", " ", "  ", ";", "; ", "|", " | ", "/", " / ", "&", " & ", "&&", "+", " + ", "\n", "\t", "\r\n"),
    *(" and ", " or ", "、", "，", "；", ",,", ", ,", ", and ", " - ", "->", ":", "·", "\u00a0", "\u2028"),
)
QUOTES = ("''", '""', "``", "“”", "‘’", "«»", "()", "[]", "{}", "<>", "**", "__")
CASES: tuple[Callable[[str], str], ...] = (str.upper, str.lower, str.title, str.swapcase)
OTHER_TYPES: tuple[Any, ...] = (5, 2.5, -1, True, {"a": 1}, [[["x"]]], [5], [True], [{"x": ["y"]}])


def typos(word: str) -> Iterator[str]:
    """Yield a name with one letter dropped, doubled, changed or swapped, unless that names another tool."""
    stem = word.partition("(")[0]
    if stem.startswith("mcp__"):
        return
    for place, letter in enumerate(stem):
        for slip in ("", letter * 2, "q", stem[place + 1 : place + 2] + letter):
            width = 2 if len(slip) == 2 and slip != letter * 2 else 1
            written = stem[:place] + slip + stem[place + width :]
            if not canonical(written) and written != stem:
                yield written + word[len(stem) :]


def one_name_wrong(entries: tuple[str, ...], change: Callable[[str], Iterator[str]]) -> Iterator[tuple[str, ...]]:
    for index, entry in enumerate(entries):
        for other in change(entry):
            yield (*entries[:index], other, *entries[index + 1 :])


def texts(entries: tuple[str, ...]) -> Iterator[str]:
    """Yield a list of tools as one text, written in every way that somebody may write it."""
    for separator in SEPARATORS:
        yield separator.join(entries)
    for left, right in QUOTES:
        yield ", ".join(f"{left}{entry}{right}" for entry in entries)
        yield f"{left}{', '.join(entries)}{right}"
        yield f"{left}{' '.join(entries)}{right}"
    for change in CASES:
        yield ", ".join(change(entry.partition("(")[0]) + entry[len(entry.partition("(")[0]) :] for entry in entries)
    for names in one_name_wrong(entries, typos):
        yield ", ".join(names)
    yield f" {', '.join(entries)} "
    yield f"{', '.join(entries)},"
    yield f"-{' -'.join(entries)}"
    yield f"!{', !'.join(entries)}"
    yield json.dumps(list(entries))
    yield json.dumps([", ".join(entries)])
    yield json.dumps([[entry] for entry in entries])
    yield f"[{'; '.join(entries)}]"
    yield f"Bash(rm:*, touch:*), {', '.join(entries)}"


def values(entries: tuple[str, ...]) -> Iterator[Any]:
    """Yield the same as values of JSON or YAML."""
    for text in texts(entries):
        yield text
        yield [text]
    for names in one_name_wrong(entries, typos):
        yield list(names)
    yield [[entry] for entry in entries]
    yield [list(entries)]
    yield [{entry: True} for entry in entries]
    yield dict.fromkeys(entries, True)
    yield {"tools": list(entries)}
    yield from OTHER_TYPES


@cache
def available() -> dict[str, Tool]:
    own = builtin_tools()
    return {**own, "mcp__srv__tool": own["grep"], "fetch_content": own["grep"]}


def calls_of(policy: ToolPolicy) -> dict[str, tuple[str, ...]] | None:
    """Return the tools that a file leaves, each with the patterns of calls that it denies; None for a refusal."""
    chosen = select_tools(policy, available())
    if chosen.refusal is not None:
        return None
    return {tool: chosen.denied_patterns.get(tool, ()) for tool in chosen.tools}


def grew(before: dict[str, tuple[str, ...]], after: dict[str, tuple[str, ...]] | None) -> bool:
    if after is None:
        return False
    return any(tool not in before or not set(before[tool]) <= set(denied) for tool, denied in after.items())


def startable(spec: AgentSpec | None) -> bool:
    return spec is not None and spec.enabled and spec.refusal is None


def read_file(dialect: DialectName, key: str, value: Any) -> AgentSpec | None:
    keys = {"name": "x", "description": "d", key: value}
    if dialect == "kimi":
        text = yaml.safe_dump({"agent": keys}, allow_unicode=True, sort_keys=False)
        return parse(text.encode(), path="x.yaml", dialect=dialect).spec
    text = yaml.safe_dump(keys, allow_unicode=True, sort_keys=False)
    return parse(f"---\n{text}---\nWork.\n".encode(), path="x.md", dialect=dialect).spec


def read_flag(_: DialectName, key: str, value: Any) -> AgentSpec | None:
    entry = {"description": "d", "prompt": "p", key: value}
    try:
        return Catalog.load(Path("/nonexistent"), agents_json=json.dumps({"x": entry}), builtins=False).find("x").spec
    except UsageError:
        return None


FILES = [(name, "disallowed_tools", read_file) for name in DIALECTS] + [("claude", "disallowedTools", read_flag)]


@pytest.mark.parametrize(("dialect", "key", "read"), FILES)
def test_deny_lists_of_agents(dialect: DialectName, key: str, read: Callable[..., AgentSpec | None]) -> None:
    wrong: list[Any] = []
    count = 0
    for entries in LISTS:
        sound = read(dialect, key, list(entries))
        assert sound is not None and startable(sound)
        before = calls_of(sound.tools)
        assert before is not None
        for value in values(entries):
            count += 1
            spec = read(dialect, key, value)
            if spec is not None and startable(spec) and grew(before, calls_of(spec.tools)):
                wrong.append(value)
    assert wrong == [], repr(wrong)
    assert count > 500


def test_deny_lists_that_a_program_makes() -> None:
    for entries in LISTS:
        before = calls_of(ToolPolicy(deny=entries))
        assert before is not None
        wrong = [text for text in texts(entries) if grew(before, calls_of(ToolPolicy(deny=(text,))))]
        assert wrong == [], repr(wrong)


class Scene:
    """A home and a project with settings files, and what a run in it could do."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project = folder / "home", folder / "project"
        self.policy = folder / "policy.json"
        for each in (self.home, self.project):
            (each / ".retinue").mkdir(parents=True, exist_ok=True)
            (each / ".claude").mkdir()
        self.variables: dict[str, str] = {}
        self.options = SessionOptions()

    def file(self, path: str) -> Path:
        """Return a file of this world by `home/…`, `project/…` or `policy/…`."""
        base, _, rest = path.partition("/")
        return {"home": self.home, "project": self.project}.get(base, self.policy.parent) / rest

    def rights(self, mode: PermissionMode | None = "bypassPermissions") -> dict[str, int] | None:
        """Return how freely each call may be made (from 0 denied to 3 allowed); None where nothing starts."""
        environment = {"HOME": str(self.home), **self.variables}
        project = open_project(self.project, environment=environment)
        spec = AgentSpec(name="a")
        request = RunRequest(spec=spec, task="x", cwd=project.cwd, permission_mode=mode)
        try:
            apply_options(self.options, project)
            check_limits(project.settings)
            policy = permissions_for(request, project, None, NO_PATTERNS, [])
            hooks = project.part(SessionHooks)
            hooks.require_readable()
        except (ConfigurationError, LaunchError, UsageError):
            return None
        guards = hooks.handlers().get("PreToolUse", ())
        found: dict[str, int] = {}
        for name, tool, given in CALLS:
            verdict = policy.decide(ToolUse(tool, given, TOOL_EFFECTS.get(tool, frozenset({"read"})))).verdict
            found[name] = ("deny", "ask", "confine", "allow").index(verdict)
            if any(applies_to(guard, "PreToolUse", tool, {"tool_input": given}, lambda *_: None) for guard in guards):
                found[name] = 0
        return found


CALLS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("touch", "bash", {"command": "touch a"}),
    ("ls", "bash", {"command": "ls"}),
    ("write", "write", {"path": "a", "content": "b"}),
    ("edit", "edit", {"path": "a", "edits": []}),
    ("fetch", "fetch_content", {"url": "https://example.org"}),
    ("served", "mcp__srv__tool", {}),
)


def own(path: str, key: str) -> Callable[[Scene, Any], None]:
    return lambda scene, value: _write(scene, path, {"permissions": {key: value}})


def _write(scene: Scene, path: str, data: Any) -> None:
    scene.file(path).write_text(json.dumps(data))


def by_variable(scene: Scene, value: Any) -> None:
    scene.variables = {"RETINUE_PERMISSIONS_DENY": value if isinstance(value, str) else json.dumps(value)}


def by_flag(scene: Scene, value: Any) -> None:
    scene.options = SessionOptions(
        disallowed_tools=tuple(map(str, value)) if isinstance(value, list) else (str(value),)
    )


def by_session(scene: Scene, value: Any) -> None:
    scene.options = SessionOptions(settings={"permissions": {"deny": value}})


PLACES: dict[str, Callable[[Scene, Any], None]] = {
    "the user's settings": own("home/.retinue/settings.json", "deny"),
    "the project's settings": own("project/.retinue/settings.json", "deny"),
    "the questions of the local settings": own("project/.retinue/settings.local.json", "ask"),
    "Claude Code's settings": own("home/.claude/settings.json", "deny"),
    "Claude Code's settings of the project": own("project/.claude/settings.json", "ask"),
    "the administrator's policy": own("policy/policy.json", "deny"),
    "a variable": by_variable,
    "a flag": by_flag,
    "settings of the session": by_session,
}


@pytest.mark.parametrize("place", PLACES)
def test_rules_of_every_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    scene = Scene(tmp_path)
    monkeypatch.setattr(policies, "POLICY_FILE", str(scene.policy))
    wrong: list[Any] = []
    for entries in LISTS:
        PLACES[place](scene, list(entries))
        before = scene.rights()
        assert before is not None and 3 in before.values() and min(before.values()) < 3
        # Every third one: what a text means is the same everywhere, and reading files takes time.
        for value in list(values(entries))[:: 3 if entries is not LISTS[0] else 2]:
            PLACES[place](scene, value)
            after = scene.rights()
            if after is not None and any(after[call] > before[call] for call in before):
                wrong.append(value)
    assert wrong == [], repr(wrong)


STRICT: dict[str, Any] = {
    "allowedLspActions": ["hover"],
    "database": "postgresql://127.0.0.1:1/x",
    "disabledPlugins": ["a"],
    "enabledModels": ["a/b"],
    "extraRoots": [],
    "fallbackSubagent": False,
    "hooks": {"PreToolUse": [{"command": "check"}]},
    "integrate.check": "make check",
    "lsp.sandbox": "on",
    "lsp.servers": {"ty": {"disabled": True}},
    "mcpServers": {"a": {"command": "x", "disabled": True}},
    "permissions.ask": ["Bash"],
    "permissions.autoModel": "a/b",
    "permissions.defaultMode": "plan",
    "permissions.deny": ["Bash"],
    "permissions.headless": "deny",
    "placement": "local",
    "sandbox.hidden": ["a"],
    "sandbox.mode": "workspace",
    "sandbox.network": "off",
    "sandbox.passEnvironment": [],
    "sandbox.shown": [],
    "telemetry": "off",
    "tenant": "a",
    "web.allowHosts": [],
    "providers": {"box": {"baseUrl": "http://127.0.0.1:8999/v1"}},
    "web.provider": "searxng",
    "web.searxngUrl": "http://127.0.0.1:8888",
    "web.taint": "ask",
    "workspaceRemote": "origin",
    "worktree.shell": "confined",
}
"""A value that limits, for each limiting setting that is no number and no switch."""
LOOSE: dict[str, Any] = {
    "extraRoots": ["/etc"],
    "lsp.sandbox": "off",
    "permissions.headless": "wait",
    "placement": "cluster",
    "sandbox.network": "on",
    "sandbox.passEnvironment": ["TOKEN"],
    "sandbox.shown": ["/etc"],
    "telemetry": "content",
    "web.allowHosts": ["localhost"],
    "worktree.shell": "checked",
}
"""What a weaker file grants, where the strict value takes it back."""
FREE_TEXTS = frozenset(
    {
        "database",
        "fallbackSubagent",
        "integrate.check",
        "permissions.autoModel",
        "placement",
        "tenant",
        "web.searxngUrl",
        "workspaceRemote",
    }
)
"""Settings of which any text is a value; nobody can see that one is misspelt."""


def files_of(name: str) -> Iterator[tuple[Any, Any]]:
    """Yield what a weaker and a stronger file may say of a setting; None where the weaker one says nothing."""
    field = fields()[name]
    if isinstance(field.default, bool):
        for value in (True, False):
            if field.personal_when is None or not field.personal_when(value):
                yield not value, value
    elif name in STRICT:
        yield LOOSE.get(name), STRICT[name]
    elif isinstance(field.default, tuple):
        yield None, list(field.default)
    else:
        yield None, 1 if field.limits and field.default != 1 else field.default


def nested(name: str, value: Any) -> dict[str, Any]:
    for part in reversed(name.split(".")):
        value = {part: value}
    return value  # type: ignore[no-any-return]


def wrong_values(name: str, value: Any) -> Iterator[Any]:
    """Yield values of another type or spelling."""
    yield 5 if isinstance(value, str) else "x"
    yield "x" if isinstance(value, dict) else {"a": 1}
    if isinstance(value, list):
        yield from ("".join(value), [5])
    else:
        yield [value]
    if not isinstance(value, (str, list, dict)):
        yield from (json.dumps(value), 2.5 if isinstance(value, bool) else "1 ")
    if isinstance(value, str):
        yield from (f"{value}q", value[1:], value.upper(), f"'{value}'")


def is_value(name: str, value: Any) -> bool:
    """Return whether a setting can mean it: any text, or a list of hosts."""
    if name in ("mcpServers", "lsp.servers", "hooks") and isinstance(value, dict):
        return True
    return (name in FREE_TEXTS and isinstance(value, str)) or (name == "sandbox.network" and isinstance(value, list))


def mutated_settings(name: str, value: Any) -> Iterator[str]:
    """Yield files in which a setting is written wrongly."""
    for other in wrong_values(name, value):
        if not is_value(name, other):
            yield json.dumps(nested(name, other))
    text = json.dumps(nested(name, value))
    last = name.rpartition(".")[2]
    for slip in (
        last[:-1],
        f"{last}q",
        last.swapcase(),
        f"{last[:2]}{last[3:]}",
        last.replace(last[1], last[1] * 2, 1),
    ):
        yield text.replace(f'"{last}"', f'"{slip}"')
    if "." in name:
        yield json.dumps({last: value})
    yield json.dumps({"settings": nested(name, value)})
    yield text[:-1]
    yield text.replace(":", "=", 1)
    yield text.replace('"', "'")
    yield f"// a comment\n{text}"
    yield f"[{text}]"


def limits_in_force(
    folder: Path, environment: dict[str, str], flags: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """Return the value of every limiting setting; None where nothing starts."""
    project = open_project(folder, environment=environment)
    try:
        if flags:
            apply_options(SessionOptions(settings=flags), project)
        check_limits(project.settings)
        project.part(SessionHooks).require_readable()
    except (ConfigurationError, LaunchError, UsageError):
        return None
    values = project.settings.settings
    return {name: getattr(values, field.attribute) for name, field in fields().items() if name in LIMITING_SETTINGS}


USER, PROJECT = "home/.retinue/settings.json", "project/.retinue/settings.json"
FLAG = "a flag"
LAYERS = ((USER, PROJECT), (PROJECT, "project/.retinue/settings.local.json"), ("", USER), (USER, FLAG))
"""A weaker place, which may grant, and a stronger one, in which the mistake stands."""


def in_force(scene: Scene, place: str, text: str) -> dict[str, Any] | None:
    """Return the limits of a world in which a place says this; None where nothing starts."""
    flags = None
    if place == FLAG:
        flags = read_flags(text)
        if flags is None:
            return None
    else:
        scene.file(place).write_text(text)
    return limits_in_force(scene.project, {"HOME": str(scene.home)}, flags)


def loosened(folder: Path, name: str) -> list[tuple[str, str]]:
    """Return the places and texts with a mistake in one setting under which limits differ from those of the sound
    text."""
    wrong = []
    for number, ((weaker, stronger), (loose, strict)) in enumerate(product(LAYERS, files_of(name))):
        if strict is None and stronger == FLAG:
            continue
        scene = Scene(folder / str(number))
        if loose is not None and weaker:
            scene.file(weaker).write_text(json.dumps(nested(name, loose)))
        sound = in_force(scene, stronger, json.dumps(nested(name, strict)))
        assert sound is not None
        texts = mutated_settings(name, strict)
        wrong += [(stronger, text) for text in texts if in_force(scene, stronger, text) not in (None, sound)]
    return wrong


def read_flags(text: str) -> dict[str, Any] | None:
    try:
        return read_option(text, "--settings")
    except UsageError:
        return None


@pytest.mark.parametrize("name", fields())
def test_a_mistake_in_any_setting_loosens_no_limit(tmp_path: Path, name: str) -> None:
    assert loosened(tmp_path, name) == []


RULES: dict[str, Any] = {
    "permissions.deny": ["Bash"],
    "permissions.ask": ["Write"],
    "permissions.defaultMode": "plan",
    "permissions.disableBypass": True,
    "permissions.disableBypassPermissionsMode": "disable",
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("place", ["policy/policy.json", "home/.claude/settings.json", "project/.claude/settings.json"])
def test_a_mistake_in_the_files_of_others_frees_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, name: str
) -> None:
    scene = Scene(tmp_path)
    monkeypatch.setattr(policies, "POLICY_FILE", str(scene.policy))
    modes: tuple[PermissionMode | None, ...] = ("bypassPermissions", None)
    scene.file(place).write_text(json.dumps(nested(name, RULES[name])))
    before = [scene.rights(mode) for mode in modes]
    wrong = []
    rule = json.dumps(nested(name, "x"))
    for text in mutated_settings(name, RULES[name]):
        if text == rule and name in ("permissions.deny", "permissions.ask"):
            # It denies a tool of that name.
            continue
        scene.file(place).write_text(text)
        for sound, after in zip(before, map(scene.rights, modes), strict=True):
            assert sound is not None
            if after is not None and any(after[call] > sound[call] for call in sound):
                wrong.append(text)
    assert wrong == []


def test_a_setting_that_is_not_marked_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields()["sandbox.network"], "limits", False)
    assert len(loosened(tmp_path, "sandbox.network")) > 3


def test_every_setting_says_whether_it_limits() -> None:
    with pytest.raises(TypeError, match="limits"):
        Field(1, Whole(0, 9), doc="How many.")  # type: ignore[call-arg]


MATCHERS = (("Bash", "Write"), ("Edit", "WebFetch"))


def hooks_of_settings(table: Any) -> tuple[list[Any], HookSources]:
    report = HookSources()
    return read_hooks(table, "f", "retinue", report), report


def hooks_of_plugin(table: Any) -> tuple[list[Any], HookSources]:
    report = HookSources()
    return read_hooks(table, "f", "claude", report), report


def hooks_of_agent(table: Any) -> tuple[list[Any], HookSources]:
    report = HookSources()
    spec = read_file("claude", "hooks", table)
    if spec is None or not startable(spec):
        report.refuse("f", "it is not started", "")
        return [], report
    return agent_hooks(spec, []), report


def guarded(table: Any, read: Callable[[Any], tuple[list[Any], HookSources]]) -> set[str] | None:
    """Return the calls that a guard applies_to of; None where nothing starts."""
    handlers, report = read(table)
    if report.refusals:
        return None
    found = set()
    for name, tool, given in CALLS:
        for guard in handlers:
            heard = guard.event == "PreToolUse" and not guard.observes
            if heard and applies_to(guard, "PreToolUse", tool, {"tool_input": given}, lambda *_: None):
                found.add(name)
    return found


def misspelt(event: str) -> Iterator[str]:
    yield from (change(event) for change in CASES)
    for place, letter in enumerate(event):
        for slip in ("", letter * 2, "q"):
            yield event[:place] + slip + event[place + 1 :]


def hook_tables(event: str, entries: tuple[str, ...]) -> Iterator[Any]:
    handler = {"type": "decision", "command": "check"}
    for name in misspelt(event):
        yield {name: [{"matcher": "|".join(entries), **handler}]}
        yield [{"event": name, "matcher": "|".join(entries), **handler}]
    for value in values(entries):
        yield {event: [{"matcher": value, **handler}]}
    yield {"hooks": {event: [{"matcher": "|".join(entries), **handler}]}}
    yield {"all": [{"event": event, "matcher": "|".join(entries), **handler}]}
    for other in (5, [5], [[]], {"command": 5}, {"hooks": "x"}, {"hooks": [5]}, {**handler, "timeout": "1"}):
        yield {event: other}
    if "." in event:
        for kind in ("Decision", "decison", "DECISION", "deny"):
            yield {event: [{"matcher": "|".join(entries), "type": kind, "command": "check"}]}


@pytest.mark.parametrize("event", ["PreToolUse", "tool.approval.pre", "tool.execute.before"])
@pytest.mark.parametrize("read", [hooks_of_settings, hooks_of_plugin, hooks_of_agent])
def test_guards(event: str, read: Callable[[Any], tuple[list[Any], HookSources]]) -> None:
    wrong: list[Any] = []
    for entries in MATCHERS:
        before = guarded({event: [{"matcher": "|".join(entries), "type": "decision", "command": "check"}]}, read)
        assert before
        for table in hook_tables(event, entries):
            after = guarded(table, read)
            if after is not None and not before <= after:
                wrong.append(table)
    assert wrong == [], repr(wrong)


def test_there_are_enough_mutations() -> None:
    lists = len(list(chain.from_iterable(map(values, LISTS))))
    limits = sum(len(list(mutated_settings(name, files[1]))) for name in fields() for files in files_of(name))
    guards = sum(len(list(hook_tables("PreToolUse", each))) for each in MATCHERS)
    assert lists * len(FILES) + limits + guards * 3 > 10_000
