"""Which servers and tools an agent's file means, dialect by dialect."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.capabilities.mcp import ServerScope, may_have_servers
from retinue.core.spec import AgentSpec, ServerRef, ToolPolicy

HERE = ("git", "web")


def spec(dialect: Any = "claude", **fields: Any) -> AgentSpec:
    known = {"allow", "deny", "selectors", "extensions", "exclude_extensions"}
    tools = ToolPolicy(**{key: value for key, value in fields.items() if key in known})
    rest = {key: value for key, value in fields.items() if key not in known}
    return AgentSpec(name="a", dialect=dialect, tools=tools, **rest)


def wanted(agent: AgentSpec, above: frozenset[str] | None = None) -> set[str]:
    if not may_have_servers(agent):
        return set()
    return {name for name in HERE if ServerScope(agent, above).wants(name)}


@pytest.mark.parametrize(
    ("agent", "servers"),
    [
        (spec(), {"git", "web"}),
        (spec(isolated=True), set()),
        (spec(allow=()), set()),
        (spec(allow=("Read",)), set()),
        (spec(allow=("*",)), {"git", "web"}),
        (spec(allow=("Read", "mcp__git")), {"git"}),
        (spec(allow=("mcp__git__*",)), {"git"}),
        (spec(allow=("mcp__git__status",)), {"git"}),
        (spec(allow=("mcp__*",)), set()),
        (spec(allow=("git:status",)), {"git"}),
        (spec(allow=("git/*",)), {"git"}),
        (spec(deny=("mcp__git",)), {"web"}),
        (spec(deny=("mcp__git__*",)), {"web"}),
        (spec(deny=("mcp__*",)), set()),
        (spec(deny=("*",)), set()),
        (spec(deny=("mcp__git__status",)), {"git", "web"}),
        (spec(servers=()), set()),
        (spec(servers=(ServerRef("git"),)), {"git"}),
        (spec(servers=(ServerRef("git"),), allow=("Read",)), {"git"}),
        (spec(servers=(ServerRef("git"),), allow=("Read", "mcp__git__x")), {"git"}),
        (spec("codingcode", servers=(ServerRef("git"),), allow=("read_file",)), {"git"}),
        (spec("codingcode"), set()),
        (spec("codingcode", allow=("*",)), set()),
        (spec("codingcode", allow=("read_file", "git:status")), {"git"}),
        (spec("codingcode", required_servers=("git",)), {"git"}),
        (spec("retinue", servers=(ServerRef("git"),), allow=("read",)), {"git"}),
        (spec(required_servers=("GIT",), allow=("Read",)), {"git"}),
        (spec("pi"), {"git", "web"}),
        (spec("pi", allow=("read",)), {"git", "web"}),
        (spec("pi", allow=("none",)), {"git", "web"}),
        (spec("pi", extensions=False), set()),
        (spec("pi", extensions=("mcp",)), {"git", "web"}),
        (spec("pi", extensions=("MCP", "other")), {"git", "web"}),
        (spec("pi", extensions=("Git",)), {"git"}),
        (spec("pi", extensions=("*",)), {"git", "web"}),
        (spec("pi", extensions=("other",)), set()),
        (spec("pi", exclude_extensions=("git",)), {"web"}),
        (spec("pi", exclude_extensions=("mcp",)), set()),
        (spec("pi", selectors=("ext:git/status",)), {"git"}),
        (spec("pi", selectors=("ext:mcp",)), {"git", "web"}),
        (spec("pi", selectors=("ext:other",)), set()),
    ],
)
def test_servers_of_an_agent(agent: AgentSpec, servers: set[str]) -> None:
    assert wanted(agent) == servers


def test_a_child_has_its_parents_servers_at_most() -> None:
    assert wanted(spec(), frozenset({"git"})) == {"git"}
    assert wanted(spec(required_servers=("web",)), frozenset({"git"})) == {"git"}


def test_selectors_narrow_and_union() -> None:
    def selected(*selectors: str) -> set[str]:
        scope = ServerScope(spec("pi", selectors=selectors), None)
        return {f"{server}/{tool}" for server in HERE for tool in ("a", "b") if scope.selects(server, tool)}

    assert selected() == {"git/a", "git/b", "web/a", "web/b"}
    assert selected("ext:git") == {"git/a", "git/b"}
    assert selected("ext:GIT/a") == {"git/a"}
    assert selected("ext:git/A") == set(), "names of tools are case-sensitive"
    assert selected("ext:git", "ext:git/a") == {"git/a"}, "the narrowing wins"
    assert selected("ext:git/a", "ext:git/b") == {"git/a", "git/b"}
    assert selected("ext:mcp/a") == {"git/a", "web/a"}


def test_required_servers_that_nobody_configured() -> None:
    scope = ServerScope(spec(required_servers=("git", "sl*", "jira")), None)
    assert scope.missing(("git", "slack")) == ("jira",)
