"""A limit that cannot be read limits: whatever happens to the value of a key that restricts an
agent, in whatever dialect, its run has no more rights than before, or does not start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.agents.catalog import require_startable
from retinue.agents.dialects.table import RESTRICTING, Dialect, FieldRow
from retinue.agents.dialects.tables import DIALECTS
from retinue.agents.parse import parse
from retinue.cluster import open_project
from retinue.core.request import RunRequest
from retinue.core.spec import AgentSpec, DialectName
from retinue.errors import LaunchError, RefusedAgentError
from retinue.runs.launch import Launch, LaunchPlan
from retinue.runs.plan import launching
from retinue.tools.base import builtin_tools
from retinue.tools.filter import select_tools

SOUND = {
    "tools.allow": "read, grep",
    "tools.deny": "write, bash",
    "tools.rules": "{bash: deny, edit: deny}",
    "tools.extensions": "false",
    "tools.exclude_extensions": "web",
    "subagents": "false",
    "isolated": "true",
    "isolation": "worktree",
    "readonly": "true",
    "permission_mode": "plan",
    "max_turns": "3",
    "timeout_seconds": "3",
    "budget": "{usd: 1}",
    "output_schema": "{type: object}",
    "rollback": "on-failure",
    "hooks": "{PreToolUse: [{command: check}]}",
    "enabled": "false",
}
"""A sound value for every field that restricts. Written so that no typo makes another sound one."""

JUNK = ("", "~", "5", "-1", "2.5", "true", "maybe", "[[x]]", "{a: [}", "{x: maybe}", "[", '"', "@x", "{", "yes no")
READABLE = {
    "tools.deny": {"~x", "maybe", "@x", "yes no", '"'},
    "tools.extensions": {"true", "maybe", "@x", "yes no", '"'},
    "tools.exclude_extensions": {"5", "-1", "2.5", "true", "maybe", "@x", "yes no", '"'},
    "subagents": {"5", "-1", "2.5", "true", "maybe", "@x", "yes no", '"'},
    "max_turns": {"5"},
    "timeout_seconds": {"5", "2.5"},
    "output_schema": {"{x: maybe}"},
    "enabled": {"true"},
    "hooks": {"", "~", "{x: maybe}"},
}
"""Junk that is a value after all: another number, the name of something that may exist."""

NO_TYPOS = {"tools.exclude_extensions", "output_schema", "hooks"}
"""Fields of names that only their user knows, and structures with keys that anyone may add."""


def sound(row: FieldRow) -> str:
    value = SOUND[row.to or ""]
    if row.to == "enabled":
        return "true" if row.key.startswith("disable") else value
    if row.key == "sandbox":
        return "read-only"
    if row.key == "worktree":
        return "true"
    return "read, grep" if row.key == "allowed_tools" else value


def rows(dialect: Dialect) -> list[FieldRow]:
    found = [row for row in (*dialect.fields, *dialect.foreign) if row.to in RESTRICTING]
    if dialect.simple:  # all its values are text, and `enabled` wants a real false
        found = [row for row in found if row.key != "enabled"]
    return found


def typos(word: str) -> Iterator[str]:
    for place, letter in enumerate(word):
        if not letter.isalpha():
            continue
        yield word[:place] + word[place + 1 :]
        yield word[:place] + letter + letter + word[place + 1 :]
        yield word[:place] + "q" + word[place + 1 :]
        if word[place + 1 : place + 2].isalpha() and word[place + 1] != letter:
            yield word[:place] + word[place + 1] + letter + word[place + 2 :]


def mutations(row: FieldRow) -> Iterator[str]:
    """Lines in place of the sound one: other values, typos, the key twice, a misspelt key."""
    value = sound(row)
    for junk in JUNK:
        if junk not in READABLE.get(row.to or "", ()) and junk != value:
            yield f"{row.key}: {junk}"
            yield f"{row.key}: {value}\n{row.key}: {junk}"
    if row.to not in NO_TYPOS:
        yield from (f"{row.key}: {word}" for word in typos(value))
    if row.to not in ("hooks", "enabled"):
        yield from (f"{key}: {value}" for key in typos(row.key) if len(key) > 5)


def read(dialect: DialectName, *lines: str) -> AgentSpec | None:
    head = ["name: x", "description: d"]
    if dialect == "kimi":
        text = "\n".join(["agent:", *(f"  {part}" for line in (*head, *lines) for part in line.split("\n"))])
        return parse(text.encode(), path="x.yaml", dialect=dialect).spec
    text = "\n".join(["---", *head, *lines, "---", "Work."])
    return parse(text.encode(), path="x.md", dialect=dialect).spec


def starts(spec: AgentSpec | None) -> bool:
    if spec is None or not spec.enabled:
        return False
    try:
        require_startable(spec)
    except RefusedAgentError:
        return False
    return select_tools(spec.tools, builtin_tools()).refusal is None


def tools_of(spec: AgentSpec) -> set[str]:
    return set(select_tools(spec.tools, builtin_tools()).tools)


MODES = ("plan", "dontAsk", "default", None, "acceptEdits", "auto", "bypassPermissions")


def gained(old: AgentSpec, new: AgentSpec) -> list[str]:
    """The rights that `new` has and `old` does not; the oracle of this file."""
    found = {
        "tools": not tools_of(new) <= tools_of(old),
        "calls": bool(old.tools.rules) and old.tools.rules != new.tools.rules,
        "readonly": bool(old.readonly) and not new.readonly,
        "mode": MODES.index(new.permission_mode) > MODES.index(old.permission_mode),
        "isolation": old.isolation == "worktree" and new.isolation != "worktree",
        "isolated": old.isolated is True and new.isolated is not True,
        "extensions": old.tools.extensions is False and new.tools.extensions is not False,
        "excluded": not set(old.tools.exclude_extensions) <= set(new.tools.exclude_extensions),
        "turns": old.max_turns is not None and not 0 < (new.max_turns or 0) <= old.max_turns,
        "time": old.timeout_seconds is not None and not 0 < (new.timeout_seconds or 0) <= old.timeout_seconds,
        "budget": old.budget is not None and (new.budget is None or new.budget.within(old.budget) != new.budget),
        "schema": old.output_schema is not None and new.output_schema != old.output_schema,
        "rollback": old.rollback is not None and new.rollback is None,
        "hooks": not set(map(str, old.hooks)) <= set(map(str, new.hooks)),
        "subagents": old.subagents is False and new.subagents is not False,
    }
    return [right for right, more in found.items() if more]


def test_every_restricting_field_has_a_sound_value_here() -> None:
    """A new field must be added to SOUND, and is tested from then on."""
    assert set(SOUND) == set(RESTRICTING)


@pytest.mark.parametrize("dialect", list(DIALECTS))
def test_a_mutated_value_or_key_never_adds_rights(dialect: DialectName) -> None:
    wrong: list[str] = []
    for row in rows(DIALECTS[dialect]):
        before = read(dialect, f"{row.key}: {sound(row)}")
        assert before is not None and before.refusal is None, (row.key, before and before.refusal)
        for line in mutations(row):
            after = read(dialect, line)
            if after is None or not starts(after):
                continue
            more = ["it starts"] if not starts(before) else gained(before, after)
            if more:
                wrong.append(f"{line!r}: {more}")
    assert wrong == []


@pytest.mark.parametrize("dialect", list(DIALECTS))
def test_what_is_refused_says_file_line_reason_and_remedy(dialect: DialectName) -> None:
    for row in rows(DIALECTS[dialect]):
        spec = read(dialect, f"{row.key}: [[x]]" if dialect == "kimi" else f"{row.key}: {{a: [}}")
        assert spec is not None and spec.refusal is not None, row.key
        problem = spec.refusal
        assert (problem.severity, problem.key) == ("error", row.key)
        assert problem.line == 4
        assert problem.remedy
        with pytest.raises(RefusedAgentError) as refused:
            require_startable(spec)
        assert f":{problem.line}: '{row.key}': " in refused.value.message
        assert refused.value.remedy == problem.remedy


CASES = [(name, row, line) for name in DIALECTS for row in rows(DIALECTS[name]) for line in mutations(row)]


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(CASES))
def test_the_run_itself_has_no_more_rights_or_does_not_start(case: tuple[DialectName, FieldRow, str]) -> None:
    """The same through the real launch: tools, mode, limits and patterns as the run will have them."""
    import asyncio

    dialect, row, line = case
    before, after = read(dialect, f"{row.key}: {sound(row)}"), read(dialect, line)
    assert before is not None
    launched = asyncio.run(launch(after)) if after is not None else None
    if launched is None:
        return
    original = asyncio.run(launch(before))
    assert original is not None, f"{line!r} starts, and {row.key}: {sound(row)} does not"
    assert {tool.spec.name for tool in launched.tools} <= {tool.spec.name for tool in original.tools}
    assert launched.readonly or not original.readonly
    assert MODES.index(launched.mode) <= MODES.index(original.mode)
    assert set(original.patterns.rules) <= set(launched.patterns.rules)
    for limit in ("max_turns", "seconds"):
        most = getattr(original.limits, limit)
        assert most is None or (getattr(launched.limits, limit) or most + 1) <= most


@pytest.mark.parametrize("dialect", ["pi", "retinue"])
@pytest.mark.parametrize("line", ["extensions: maybe", "extensions: [flase]", "extensions: nnone, @x"])
async def test_names_of_extensions_leave_no_more_tools_than_false_where_nothing_has_the_name(
    dialect: DialectName, line: str
) -> None:
    before, after = read(dialect, "extensions: false"), read(dialect, line)
    assert before is not None and after is not None
    without, named = await launch(before), await launch(after)
    assert without is not None and named is not None
    assert {tool.spec.name for tool in named.tools} == {tool.spec.name for tool in without.tools}
    assert any("is not loaded" in note for note in named.notes)


@pytest.mark.parametrize("dialect", ["pi", "retinue"])
@pytest.mark.parametrize("key", ["extensions", "allowed_subagents"])
def test_a_near_miss_of_false_is_refused_with_the_line_and_both_ways_out(dialect: DialectName, key: str) -> None:
    spec = read(dialect, f"{key}: flase")
    assert spec is not None and spec.refusal is not None
    assert spec.refusal.line == 4
    assert "'flase' is neither false nor a name" in spec.refusal.message
    assert spec.refusal.remedy == "Did you mean 'false'? If something is really called so, write '[flase]'."


@pytest.mark.parametrize("dialect", ["pi", "retinue"])
def test_a_near_miss_of_false_for_skills_means_none_and_is_reported(dialect: DialectName) -> None:
    spec = read(dialect, "skills: flase")
    assert spec is not None and spec.skills is False
    assert [(problem.code, problem.line) for problem in spec.problems] == [("bad-value", 4)]


async def launch(spec: AgentSpec) -> Launch | None:
    project = open_project(Path.cwd(), environment={"HOME": "/nonexistent", "RETINUE_HOME": "/nonexistent/.retinue"})
    request = RunRequest(spec=spec, task="Work.", cwd=Path.cwd(), model="offline/planner", schema=spec.output_schema)
    try:
        async with launching(LaunchPlan(request, project)) as launch:
            return launch
    except LaunchError:
        return None
    finally:
        await project.close()


@pytest.mark.parametrize("dialect", ["claude", "pi", "devkit", "codingcode", "opencode", "gemini", "cursor"])
def test_a_time_limit_and_a_stricter_mode_count_in_every_dialect(dialect: DialectName) -> None:
    def read(line: str) -> AgentSpec:
        text = f"---\nname: a\ndescription: d\n{line}\n---\nWork.\n"
        spec = parse(text.encode(), path="x/a.md", dialect=dialect).spec
        assert spec is not None
        return spec

    assert read("timeout_seconds: 5").timeout_seconds == 5
    assert read("timeout_seconds: soon").refusal is not None
    assert read("permission_mode: plan").permission_mode == "plan"
    assert read("permissionMode: yolo").refusal is not None


def test_a_freer_mode_under_a_key_that_the_dialect_does_not_have_is_ignored_and_said() -> None:
    text = "---\npermissionMode: bypassPermissions\n---\nWork.\n"
    parsed = parse(text.encode(), path="x/a.md", dialect="pi")
    assert parsed.spec is not None and parsed.spec.permission_mode is None
    assert [problem.severity for problem in parsed.problems if problem.key == "permissionMode"] == ["warning"]


W1 = (
    *(
        "Bash(touch:*) Write",
        "Bash(touch:*); Write",
        "Write/Bash",
        "Bash(rm:*, touch:*)",
        "Write Bash",
        "[Write, Bash]",
    ),
    *('["Write, Bash"]', "Write & Bash", "Write，Bash", "Wriet, Bash"),
)


@pytest.mark.parametrize("text", W1)
@pytest.mark.parametrize(("dialect", "key"), [("claude", "disallowedTools"), ("pi", "disallowed_tools")])
def test_a_deny_list_with_a_wrong_separator_denies_or_refuses(dialect: DialectName, key: str, text: str) -> None:
    spec = read(dialect, f"{key}: {text}")
    assert spec is not None
    if spec.refusal is not None:
        assert (spec.refusal.line, bool(spec.refusal.remedy)) == (4, True)
        return
    chosen = select_tools(spec.tools, builtin_tools())
    assert "write" not in chosen.tools
    assert "bash" not in chosen.tools or "touch:*" in chosen.denied_patterns["bash"]


@pytest.mark.parametrize(
    "hooks", ["{PreTooluse: [{command: exit 2}]}", "[{point: nosuch.point, type: decision, command: x}]"]
)
def test_a_guard_under_a_misspelt_event_refuses(hooks: str) -> None:
    spec = read("claude", f"hooks: {hooks}")
    assert spec is not None and spec.refusal is not None
    assert "there is no event" in spec.refusal.message


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "kimi"])
def test_limits_of_other_dialects_count_everywhere(dialect: DialectName) -> None:
    for key in ("maxSteps", "max_steps", "max_turns"):
        assert read(dialect, f"{key}: 1").max_turns == 1, key  # type: ignore[union-attr]
    for line in ("timeout: 60", "timeout_mins: 1", "timeout_seconds: 60"):
        assert read(dialect, line).timeout_seconds == 60, line  # type: ignore[union-attr]
    assert read(dialect, "extensions: false").tools.extensions is False  # type: ignore[union-attr]
    assert read(dialect, "worktree: true").isolation == "worktree"  # type: ignore[union-attr]
    if dialect not in ("retinue", "generic"):  # their own key, in seconds
        assert read(dialect, "timeout: 60000").refusal is not None  # type: ignore[union-attr]
