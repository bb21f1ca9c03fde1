"""What is written comes back: parse(write(spec)) is spec, in every dialect."""

from __future__ import annotations

from typing import Any

import pytest
from agent_specs import WRITABLE, calm, expressible, meaning, specs
from hypothesis import given
from hypothesis import strategies as st
from messy_files import messy
from msgspec.structs import replace

from retinue.agents.parse import parse
from retinue.agents.write import write_agent
from retinue.core.spec import AgentSpec, DialectName, ToolPolicy
from retinue.errors import UsageError


def again(spec: AgentSpec, dialect: DialectName) -> AgentSpec:
    text = write_agent(spec, dialect)
    parsed = parse(text.encode(), path="x/agent.md", dialect=dialect)
    assert parsed.error is None, (parsed.error, text)
    assert parsed.reading in ("yaml", "simple"), (parsed.problems, text)
    assert parsed.spec is not None
    return parsed.spec


@pytest.mark.parametrize("dialect", WRITABLE)
@given(data=st.data())
@calm(30)
def test_every_field_a_dialect_can_express_comes_back(dialect: DialectName, data: Any) -> None:
    spec = expressible(data.draw(specs), dialect)
    assert meaning(again(spec, dialect)) == meaning(spec)


@given(specs)
@calm(30)
def test_the_retinue_dialect_expresses_every_field(spec: AgentSpec) -> None:
    known = replace(spec, extra={})
    assert expressible(known, "retinue") == known


@pytest.mark.parametrize("dialect", WRITABLE)
@given(data=st.data())
@calm(60)
def test_what_was_read_from_a_messy_file_is_what_writing_it_gives_back(dialect: DialectName, data: Any) -> None:
    parsed = parse(data.draw(messy(dialect)).encode(), path="x/agent.md", dialect=dialect)
    if parsed.spec is not None and parsed.spec.refusal is None:
        assert meaning(again(parsed.spec, dialect)) == meaning(parsed.spec)


STRANGE = ["{a: {b: c}}", "[x", "a, b", "none", "*", "- x", '"q"', "true", "", " ", "x: y", "(", "(a", "a)"]


@pytest.mark.parametrize("dialect", WRITABLE)
@given(
    allow=st.lists(st.sampled_from(STRANGE), max_size=3).map(tuple),
    deny=st.lists(st.sampled_from(STRANGE), max_size=3).map(tuple),
    subagents=st.lists(st.sampled_from(STRANGE), max_size=3).map(tuple),
)
@calm(60)
def test_no_list_of_names_is_ever_written_so_that_it_allows_more(
    dialect: DialectName, allow: tuple[str, ...], deny: tuple[str, ...], subagents: tuple[str, ...]
) -> None:
    """Names no reader gives, as a program could put into a spec: the file may say less, not more."""
    allow = tuple(name for name in allow if name != "*")
    spec = AgentSpec(name="a", description="d", tools=ToolPolicy(allow=allow, deny=deny), subagents=subagents)
    after = again(spec, dialect)
    assert after.tools.allow is not None
    assert "*" not in deny or after.tools.allow == () or "*" in after.tools.deny
    assert after.subagents is not None
    assert after.subagents is not True or "*" in subagents


def test_kimi_files_cannot_hold_a_prompt_and_say_so() -> None:
    with pytest.raises(UsageError, match="prompt in a file of its own"):
        write_agent(AgentSpec(name="a"), "kimi")


@pytest.mark.parametrize("dialect", ["retinue", "claude", "opencode", "gemini", "copilot"])
@pytest.mark.parametrize("said", ["{}", "", "{usd: null}"])
def test_a_budget_that_limits_nothing_is_none(dialect: DialectName, said: str) -> None:
    file = f"---\nname: nm\ndescription: dd\nbudget: {said}\n---\nDo it."
    parsed = parse(file.encode(), path="nm.md", dialect=dialect)
    assert parsed.error is None
    assert parsed.spec is not None
    assert parsed.spec.budget is None
