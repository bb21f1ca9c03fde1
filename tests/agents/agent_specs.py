"""Strategies for specs as reading a file can give them, for the tests that write and convert."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from retinue.agents.dialects.table import FieldKind
from retinue.agents.dialects.tables import DIALECTS
from retinue.agents.dialects.translate import GRANTING_MODES
from retinue.agents.dialects.values import MINUTES, NAME_LIST
from retinue.agents.write import rows
from retinue.core.hook_events import matcher_problem
from retinue.core.spec import AgentSpec, DialectName, HookSpec, ModelPolicy, ServerRef, SessionPolicy, ToolPolicy
from retinue.core.tool_names import entry_problem
from retinue.core.usage import Budget

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def calm(examples: int) -> settings:
    """Settings that do not fail because the machine is busy."""
    return settings(max_examples=examples, deadline=None, suppress_health_check=SLOW)


WRITABLE: tuple[DialectName, ...] = tuple(name for name in DIALECTS if name != "kimi")
PLACE = ("source", "path", "dialect", "fates", "problems", "hash")

WORDS = (
    "yes no Null ~ true False off 123 1.10 007 1e3 0x1f 2025-01-01 12:30 .inf --- ... [a] a: &a *a !a %a @a `a` << ="
)
ODD = [
    *WORDS.split(" "),
    *["- a", "--- x", "{a: b}", "a: b", "a #b", "#a", '"a"', "'a'", '"a', 'it\'s "x"', "\\n", "C:\\dir", "> a", "| a"],
    *["?a", "a, b", "none", "all", "😀", "漢字: 字", "q\u2028x", "x\u00a0y", "q\x85z", "\ufeffq", "\x00"],
    *["a\nb", "a\r\nb", "a\tb", "a\n---\nb"],
]
odd = st.sampled_from(ODD)
words = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_./-]{0,9}[a-z0-9]", fullmatch=True)
free = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
long = words.map(lambda word: f"{word} " * 120)
texts = st.one_of(words, odd, free, long).map(lambda text: text.strip() or "blank")
lines = st.one_of(odd, free, st.just("---"), st.just("name: fake"), st.just("# heading"), st.just(""))
prompts = st.lists(lines, max_size=5).map(
    lambda parts: "\n".join(parts).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "").strip()
)
RESERVED = {"none", "all", "true", "false", "inherit", "null", "default"}
names = st.one_of(words, st.sampled_from(["Read", "Bash(git log: *, x)", "mcp__a__*", "edit/editFiles", "x y", "a: b"]))
names = names.map(lambda name: f"{name}1" if name.lower() in RESERVED else name)
name_lists = st.lists(names, max_size=4, unique=True).map(tuple)
denied = st.lists(names.filter(lambda name: entry_problem(name) is None), max_size=4, unique=True).map(tuple)
extension_lists = st.lists(names.filter(str.isidentifier), max_size=4, unique=True).map(tuple)
some_names = st.lists(names, min_size=1, max_size=4, unique=True).map(tuple)
switches = st.none() | st.booleans()
scalars = (
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.sampled_from([0.5, 1.25, -3.5]) | texts | st.just("")
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
configs = st.dictionaries(words, values, max_size=3)
handlers = st.builds(lambda command, more: {**more, "command": command}, texts, configs).map(
    lambda handler: {key: value for key, value in handler.items() if key not in ("matcher", "timeout")}
)
hooks = st.builds(
    HookSpec,
    event=st.sampled_from(["PreToolUse", "Stop", "tool.approval.pre"]),
    handler=handlers,
    matcher=st.none() | texts.filter(lambda text: matcher_problem(text) is None),
    timeout_seconds=st.none() | st.sampled_from([0.5, 5.0, 600.0, 999.0, 1000.0, 90000.0]),
)
tools = st.builds(
    ToolPolicy,
    allow=st.none() | name_lists,
    deny=denied,
    selectors=st.lists(st.sampled_from(["ext:a", "ext:b/c"]), max_size=2, unique=True).map(tuple),
    extensions=switches | some_names,
    exclude_extensions=extension_lists,
)
models = st.builds(
    ModelPolicy,
    name=st.none() | names,
    fallbacks=name_lists,
    thinking=st.none() | st.sampled_from(["off", "low", "max", "anything: else"]),
    temperature=st.none() | st.sampled_from([0.0, 0.3, 1.0, 2.0]),
)
extras = st.dictionaries(texts.map(lambda text: f"zz-unknown-{text}"[:50].strip()), values, max_size=3)

specs = st.builds(
    AgentSpec,
    name=texts.map(lambda text: text.replace(":", "").lstrip("- ").strip() or "a"),
    description=texts,
    prompt=prompts,
    display_name=st.none() | texts,
    color=st.none() | texts,
    enabled=st.booleans(),
    tools=tools,
    model=models,
    max_turns=st.none() | st.integers(0, 500),
    timeout_seconds=st.none() | st.integers(1, 100).map(lambda minutes: minutes * 60.0),
    budget=st.none() | st.builds(Budget, usd=st.sampled_from([0.5, 2.0]), tokens=st.none() | st.integers(0, 10**6)),
    prompt_mode=st.sampled_from(["replace", "append"]),
    initial_prompt=st.none() | texts,
    inherit_context=switches,
    background=switches,
    isolated=switches,
    isolation=st.sampled_from([None, "worktree", "off"]),
    memory=st.sampled_from([None, "user", "project", "local"]),
    skills=switches | some_names,
    servers=st.none() | st.lists(st.builds(ServerRef, names, st.none() | configs), max_size=3).map(tuple),
    required_servers=name_lists,
    hooks=st.lists(hooks, max_size=3).map(tuple),
    permission_mode=st.sampled_from([None, "default", "plan", "bypassPermissions"]),
    readonly=switches,
    subagents=switches | some_names,
    output_schema=st.none() | configs,
    session=st.builds(SessionPolicy, persist=switches, directory=st.none() | texts, transcript=switches),
    extra=extras,
)


def expressible(spec: AgentSpec, dialect: DialectName) -> AgentSpec:
    """`spec` without what a file of `dialect` has no key for."""
    table = DIALECTS[dialect]
    known: dict[str | None, FieldKind] = {}
    for row in rows(table):
        known.setdefault(row.to, row.kind)
    changed: dict[str, Any] = {"extra": {key: spec.extra[key] for key in spec.extra if table.match(key) is None}}
    for group, policy in (("tools", spec.tools), ("model", spec.model), ("session", spec.session)):
        gone = {
            field.name: field.default
            for field in fields(policy)
            if f"{group}.{field.name}" not in known and field.name not in ("selectors", "fallbacks")
        }
        changed[group] = replace(policy, **gone)
    for field in fields(AgentSpec):
        if field.name not in (*PLACE, "tools", "model", "session", "extra", "prompt") and field.name not in known:
            changed[field.name] = field.default
    if known.get("skills") is NAME_LIST and isinstance(spec.skills, bool):
        changed["skills"] = None
    if spec.permission_mode in GRANTING_MODES and not any(row.to == "permission_mode" for row in table.fields):
        changed["permission_mode"] = None
    assert known.get("timeout_seconds") is not MINUTES or not (spec.timeout_seconds or 0) % 60
    return replace(spec, **changed)


def meaning(spec: AgentSpec) -> dict[str, Any]:
    """All of a spec but where it came from."""
    return {field.name: getattr(spec, field.name) for field in fields(spec) if field.name not in PLACE}
