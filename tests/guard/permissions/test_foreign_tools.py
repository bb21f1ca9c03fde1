"""Rules hold for tools that nobody knows: new ones of Retinue's, those of plugins and those of MCP servers.

Every effect, every kind of rule and every shape of arguments is combined; what matters is what a tool declares, not
what it or its parameters are called.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.guard.permissions.corpus import Block, policy, workspace

from retinue.core.permission import EffectKind, ToolUse
from retinue.core.spec import PermissionMode, PermissionRule
from retinue.core.tool_names import PATH_PARAMETERS, TOOL_EFFECTS
from retinue.guard.permissions import PermissionPolicy
from retinue.guard.permissions.rule import rules_of_file

NAMES = ("look", "acme_notes", "mcp__files__look")
"""As a new tool of Retinue's, of a plugin and of a server is called."""
SHAPES: dict[str, Any] = {
    "a path": lambda text: {"path": text},
    "another name": lambda text: {"which": text},
    "a list": lambda text: {"items": ["README.md", text]},
    "an object": lambda text: {"request": {"target": text}},
    "a key of an object": lambda text: {"contents": {text: "x"}},
    "deep inside": lambda text: {"a": [{"b": {"c": [text]}}]},
    "in a sentence": lambda text: {"query": f"show me {text} please"},
    "in lines": lambda text: {"body": f"first line\n./{text}\nlast line"},
}
FILE_EFFECTS: tuple[tuple[EffectKind, ...], ...] = (
    ("read",),
    ("read", "network"),
    ("read", "write"),
    ("write",),
    ("execute",),
    ("read", "write", "execute", "network"),
    (),
)
FILE_TEXTS = ("secrets/key.txt", ".env", "envlink", "./src/../.env", "{ws}/.env", "file://{ws}/secrets/key.txt")
RULES = ("Read(.env)", "Read(/secrets/**)", "Read(secrets/key.txt)", "Read(*.txt)")
KINDS = ("deny", "ask")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return workspace(tmp_path_factory.mktemp("foreign"))


def ruled(scene: tuple[Path, Path], *rules: tuple[str, str], mode: PermissionMode = "default") -> PermissionPolicy:
    return policy(Block(mode, list(rules)), *scene)


def allowing(scene: tuple[Path, Path], name: str, *rules: tuple[str, str]) -> tuple[PermissionPolicy, ...]:
    """Return policies that let the tool run but for the rules: by an allow rule for it, and in bypass."""
    return ruled(scene, ("allow", name), *rules), ruled(scene, *rules, mode="bypassPermissions")


def is_meant(rule: str, text: str) -> bool:
    of_env = text.endswith((".env", "envlink"))
    return of_env if rule == "Read(.env)" else not of_env


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("name", "effects"), product(NAMES, FILE_EFFECTS))
def test_rules_about_files_hold_whatever_reads(
    scene: tuple[Path, Path], name: str, effects: tuple[EffectKind, ...], shape: str
) -> None:
    whole = shape not in ("in a sentence", "in lines")
    for rule, kind, written in product(RULES, KINDS, FILE_TEXTS):
        # Where a link leads is known only of a text that is a path as a whole.
        if not is_meant(rule, written) or (written == "envlink" and not whole):
            continue
        text = written.replace("{ws}", str(scene[0]))
        use = ToolUse(name, SHAPES[shape](text), frozenset(effects))
        for each in allowing(scene, name, (kind, rule)):
            found = each.decide(use)
            expected = {kind} if whole else {kind, "ask"}
            assert found.verdict in expected, (rule, kind, text, found)


@pytest.mark.parametrize(
    ("name", "effects"), product(NAMES, [("read", "write"), ("write",), ("execute",), ("write", "network")])
)
def test_rules_about_changes_hold_whatever_writes(
    scene: tuple[Path, Path], name: str, effects: tuple[EffectKind, ...]
) -> None:
    for rule, shape in product(("Edit(src/**)", "Write(/src/app.py)", "Edit(/**)"), SHAPES):
        use = ToolUse(name, SHAPES[shape]("src/app.py"), frozenset(effects))
        for each in allowing(scene, name, ("deny", rule)):
            found = each.decide(use).verdict
            if rule != "Edit(/**)" or shape not in ("in a sentence", "in lines"):
                assert found in ("deny", "ask"), (rule, shape)
    harmless = ToolUse(name, {"path": "src/app.py"}, frozenset({"read"}))
    assert ruled(scene, ("allow", name), ("deny", "Edit(src/**)")).decide(harmless).verdict == "allow"


