"""B07, B08: which agent a call means. C02-C06: whether the file or the caller decides its options."""

import pytest

from retinue.cluster import open_project
from retinue.core.delegation import Refusal, SpawnCall
from retinue.core.spec import AgentSpec, ModelPolicy
from retinue.runs.project import Project
from retinue.runs.requests import ResolvedAgent, merge, resolve_type


@pytest.fixture
def project(tmp_path):
    """A project with two agents of its own, one of them disabled, and settings by environment."""
    agents = tmp_path / "project" / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "scout.md").write_text("---\nname: scout\ndescription: Looks.\n---\nLook.\n")
    (agents / "off.md").write_text("---\nname: off\ndescription: Rests.\nenabled: false\n---\nRest.\n")

    def make(**settings) -> Project:
        named = {f"RETINUE_{name.upper()}": str(value) for name, value in settings.items()}
        home = {"HOME": str(tmp_path), "RETINUE_HOME": str(tmp_path / "home")}
        return open_project(tmp_path / "project", environment={**home, **named})

    return make


def resolved(project: Project, wanted, **options):
    return resolve_type(wanted, project.catalog(), project.settings.settings, **options)


def test_an_unknown_type_falls_back_to_general_purpose_and_names_what_was_asked(project):
    found = resolved(project(), "nobody")
    assert isinstance(found, ResolvedAgent)
    assert found.spec.name == "general-purpose"
    assert '"nobody"' in found.note
    assert resolved(project(), "SCOUT") == ResolvedAgent(resolved(project(), "scout").spec)


@pytest.mark.parametrize("wanted", ["nobody", "off", "", "   ", None])
def test_without_a_fallback_unknown_disabled_and_blank_types_are_refused_with_the_list(project, wanted):
    found = resolved(project(fallback_subagent="none"), wanted)
    assert isinstance(found, Refusal)
    assert found.code == "UNKNOWN_AGENT"
    assert "scout" in found.message
    assert "off," not in found.message


def test_a_named_fallback_is_used_and_one_that_is_unknown_or_disabled_is_refused_loudly(project):
    found = resolved(project(fallback_subagent="scout"), "nobody")
    assert (found.spec.name, '"nobody"' in found.note) == ("scout", True)
    for fallback in ("missing", "off"):
        refused = resolved(project(fallback_subagent=fallback), "nobody")
        assert isinstance(refused, Refusal)
        assert f'"{fallback}"' in refused.message


def test_two_types_that_differ_only_in_case_are_refused_for_an_inexact_name(project, tmp_path):
    (tmp_path / "project" / ".retinue" / "agents" / "Scout.md").write_text(
        "---\nname: Scout\ndescription: Looks, too.\n---\nLook.\n"
    )
    here = project(fallback_subagent="none")
    assert resolved(here, "scout").spec.name == "scout"
    assert resolved(here, "Scout").spec.name == "Scout"
    assert isinstance(resolved(here, "SCOUT"), Refusal)


def test_nested_callers_allowlists_and_the_other_vocabularies_know_no_fallback(project):
    assert isinstance(resolved(project(), "nobody", strict=True), Refusal)
    assert isinstance(resolved(project(), "scout", allowed=("Explore",)), Refusal)
    for vocabulary in ("devkit", "codingcode"):
        assert isinstance(resolved(project(), "nobody", vocabulary=vocabulary), Refusal)


def test_a_nested_caller_that_names_no_type_gets_the_one_that_its_tool_promises(project):
    assert resolved(project(), None, strict=True).spec.name == "general-purpose"
    assert resolved(project(fallback_subagent="scout"), "", strict=True).spec.name == "general-purpose"
    assert isinstance(resolved(project(), None, strict=True, allowed=("Explore",)), Refusal)
    assert isinstance(resolved(project(), None, strict=True, vocabulary="devkit"), Refusal)


def options(project: Project, spec: AgentSpec, **call):
    return merge(spec, SpawnCall(prompt="x", **call), project.settings.settings)


def agent(**fields) -> AgentSpec:
    return AgentSpec(name="a", prompt="p", **fields)


def test_the_call_fills_what_the_file_leaves_open(project):
    said = {"model": "m", "thinking": "high", "max_turns": 7, "background": False}
    call, ignored = options(project(), agent(), **said)
    assert {name: getattr(call, name) for name in said} == said
    assert ignored == ()


@pytest.mark.parametrize(
    ("field", "of_file", "of_call"),
    [
        ("thinking", "high", "low"),
        ("inherit_context", False, True),
        ("isolation", "off", "worktree"),
        ("isolated", True, False),
    ],
)
def test_a_file_locks_each_of_its_words_also_one_that_says_no(project, field, of_file, of_call):
    spec = agent(**{field: of_file}) if field != "thinking" else agent(model=ModelPolicy(thinking=of_file))
    call, ignored = options(project(), spec, **{field: of_call})
    assert getattr(call, field) == of_file
    assert [text.partition("=")[0] for text in ignored] == [field]


def test_the_word_of_the_file_stands_and_what_was_ignored_is_named(project):
    spec = agent(model=ModelPolicy(name="of-file"), max_turns=3, background=True, isolated=False)
    call, ignored = options(project(), spec, model="of-call", max_turns=9, background=False, isolated=True)
    assert (call.model, call.max_turns, call.background, call.isolated) == ("of-file", 3, True, False)
    assert len(ignored) == 4


def test_switches_that_nobody_set_are_off_and_the_call_sets_them(project):
    unset, _ = options(project(), agent())
    assert not (unset.isolated or unset.inherit_context or unset.isolation)
    both, _ = options(project(), agent(), isolated=True, inherit_context=True)
    assert (both.isolated, both.inherit_context) == (True, True)


@pytest.mark.parametrize(
    ("of_file", "of_call", "setting", "expected"),
    [
        (None, "off", True, False),
        ("off", "worktree", True, False),
        (None, "worktree", True, True),
        ("worktree", "off", True, True),
        (None, "worktree", False, False),
        ("worktree", None, False, False),
    ],
)
def test_isolation_of_file_call_and_project(project, of_file, of_call, setting, expected):
    here = project(worktree_isolation=str(setting).lower())
    call, _ = options(here, agent(isolation=of_file), isolation=of_call)
    assert (call.isolation == "worktree") == expected


def test_background_is_the_default_of_the_agent_tool_alone_and_a_setting(project):
    assert options(project(), agent())[0].background
    assert not options(project(background_by_default="false"), agent())[0].background
    assert not options(project(), agent(), vocabulary="devkit")[0].background


def test_zero_turns_is_a_word_of_its_own(project):
    assert options(project(), agent())[0].max_turns is None
    assert options(project(default_max_turns=5), agent(), max_turns=0)[0].max_turns == 0
    assert options(project(), agent(max_turns=4), max_turns=0)[0].max_turns == 4
