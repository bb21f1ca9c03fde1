"""Which tools of extensions an agent's file means (cases I01-I08, in the words of pi)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.capabilities.plugins.tools import Extension, own_paths, scope_extensions
from retinue.core.spec import AgentSpec, ToolPolicy
from retinue.core.tool import ToolSpec
from retinue.tools.base import builtin_names, builtin_tools
from retinue.tools.filter import select_tools

FOO = Extension("Foo", frozenset({"foo", "acme-foo"}), ("foo_one", "foo_two"))
BAR = Extension("bar", frozenset({"bar"}), ("bar_one",))
OWN = Extension("own", frozenset({"own", "./ext/own.py"}), ("own_one",))
HERE = (FOO, BAR)
ALL = {"foo_one", "foo_two", "bar_one"}


class Plain:
    def __init__(self, name: str) -> None:
        self.spec = ToolSpec(name, "", {}, frozenset({"read"}))

    async def run(self, call_id: str, arguments: Any, context: Any) -> Any:
        raise AssertionError("never called here")


def spec(dialect: Any = "pi", isolated: bool | None = None, **tools: Any) -> AgentSpec:
    return AgentSpec(name="scout", dialect=dialect, isolated=isolated, tools=ToolPolicy(**tools))


def scoped(agent: AgentSpec, here: tuple[Extension, ...] = HERE, others: tuple[str, ...] = ()):
    return scope_extensions(agent, agent.tools, here, others=others)


def offered(agent: AgentSpec, here: tuple[Extension, ...] = HERE) -> list[str]:
    """The tools of a run, after the filter that every run goes through."""
    found = scoped(agent, here)
    extra = {name: Plain(name) for each in here for name in each.tools if name in found.tools}
    return list(select_tools(found.policy, {**builtin_tools(), **extra}).tools)


def test_by_default_an_agent_has_the_built_ins_and_all_tools_of_all_extensions():
    for agent in (spec(), spec(extensions=True), spec(allow=("*",)), spec("claude"), spec("retinue")):
        assert set(offered(agent)) == {*builtin_names(), *ALL}
        assert scoped(agent).notes == ()


def test_what_is_denied_is_out_whatever_selects_it():
    assert "foo_one" not in offered(spec(deny=("foo_one",)))
    assert offered(spec(allow=("read",), selectors=("ext:foo",), deny=("foo_*", "read"))) == []


@pytest.mark.parametrize(
    ("said", "tools"),
    [
        (("foo",), {"foo_one", "foo_two"}),
        (("FOO", "Bar"), ALL),
        (("*",), ALL),
        (("*", "bar"), ALL),
        ((), set()),
        (False, set()),
    ],
)
def test_a_list_of_extensions_keeps_exactly_those(said, tools):
    agent = spec(extensions=said)
    assert scoped(agent).tools == tools
    assert scoped(agent).notes == ()


def test_paths_are_kept_beside_names_and_without_a_star_nothing_else():
    here = (*HERE, OWN)
    assert scoped(spec(extensions=("bar", "./ext/own.py")), here).tools == {"bar_one", "own_one"}
    assert scoped(spec(extensions=("./EXT/Own.py",)), here).tools == {"own_one"}
    assert scoped(spec(extensions=("*", "./ext/own.py")), here).tools == {*ALL, "own_one"}
    assert own_paths(spec(extensions=("a", "~/b.py", "c/d", "*", "\\e"))) == ("~/b.py", "c/d", "\\e")
    assert own_paths(spec(extensions=("./b.py",), isolated=True)) == ()


def test_an_unknown_name_is_a_warning_and_the_run_goes_on():
    found = scoped(spec(extensions=("foo", "Nowhere")))
    assert found.tools == {"foo_one", "foo_two"}
    assert found.notes == ('extension-error:extension "Nowhere" is not loaded (agent "scout")',)


def test_the_name_of_its_package_means_an_extension_too():
    assert scoped(spec(extensions=("ACME-foo",))).tools == {"foo_one", "foo_two"}
    assert scoped(spec(exclude_extensions=("acme-foo",))).tools == {"bar_one"}


@pytest.mark.parametrize(
    ("policy", "tools", "note"),
    [
        ({"exclude_extensions": ("foo",)}, {"bar_one"}, None),
        (
            {"extensions": ("foo", "bar"), "exclude_extensions": ("FOO",)},
            {"bar_one"},
            '"foo" is in extensions and in exclude_extensions: exclude wins',
        ),
        ({"exclude_extensions": ("nowhere",)}, ALL, 'exclude_extensions: "nowhere" matches no extension'),
        ({"extensions": ("bar",), "exclude_extensions": ("bar",)}, set(), '"bar" is in extensions'),
        ({"extensions": False, "exclude_extensions": ("foo",)}, set(), "has no effect"),
    ],
)
def test_excluding_wins_and_what_excludes_nothing_is_said(policy, tools, note):
    found = scoped(spec(**policy))
    assert found.tools == tools
    assert [note in each for each in found.notes] == ([True] if note else [])


def test_names_are_compared_with_what_there_is_before_filtering():
    assert scoped(spec(extensions=("bar",), exclude_extensions=("foo",))).notes == ()


@pytest.mark.parametrize(
    ("selectors", "tools"),
    [
        (("ext:foo",), {"foo_one", "foo_two"}),
        (("ext:foo/foo_one",), {"foo_one"}),
        (("ext:foo/foo_one", "ext:foo/foo_two"), {"foo_one", "foo_two"}),
        (("ext:foo", "ext:foo/foo_two"), {"foo_two"}),
        (("ext:foo/foo_one", "ext:bar"), {"foo_one", "bar_one"}),
        (("ext:FOO/foo_one",), {"foo_one"}),
        (("ext:foo/",), {"foo_one", "foo_two"}),
        (("ext:/foo_one", "ext:"), set()),
        (("ext:", "ext:bar"), {"bar_one"}),
    ],
)
def test_selectors_mute_the_rest_narrow_and_add_up(selectors, tools):
    agent = spec(allow=("read",), selectors=selectors)
    assert set(offered(agent)) == {"read", *tools}
    assert scoped(agent).notes == ()


@pytest.mark.parametrize(
    ("selector", "policy", "note"),
    [
        ("ext:nowhere/x", {}, "ext:nowhere selects from an extension that is not loaded"),
        ("ext:foo", {"exclude_extensions": ("foo",)}, "ext:foo selects from an extension that is not loaded"),
        ("ext:foo", {"extensions": False}, "ext:foo selects from an extension that is not loaded"),
        ("ext:foo/Foo_One", {}, 'extension "Foo" has no tool of that name'),
        ("ext:foo/a/b", {}, 'ext:foo/a/b: extension "Foo" has no tool'),
    ],
)
def test_a_selector_that_finds_nothing_is_a_warning(selector, policy, note):
    found = scoped(spec(allow=("read",), selectors=(selector,), **policy))
    assert found.tools == set()
    assert note in found.notes[0]
    assert offered(spec(allow=("read",), selectors=(selector,), **policy)) == ["read"]


def test_selectors_of_servers_are_left_to_those_who_know_servers():
    agent = spec(allow=(), selectors=("ext:git/status", "ext:MCP"), extensions=("git", "mcp"))
    assert scoped(agent, others=("git", "mcp")).notes == ()
    assert len(scoped(agent).notes) == 4


def test_an_isolated_agent_has_built_ins_only_and_no_word_is_said():
    agent = spec(isolated=True, allow=("read",), selectors=("ext:foo",), exclude_extensions=("nowhere",))
    assert offered(agent) == ["read"]
    assert scoped(agent).notes == ()
    assert scoped(spec(isolated=True, extensions=True)).tools == set()


def test_a_list_of_tools_says_nothing_of_extensions_in_pi_and_everything_elsewhere():
    assert set(offered(spec(allow=("read",)))) == {"read", *ALL}
    assert set(offered(spec(allow=("none",)))) == ALL
    assert offered(spec("claude", allow=("read",))) == ["read"]
    assert set(offered(spec("claude", allow=("read", "foo_one")))) == {"read", "foo_one"}
    assert set(offered(spec("retinue", allow=("read",), extensions=("bar",)))) == {"read", "bar_one"}


names = st.sampled_from(["foo", "FOO", "acme-foo", "bar", "nowhere", "*", "./ext/own.py", ""])
selectors = st.sampled_from(["ext:foo", "ext:foo/foo_one", "ext:bar", "ext:x/y", "ext:", "ext:/", "ext:own/own_one"])


@given(
    dialect=st.sampled_from(["pi", "claude", "retinue"]),
    isolated=st.sampled_from([None, True, False]),
    extensions=st.none() | st.booleans() | st.lists(names, max_size=3).map(tuple),
    excluded=st.lists(names, max_size=2).map(tuple),
    chosen=st.lists(selectors, max_size=3).map(tuple),
    allow=st.none() | st.lists(st.sampled_from(["read", "foo_one", "none", "*"]), max_size=2).map(tuple),
)
def test_saying_more_never_gives_more_than_all_and_excluding_always_excludes(
    dialect, isolated, extensions, excluded, chosen, allow
):
    agent = spec(dialect, isolated, extensions=extensions, exclude_extensions=excluded, selectors=chosen, allow=allow)
    found = scoped(agent, (*HERE, OWN))
    assert found.tools <= {*ALL, "own_one"}
    assert found.policy.selectors == ()
    low = {name.lower() for name in excluded}
    for each in (*HERE, OWN):
        if each.names & low or isolated or extensions is False:
            assert found.tools.isdisjoint(each.tools)


def test_no_extension_is_exempt_from_selectors_by_its_name():
    messenger = Extension("pi-c2c", frozenset({"pi-c2c"}), ("c2c_send",))
    assert "c2c_send" in offered(spec(), (*HERE, messenger))
    assert "c2c_send" not in offered(spec(selectors=("ext:foo",)), (*HERE, messenger))
    assert "c2c_send" in offered(spec(selectors=("ext:foo", "ext:pi-c2c")), (*HERE, messenger))