COMMANDS: dict[str, Any] = {
    "a command": {"command": "git push --force"},
    "behind another": {"command": "cd src && git push"},
    "another name": {"line": "git push origin"},
    "a program and its arguments": {"program": "git", "args": ["push", "origin"]},
    "a list": {"argv": ["git", "push"]},
    "an object": {"run": {"what": "git push"}},
    "beyond the grammar": {"input": "x=$(git push) && echo $x"},
    "in another program": {"cmd": "nice-tool git push"},
}


@pytest.mark.parametrize(("name", "shape"), product(NAMES, COMMANDS))
@pytest.mark.parametrize("effects", [("execute",), ("read", "write", "execute", "network"), ()])
def test_rules_about_commands_hold_whatever_executes(
    scene: tuple[Path, Path], name: str, effects: tuple[EffectKind, ...], shape: str
) -> None:
    use = ToolUse(name, COMMANDS[shape], frozenset(effects))
    for kind in KINDS:
        for each in allowing(scene, name, (kind, "Bash(git push:*)")):
            assert each.decide(use).verdict in ("deny", "ask")
    if shape in ("a command", "behind another"):
        assert ruled(scene, ("allow", name), ("deny", "Bash(git push:*)")).decide(use).verdict == "deny"
    other = ToolUse(name, {"command": "git status", "body": "It was pushed by git."}, frozenset(effects))
    assert ruled(scene, ("allow", name), ("deny", "Bash(git push:*)")).decide(other).verdict == "allow"


ADDRESSES: dict[str, Any] = {
    "a url": {"url": "https://evil.example/x"},
    "another name": {"where": "https://evil.example:8080/x"},
    "a host": {"host": "evil.example"},
    "a list": {"targets": ["https://ok.example", "http://a.evil.example"]},
    "without a scheme": {"peer": "evil.example/x"},
    "in a sentence": {"task": "read http://user@EVIL.example/x and tell me"},
}


@pytest.mark.parametrize(("name", "shape"), product(NAMES, ADDRESSES))
@pytest.mark.parametrize("effects", [("network",), ("read", "network"), ("execute",), ()])
def test_rules_about_hosts_hold_whatever_talks_to_them(
    scene: tuple[Path, Path], name: str, effects: tuple[EffectKind, ...], shape: str
) -> None:
    use = ToolUse(name, ADDRESSES[shape], frozenset(effects))
    rules = ("WebFetch(domain:evil.example)", "WebFetch(domain:*.evil.example)", "WebFetch(domain:*)")
    for kind, rule in product(KINDS, rules):
        below = shape == "a list"
        if (rule == rules[0] and below) or (rule == rules[1] and not below):
            continue
        if rule == rules[2] and shape == "without a scheme":
            continue
        for each in allowing(scene, name, (kind, rule)):
            assert each.decide(use).verdict in ("deny", "ask"), rule
    other = ToolUse(name, {"url": "https://ok.example/"}, frozenset(effects))
    assert ruled(scene, ("allow", name), ("deny", rules[0])).decide(other).verdict == "allow"


@pytest.mark.parametrize("name", NAMES)
def test_rules_about_agents_hold_whatever_starts_them(scene: tuple[Path, Path], name: str) -> None:
    for arguments in ({"agent": "Plan"}, {"who": "plan"}, {"jobs": [{"agent": "Plan"}]}, {}):
        use = ToolUse(name, arguments, frozenset({"spawn"}))
        for each in allowing(scene, name, ("deny", "Agent(Plan)")):
            assert each.decide(use).verdict in ("deny", "ask"), arguments
    other = ToolUse(name, {"agent": "Explore"}, frozenset({"spawn"}))
    assert ruled(scene, ("allow", name), ("deny", "Agent(Plan)")).decide(other).verdict == "allow"


@pytest.mark.parametrize(
    ("rule", "effect"),
    [("Read", "read"), ("Edit", "write"), ("Bash", "execute"), ("WebFetch", "network"), ("Agent", "spawn")],
)
def test_a_rule_without_parentheses_means_every_tool_of_a_plugin_that_does_it(
    scene: tuple[Path, Path], rule: str, effect: EffectKind
) -> None:
    for each in allowing(scene, "acme_notes", ("deny", rule)):
        assert each.decide(ToolUse("acme_notes", {}, frozenset({effect}))).verdict == "deny"
        assert each.decide(ToolUse("acme_notes", {}, frozenset({"ask"}))).verdict == "allow"
    served = ruled(scene, ("allow", "mcp__a__b"), ("deny", rule))
    anything = frozenset[EffectKind]({"read", "write", "execute", "network"})
    assert served.decide(ToolUse("mcp__a__b", {"title": "x"}, anything)).verdict == "allow", "servers have names"


