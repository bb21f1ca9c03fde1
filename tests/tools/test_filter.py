"""Which tools a run gets: allow, deny, effects, parents, and refusals that say why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.permission import READ_ONLY
from retinue.core.spec import ToolPolicy
from retinue.core.tool import ToolSpec
from retinue.core.tool_names import entry_problem
from retinue.tools.base import builtin_names, builtin_tools
from retinue.tools.filter import memory_tools, select_tools


class Plain:
    """A tool that only has a name and effects."""

    def __init__(self, name, *effects):
        self.spec = ToolSpec(name, "", {}, frozenset(effects))

    async def run(self, call_id, arguments, context):
        raise AssertionError("never called here")


def available(*extra):
    return {**builtin_tools(), **{tool.spec.name: tool for tool in extra}}


SERVERS = (
    Plain("mcp__db__query", "network"),
    Plain("mcp__db__write", "network", "write"),
    Plain("mcp__web__get", "network"),
)
AGENT = Plain("Agent", "spawn")


def names(policy, *extra, **options):
    return list(select_tools(policy, available(*extra), **options).tools)


def test_no_tools_when_the_list_is_none_or_empty():
    for allow in ((), ("none",), ("NONE",), ("", " ")):
        selection = select_tools(ToolPolicy(allow=allow), available())
        assert selection.tools == {}
        assert selection.refusal is None


def test_star_or_all_in_any_case_anywhere_means_every_tool():
    for allow in (None, ("*",), ("ALL",), ("read", "All"), ("x", "*")):
        assert names(ToolPolicy(allow=allow)) == list(builtin_names())


def test_every_built_in_is_there_by_default():
    assert names(ToolPolicy()) == list(builtin_names())
    assert builtin_names()[:7] == ("read", "write", "edit", "bash", "grep", "find", "ls")


def test_deny_always_wins():
    assert names(ToolPolicy(allow=("read", "bash"), deny=("Bash",))) == ["read"]
    assert "write" not in names(ToolPolicy(deny=("write", "MultiEdit")))
    assert names(ToolPolicy(allow=("*",), deny=("*",))) == []
    assert names(ToolPolicy(deny=("mcp__*",)), *SERVERS) == list(builtin_names())
    assert "mcp__db__query" not in names(ToolPolicy(deny=("mcp__db",)), *SERVERS)
    assert names(ToolPolicy(allow=("read", "grep"), deny=("gr*",))) == ["read"]


def test_unknown_names_warn_once_each_and_known_ones_not():
    selection = select_tools(ToolPolicy(allow=("read", "made_up", "made_up", "other")), available(), agent="scout")
    assert list(selection.tools) == ["read"]
    assert selection.unrecognised == ("made_up", "other")
    assert selection.notes == (
        'There is no tool "made_up", which the agent "scout" asks for: correct the name',
        'There is no tool "other", which the agent "scout" asks for: correct the name',
    )
    assert select_tools(ToolPolicy(allow=("read", "Grep")), available()).notes == ()


@pytest.mark.parametrize(
    ("alias", "tools"),
    [
        ("Read", ["read"]),
        ("Glob", ["find"]),
        ("MultiEdit", ["edit"]),
        ("execute_command", ["bash"]),
        ("search_code", ["grep"]),
        ("search", ["grep", "find", "ls"]),
        ("kimi_cli.tools.shell:Shell", ["bash"]),
    ],
)
def test_names_of_other_dialects_resolve(alias, tools):
    assert names(ToolPolicy(allow=(alias,))) == tools


def test_what_stands_in_parentheses_keeps_the_tool_and_goes_to_the_guard():
    selection = select_tools(
        ToolPolicy(allow=("Bash(git *)", "Bash(npm test)", "read"), deny=("Bash(git push *)", "Read(.env)")),
        available(),
    )
    assert list(selection.tools) == ["bash", "read"]
    assert selection.allowed_patterns == {"bash": ("git *", "npm test")}
    assert selection.denied_patterns == {"bash": ("git push *",), "read": (".env",)}


def test_agent_with_names_keeps_the_list_for_the_supervisor():
    selection = select_tools(ToolPolicy(allow=("Agent(worker, scout)",)), available(AGENT))
    assert list(selection.tools) == ["Agent"]
    assert selection.allowed_patterns == {"Agent": ("worker, scout",)}


def test_mcp_patterns_in_both_lists():
    assert names(ToolPolicy(allow=("mcp__db",)), *SERVERS) == ["mcp__db__query", "mcp__db__write"]
    assert names(ToolPolicy(allow=("mcp__db__*",)), *SERVERS) == ["mcp__db__query", "mcp__db__write"]
    assert names(ToolPolicy(allow=("mcp__web__get",)), *SERVERS) == ["mcp__web__get"]
    assert select_tools(ToolPolicy(allow=("mcp__*",)), available(*SERVERS)).refusal is not None


def test_a_list_in_which_nothing_resolves_is_refused_in_three_groups():
    policy = ToolPolicy(allow=("Frobnicate", "AskUserQuestion", "ExitPlanMode", "WebSearch", "mcp__gone__x"))
    selection = select_tools(policy, available())
    assert selection.tools == {}
    assert selection.refusal == (
        "would be spawned with zero tools — refusing. Its tools list resolved to nothing: "
        "unrecognized [Frobnicate]; not available to subagents [AskUserQuestion, ExitPlanMode]; "
        "matched no tools in this session [WebSearch, mcp__gone__x]"
    )
    assert set(selection.unavailable) == {"AskUserQuestion", "ExitPlanMode"}


def test_not_refused_when_denying_removed_everything():
    selection = select_tools(ToolPolicy(allow=("bash",), deny=("bash",)), available())
    assert selection.tools == {}
    assert selection.refusal is None


def test_readonly_drops_by_effect_and_withholds_the_shell_without_a_sandbox():
    hidden_writer = Plain("innocent", "read", "write")
    selection = select_tools(ToolPolicy(), available(hidden_writer, *SERVERS, AGENT), readonly=True)
    reading = {name for name, tool in builtin_tools().items() if tool.spec.effects <= {"read"}}
    assert {"read", "grep", "find", "ls"} <= reading and {"write", "edit", "bash"}.isdisjoint(reading)
    assert set(selection.tools) == {*reading, "mcp__db__query", "mcp__web__get", "Agent"}
    assert [note for note in selection.notes if note.startswith("bash is withheld")]
    sandboxed = select_tools(ToolPolicy(), available(hidden_writer), readonly=True, shell_sandbox=True)
    assert set(sandboxed.tools) == {*reading, "bash"}
    assert sandboxed.notes == ("innocent is withheld: the agent is read-only",)


def test_readonly_says_which_named_tool_it_withholds():
    selection = select_tools(ToolPolicy(allow=("read", "write")), available(), readonly=True)
    assert list(selection.tools) == ["read"]
    assert selection.notes == ("write is withheld: the agent is read-only",)


def test_readonly_refuses_when_it_leaves_nothing_of_the_list():
    refusal = select_tools(ToolPolicy(allow=("write", "edit")), available(), readonly=True).refusal
    assert refusal is not None
    assert "write is withheld: the agent is read-only" in refusal


def test_a_child_never_has_a_tool_that_a_file_above_it_denies():
    above = ("Bash", "w*", "Edit")
    everything = select_tools(ToolPolicy(), available(), denied_above=above)
    assert set(available()) - set(everything.tools) == {"write", "edit", "bash"}
    assert everything.notes == ("write, edit, bash are withheld: denied by the file of an agent above it",)
    assert select_tools(ToolPolicy(deny=above), available(), denied_above=above).notes == ()
    selection = select_tools(ToolPolicy(allow=("read", "bash")), available(), denied_above=above)
    assert list(selection.tools) == ["read"]
    assert selection.notes == ("bash is withheld: denied by the file of an agent above it",)
    assert select_tools(ToolPolicy(allow=("bash",)), available(), denied_above=above).refusal is not None


def test_spawning_can_be_withheld():
    assert "Agent" in names(ToolPolicy(), AGENT)
    assert "Agent" not in names(ToolPolicy(), AGENT, allow_spawn=False)
    assert select_tools(ToolPolicy(allow=("Task",)), available(AGENT), allow_spawn=False).refusal is not None


def test_custom_tools_are_found_by_their_name():
    custom = Plain("lookUp", "network")
    assert names(ToolPolicy(allow=("lookUp",)), custom) == ["lookUp"]
    assert names(ToolPolicy(allow=("lookup",)), custom) == ["lookUp"]


def test_selectors_without_extensions_warn_and_do_not_refuse():
    selection = select_tools(ToolPolicy(allow=(), selectors=("ext:foo",)), available())
    assert selection.refusal is None
    assert "ext:foo" in selection.notes[0]


@pytest.mark.parametrize(
    ("present", "readonly", "added"),
    [
        ((), False, ("read", "write", "edit")),
        (("read", "edit"), False, ("write",)),
        (("read", "write", "edit", "bash"), False, ()),
        ((), True, ("read",)),
        (("read",), True, ()),
    ],
)
def test_memory_tools_to_add(present, readonly, added):
    assert memory_tools(present, readonly=readonly) == added


ENTRIES = st.lists(
    st.sampled_from(
        ["read", "Bash", "Bash(x *)", "*", "all", "none", "mcp__db", "mcp__*", "zzz", "", "(", "a)b", "gr*"]
    )
    | st.text(max_size=8),
    max_size=6,
).map(tuple)


@given(st.none() | ENTRIES, ENTRIES, st.booleans(), st.lists(st.sampled_from(builtin_names())))
def test_no_policy_ever_gives_more_than_its_rights(allow, deny, readonly, above):
    offered = available(*SERVERS, AGENT)
    selection = select_tools(ToolPolicy(allow=allow, deny=deny), offered, readonly=readonly, denied_above=above)
    for name, tool in selection.tools.items():
        assert name not in above
        assert not readonly or tool.spec.effects <= READ_ONLY | {"spawn"}
        assert name not in deny
    if selection.refusal is not None:
        assert selection.tools == {}
        assert allow or any(map(entry_problem, deny))


SUBJECTS = [("Read", "read"), ("Edit", "write"), ("Write", "write"), ("Bash", "execute"), ("WebFetch", "network")]


@pytest.mark.parametrize(("entry", "effect"), [*SUBJECTS, ("Agent", "spawn"), ("Ta*", "spawn"), ("Web*", "network")])
def test_a_denied_tool_takes_tools_of_plugins_with_its_effect_along(entry, effect):
    every = {"read", "write", "execute", "network", "spawn"}
    plugin = {Plain(f"acme_{other}", other) for other in every}
    tools = (*plugin, Plain("acme_mixed", "ask", effect), Plain("acme_silent"), Plain("mcp__a__b", *every))
    left = {f"acme_{other}" for other in every - {effect}} | {"mcp__a__b"}
    for options in ({}, {"denied_above": (entry,)}):
        policy = ToolPolicy(deny=() if options else (entry,))
        chosen = names(policy, *tools, **options)
        assert {name for name in chosen if name not in available()} == left
    own = set(names(ToolPolicy(deny=(entry,))))
    assert {"grep", "find", "ls"} <= own, "tools of Retinue have names that files can use"
    for entries in (("acme_mixed",), ("ACME_mixed", "read")):
        assert "acme_mixed" in names(ToolPolicy(allow=entries, deny=(entry,)), *tools)
    assert "acme_mixed" not in names(ToolPolicy(allow=("*",), deny=(entry,)), *tools)
    assert "acme_mixed" not in names(ToolPolicy(allow=("acme_mixed",)), *tools, denied_above=(entry,))


@pytest.mark.parametrize(
    ("entry", "patterns"),
    [
        ("Edit(src/**)", {"edit": ("src/**",)}),
        ("MultiEdit(src/**)", {"edit": ("src/**",)}),
        ("Bash(rm *)", {"bash": ("rm *",)}),
        ("mcp__db__query(table:users)", {"mcp__db__query": ("table:users",)}),
        ("acme_notes(kind:secret)", {"acme_notes": ("kind:secret",)}),
    ],
)
def test_a_denied_pattern_is_kept_for_a_tool_that_the_run_does_not_have(entry, patterns):
    """Other tools have its effect, and runs below may have the tool."""
    assert select_tools(ToolPolicy(deny=(entry,)), {"read": Plain("read", "read")}).denied_patterns == patterns
