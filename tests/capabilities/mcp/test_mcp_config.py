"""Configurations of every system, good and bad: a bad one is a server with a reason."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp_types import Tool

from retinue.capabilities.mcp.config import ServerConfig, any_file, configured_servers, read_server
from retinue.capabilities.mcp.tool_list import listing
from retinue.core.tool_names import served_alias, served_name, served_word
from retinue.guard.permissions.rule import Rule, names_tool, parse_rule
from retinue.settings.field import Origin
from tests.git_folder import make_git_folder

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(["command", "args", "env", "cwd", "url", "headers", "type", "timeout", "concurrency", "x"])


def read(raw: Any, **environment: str) -> ServerConfig:
    found = read_server("s", raw, environment, origin="test", provenance="person")
    assert found is not None
    return found


@given(st.text(max_size=80), JSON | st.dictionaries(KEYS, JSON, max_size=6))
@example("s", {"command": ["npx", "x"], "args": 5})
def test_no_configuration_raises(name: str, raw: Any) -> None:
    found = read_server(name, raw, {"A": "b"}, origin="test", provenance="person")
    if found is not None and found.problem is None:
        assert found.command or found.url.startswith("http")
        assert found.digest


@given(st.text(max_size=100), st.text(max_size=100))
def test_names_are_what_providers_take(server: str, tool: str) -> None:
    name = served_name(server, tool)
    assert name.startswith("mcp__") and len(name) <= 64
    assert all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
    served_alias(server + tool)


def test_long_names_stay_apart() -> None:
    assert served_name("s", "a" * 80 + "x") != served_name("s", "a" * 80 + "y")


WORDS = st.text("ab_.- ", min_size=1, max_size=8)


@given(WORDS, WORDS, WORDS, WORDS)
@example("a", "b__get", "a__b", "get")
@example("a", "_b", "a_", "b")
@example("a", "__b", "a.", "b")
def test_a_rule_about_one_server_never_fits_another(one: str, tool: str, other: str, its: str) -> None:
    servers = [read_server(name, {"command": "x"}, {}, origin="", provenance="person") for name in (one, other)]
    if any(server is None or server.problem for server in servers) or served_word(one) == served_word(other):
        return
    assert served_name(one, tool) != served_name(other, its)
    for kind, text in product(("allow", "deny"), (f"mcp__{served_word(one)}", served_name(one, tool))):
        rule = parse_rule(text, kind)
        assert isinstance(rule, Rule)
        assert names_tool(rule, served_name(one, tool)) and not names_tool(rule, served_name(other, its))


@pytest.mark.parametrize("name", ["a__b", "_a", "a_", "a..b", "(a)", "a" * 49])
def test_a_server_that_rules_cannot_tell_from_others_is_not_used(name: str) -> None:
    found = read_server(name, {"command": "x"}, {}, origin="", provenance="person")
    assert found is not None and "rules could not tell its tools" in str(found.problem)


def test_of_two_tools_that_models_cannot_tell_apart_the_first_counts() -> None:
    def named(name: str) -> Tool:
        return Tool(name=name, input_schema={"type": "object"})

    found = listing([named("get.x"), named("get_x"), named("put")])
    assert [tool.name for tool in found.tools] == ["get.x", "put"]
    assert "'get_x' is left out" in found.problems[0]


def test_aliases() -> None:
    assert served_alias("github:create") == served_alias("github/create") == "mcp__github__create"
    assert served_alias("github/*") == "mcp__github__*"
    assert served_alias("read") is None


def test_forms_of_others() -> None:
    assert read({"command": ["npx", "-y", "x"]}).args == ("-y", "x")
    assert read({"type": "local", "command": "x"}).transport == "stdio"
    assert read({"httpUrl": "https://h/mcp"}).transport == "http"
    assert read({"type": "sse", "url": "https://h/sse"}).transport == "sse"
    assert read({"command": "x", "timeout": 30000}).call_seconds == 30
    assert read({"command": "x", "timeout": 30}).call_seconds == 30
    assert read_server("s", {"command": "x", "disabled": True}, {}, origin="", provenance="person") is None
    for written in ({"disabled": "true"}, {"disabled": 1}, {"enabled": "false"}, {"Disabled": True}, {"disable": True}):
        server = read_server("s", {"command": "x", **written}, {}, origin="", provenance="person")
        assert server is None or server.problem, written


def test_variables() -> None:
    raw = {"command": "${P}", "args": ["--${Q:-q}"], "env": {"K": "${SECRET}"}, "url": ""}
    config = read(raw, P="prog", SECRET="s3")
    assert (config.command, config.args, dict(config.env)) == ("prog", ("--q",), {"K": "s3"})
    assert "s3" not in config.target
    assert "SECRET is not set" in str(read(raw, P="prog").problem)
    assert read({"command": "a", "env": {"K": "${E:-}"}}, E="").env == {"K": ""}


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (5, "object"),
        ({}, "neither"),
        ({"command": 5}, "string"),
        ({"command": "x", "args": "a b"}, "list"),
        ({"command": "x", "env": []}, "object"),
        ({"command": "x", "env": {"A": None}}, "string"),
        ({"command": "x", "env": {"A=B": "c"}}, "cannot be passed"),
        ({"url": "ftp://x"}, "http"),
        ({"type": "ws", "url": "ws://x"}, "ws"),
        ({"command": "x", "concurrency": 0}, "1 to 1000"),
        ({"command": "x", "timeout": "soon"}, "seconds"),
    ],
)
def test_reasons(raw: Any, word: str) -> None:
    assert word in str(read(raw).problem)


def test_annotations_are_believed_only_where_the_user_says_so() -> None:
    raw = {"command": "x", "trustAnnotations": True}
    mine = read_server("s", raw, {}, origin="", provenance="person")
    theirs = read_server("s", raw, {}, origin="", provenance="project")
    assert mine is not None and mine.trust_annotations
    assert theirs is not None and not theirs.trust_annotations


def test_sources_and_their_order(tmp_path: Path) -> None:
    home, top = tmp_path / "home", tmp_path / "repo"
    cwd = top / "sub"
    for folder in (home / ".codingcode", cwd / ".codingcode"):
        folder.mkdir(parents=True)
    environment = {"HOME": str(home)}

    def servers(**commands: str) -> dict[str, Any]:
        return {"mcpServers": {name: {"command": command} for name, command in commands.items()}}

    make_git_folder(top)
    assert not any_file(cwd, environment, claude=True)
    local = {str(top): servers(mine="local")}
    (home / ".claude.json").write_text(json.dumps({**servers(a="claude", mine="user"), "projects": local}))
    (home / ".codingcode" / "mcp.yaml").write_text("servers:\n  - name: cc\n    command: codingcode\n  - command: x\n")
    (top / ".mcp.json").write_text(json.dumps(servers(a="outer", outer="outer")))
    (cwd / ".mcp.json").write_text(json.dumps(servers(a="inner")))
    (cwd / ".codingcode" / "mcp.yml").write_text("servers: {cc2: {url: 'https://x/mcp'}}")
    assert any_file(cwd, environment, claude=True)
    found = configured_servers(
        cwd,
        environment,
        settings={"outer": {"command": "settings"}, "off": {"command": "x", "disabled": True}},
        origin=lambda name: Origin("project", str(cwd / ".retinue" / "settings.json")),
    )
    told = {
        name: (server.command or server.url, server.provenance == "person") for name, server in found.servers.items()
    }
    assert told == {
        "a": ("inner", False),
        "mine": ("local", True),
        "cc": ("codingcode", True),
        "cc2": ("https://x/mcp", False),
        "outer": ("settings", False),
    }
    assert len(found.problems) == 1 and "without a name" in found.problems[0]
    without = configured_servers(cwd, environment, claude=False)
    assert "mine" not in without.servers


def test_a_file_nested_too_deeply_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    """PyYAML's composer in C recursed until the process ended."""
    (tmp_path / ".codingcode").mkdir()
    (tmp_path / ".codingcode" / "mcp.yaml").write_text("servers: " + "[" * 100_000 + "]" * 100_000)
    found = configured_servers(tmp_path, {"HOME": str(tmp_path)}, settings={"good": {"command": "x"}})
    assert "mcp.yaml cannot be read" in found.problems[0] and found.servers["good"].problem is None


@given(st.binary(max_size=200))
def test_broken_files_hide_nothing(content: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        cwd = Path(name)
        (cwd / ".codingcode").mkdir()
        (cwd / ".mcp.json").write_bytes(content)
        (cwd / ".codingcode" / "mcp.yaml").write_bytes(content)
        found = configured_servers(cwd, {"HOME": name}, settings={"good": {"command": "x"}})
        assert found.servers["good"].problem is None