def test_a_tool_that_reads_and_names_no_path_is_asked_about(scene: tuple[Path, Path]) -> None:
    given = ruled(scene, ("allow", "summary"), ("deny", "Read(.env)"))
    use = ToolUse("summary", {"lines": 3}, frozenset({"read"}))
    assert given.decide(use).verdict == "ask"
    assert given.decide(ToolUse("summary", {"lines": 3}, frozenset({"read"}), paths=())).verdict == "allow"
    assert ruled(scene, ("allow", "summary")).decide(use).verdict == "allow", "without rules about files"


def test_declared_paths_are_what_counts(scene: tuple[Path, Path]) -> None:
    given = ruled(scene, ("allow", "note"), ("deny", "Read(.env)"))
    effects = frozenset[EffectKind]({"read", "write"})

    def verdict(arguments: dict[str, Any], *paths: str) -> str:
        return given.decide(ToolUse("note", arguments, effects, paths=paths)).verdict

    assert verdict({"to": "src/app.py", "text": "see .env"}, "to") == "allow"
    assert verdict({"to": ".env", "text": "x"}, "to") == "deny"
    assert verdict({"edits": [{"to": "a"}, {"to": ".env"}]}, "edits.to") == "deny"


def test_a_folder_that_holds_a_denied_file_is_a_doubt(scene: tuple[Path, Path]) -> None:
    given = ruled(scene, ("allow", "count"), ("allow", "mcp__files"), ("deny", "Read(secrets/key.txt)"))
    for name in ("count", "mcp__files__search"):
        for arguments, verdict in (({"root": "."}, "ask"), ({"at": "secrets"}, "ask"), ({"root": "src"}, "allow")):
            assert given.decide(ToolUse(name, arguments, frozenset({"read"}))).verdict == verdict, (name, arguments)
    assert given.decide(ToolUse("count", {}, frozenset({"read"}), paths=("root",))).verdict == "ask"
    assert given.decide(ToolUse("count", {"glob": "secrets/*.t?t"}, frozenset({"read"}))).verdict == "ask"


@pytest.mark.parametrize(
    "rules",
    [
        (("deny", "Read(.env)"), ("deny", "Read(secrets/**)"), ("deny", "Bash(rm:*)"), ("deny", "Bash(curl *)")),
        (("deny", "Edit(/**)"), ("deny", "WebFetch(domain:*)"), ("ask", "Bash(git push:*)"), ("deny", "Bash")),
    ],
)
def test_ordinary_calls_of_servers_stay_possible(scene: tuple[Path, Path], rules: tuple[tuple[str, str], ...]) -> None:
    given = ruled(scene, ("allow", "mcp__github"), *rules)
    anything = frozenset[EffectKind]({"read", "write", "execute", "network"})
    for arguments in (
        {},
        {"number": 7},
        {"title": "Crash at start", "labels": ["bug"], "state": "open"},
        {"body": "It fails.\n\nThe secrets of the build aren't set; please look at it."},
        {"query": "is open"},
    ):
        assert given.decide(ToolUse("mcp__github__create_issue", arguments, anything)).verdict == "allow", arguments


def test_arguments_that_cannot_be_looked_through_are_asked_about(scene: tuple[Path, Path]) -> None:
    deep: Any = ".env"
    for _ in range(40):
        deep = [deep]
    given = ruled(scene, ("allow", "look"), ("deny", "Read(.env)"))
    for arguments in ({"x": deep}, {"x": ["a"] * 5_000}):
        assert given.decide(ToolUse("look", arguments, frozenset({"read"}))).verdict == "ask"


def test_an_edit_elsewhere_is_not_accepted_with_the_edits(scene: tuple[Path, Path]) -> None:
    given = ruled(scene, mode="acceptEdits")
    effects = frozenset[EffectKind]({"read", "write"})
    assert given.decide(ToolUse("copy", {"path": "a", "to": "b"}, effects)).verdict == "allow"
    assert given.decide(ToolUse("copy", {"path": "a", "to": "/etc/cron.d/x"}, effects)).verdict == "ask"


def test_every_tool_of_retinue_that_touches_files_declares_its_paths() -> None:
    touching = {name for name, effects in TOOL_EFFECTS.items() if effects & {"read", "write"}} - {"bash"}
    assert touching == set(PATH_PARAMETERS)


LIMITS: tuple[tuple[str, EffectKind, dict[str, Any]], ...] = (
    ("edit", "write", {"path": "src/app.py"}),
    ("bash", "execute", {"command": "git status"}),
    ("read", "read", {"path": "src/app.py"}),
    ("webfetch", "network", {"url": "https://ok.example"}),
    ("task", "spawn", {"agent": "Explore"}),
)


@pytest.mark.parametrize(("entry", "effect", "arguments"), LIMITS)
@pytest.mark.parametrize("mode", ["default", "acceptEdits", "bypassPermissions"])
@pytest.mark.parametrize("exception", [(), ("git *",), ("lib/**",), ("https://other.example",)])
def test_a_permission_map_limits_tools_that_it_does_not_name_by_their_effect(
    scene: tuple[Path, Path],
    entry: str,
    effect: EffectKind,
    arguments: dict[str, Any],
    mode: PermissionMode,
    exception: tuple[str, ...],
) -> None:
    entries = [PermissionRule(entry, "*", "deny"), *(PermissionRule(entry, each, "allow") for each in exception)]
    for effects, name in product(({effect}, {effect, "read"}, set()), ("look", "acme_notes")):
        use = ToolUse(name, arguments, frozenset(effects))
        assert of_file(scene, mode, name, entries).decide(use).verdict == "deny", (effects, name)
        # An entry for the tool itself decides about it.
        named = [*entries, PermissionRule(name, "*", "allow")]
        assert of_file(scene, mode, name, named).decide(use).verdict == "allow", (effects, name)
    others = {"read", "write", "execute", "network", "spawn"} - {effect}
    for other in others:
        use = ToolUse("acme_notes", {"note": "x"}, frozenset({other}))  # type: ignore[arg-type]
        assert of_file(scene, mode, "acme_notes", entries).decide(use).verdict == "allow", other


def of_file(
    scene: tuple[Path, Path], mode: PermissionMode, name: str, entries: list[PermissionRule]
) -> PermissionPolicy:
    """Return the permissions of an agent whose file has these entries, where a rule allows the tool."""
    rules, limits = rules_of_file(entries, source="a.md", base=str(scene[0]))
    return ruled(scene, ("allow", name), mode=mode).fork(mode, rules, limits=limits)


@pytest.mark.parametrize("name", NAMES)
def test_protected_paths_are_asked_about_whatever_an_allow_rule_says_of_the_tool(
    scene: tuple[Path, Path], name: str
) -> None:
    allowed = ruled(scene, ("allow", name))
    for path in (".git/config", ".retinue/settings.json", "./src/../.git/hooks/pre-commit"):
        use = ToolUse(name, {"path": path, "content": "x"}, frozenset({"read", "write"}), paths=("path",))
        assert allowed.decide(use).verdict == "ask", path
    harmless = ToolUse(name, {"path": "src/app.py", "content": "x"}, frozenset({"read", "write"}), paths=("path",))
    assert allowed.decide(harmless).verdict == "allow"


PROTECTED: dict[tuple[str, ...], tuple[dict[str, Any], ...]] = {
    ("which",): (
        {"which": ".git/config"},
        {"which": ["README.md", "./src/../.git/config"]},
        {"which": [["README.md"], [".git/hooks/post-checkout"]]},
        {"which": {"first": ".GIT/config"}},
        {"which": "file://{ws}/.git/config"},
    ),
    ("edits.target",): ({"edits": [{"target": "README.md"}, {"target": ".git/config"}]},),
}


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "bypassPermissions"])
@pytest.mark.parametrize(("name", "effects"), product(NAMES, FILE_EFFECTS))
def test_no_allow_rule_covers_protected_files_of_a_tool_that_may_write(
    scene: tuple[Path, Path], name: str, effects: tuple[EffectKind, ...], mode: PermissionMode
) -> None:
    """As for Retinue's own Edit. A tool that declares no effect, or starts programs, may write as well."""
    only_reads = bool(effects) and not {"write", "execute"} & {*effects}
    judging = ruled(scene, ("allow", name), ("allow", "Edit"), mode=mode)
    for paths, given in PROTECTED.items():
        for arguments in given:
            filled = _filled(arguments, str(scene[0]))
            edit = judging.decide(ToolUse("edit", {"path": ".git/config"}, frozenset({"read", "write"})))
            found = judging.decide(ToolUse(name, filled, frozenset(effects), paths=paths))
            assert found.verdict == ("allow" if only_reads else edit.verdict), (arguments, found)
            assert only_reads or found.by == edit.by == "protected"
    named = ruled(scene, ("allow", name), ("allow", "Edit(.git/config)"), mode=mode)
    plain = ToolUse(name, {"which": "README.md"}, frozenset(effects), paths=("which",))
    assert named.decide(plain).verdict == "allow"


def _filled(value: Any, ws: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(inner, ws) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, ws) for inner in value]
    return value.replace("{ws}", ws)
