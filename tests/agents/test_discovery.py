"""Where agent files are found, and which one counts: cases A01-A04, A20-A21, A29-A35, B01-B04."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.git_folder import make_git_folder

from retinue import Retinue
from retinue.agents.catalog import Catalog, FileCache, file_notes
from retinue.agents.folders import SWITCH_VARIABLES
from retinue.errors import DefinitionError, UnknownAgentError, UsageError


class AgentFolders:
    """A project in a repository, and a home, both empty."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "work" / "project"
        self.home.mkdir()
        make_git_folder(self.project)
        self.environment = {"HOME": str(self.home)}

    def agent(self, path: str, name: str | None = "x", *, text: str = "", base: Path | None = None) -> Path:
        head = f"name: {name}\n" if name is not None else ""
        return self.file(path, f"---\n{head}description: d\n{text}---\nBody\n", base=base)

    def file(self, path: str, text: str | bytes, *, base: Path | None = None) -> Path:
        target = (base or self.project) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        return target

    def load(self, cwd: str | Path = "", *, builtins: bool = False, agents: str | None = None) -> Any:
        switch = {} if builtins else {"RETINUE_DISABLE_BUILTIN_AGENTS": "1"}
        return Retinue(self.project / cwd, agents=agents, environment={**switch, **self.environment}).agents


def load_with(folders: AgentFolders, **options: Any) -> Catalog:
    """The same with folders that plugins and administrators bring."""
    return Catalog.load(folders.project, environment=folders.environment, cache=FileCache(), **options)


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    return AgentFolders(tmp_path)


def test_no_folders_no_agents_no_error(folders: AgentFolders) -> None:
    catalog = folders.load()
    assert (catalog.entries, catalog.failed) == ((), ())


def test_workspace_agents(folders: AgentFolders) -> None:
    folders.agent(".agents/agents/x.md", None)
    entry = folders.load().find("x")
    assert (entry.source, entry.spec.source, entry.parsed.dialect) == ("project", "project", "pi")


def test_pi_agents_win_over_workspace_agents(folders: AgentFolders) -> None:
    folders.agent(".agents/agents/x.md")
    winner = folders.agent(".pi/agents/x.md")
    assert folders.load().find("x").path == str(winner)


def test_workspace_agents_win_over_the_users(folders: AgentFolders) -> None:
    folders.agent(".pi/agent/agents/x.md", base=folders.home)
    winner = folders.agent(".agents/agents/x.md")
    catalog = folders.load()
    assert catalog.find("x").path == str(winner)
    assert [entry.shadowed_by for entry in catalog.entries] == [None, str(winner)]


def test_all_files_load_and_other_suffixes_do_not(folders: AgentFolders) -> None:
    folders.agent(".pi/agents/a.md", "a")
    folders.agent(".pi/agents/b.markdown", "b")
    folders.file(".pi/agents/notes.txt", "notes")
    catalog = folders.load()
    assert set(catalog.names) == {"a", "b"}
    assert catalog.failed == ()


def test_a_file_named_like_a_built_in_agent_replaces_it(folders: AgentFolders) -> None:
    folders.agent(".pi/agents/Explore.md", None)
    catalog = folders.load(builtins=True)
    assert catalog.find("Explore").source == "project"
    replaced = [entry for entry in catalog.entries if entry.name == "Explore" and entry.source == "builtin"]
    assert [entry.shadowed_by for entry in replaced] == [catalog.find("Explore").path]


def test_of_two_files_with_one_name_the_later_wins_and_the_other_is_reported(folders: AgentFolders) -> None:
    loser = folders.agent(".pi/agents/a.md", "same")
    winner = folders.agent(".pi/agents/b.md", "same")
    catalog = folders.load()
    assert catalog.find("same").path == str(winner)
    (other,) = [entry for entry in catalog.entries if entry.path == str(loser)]
    assert (other.shadowed_by, other.duplicate_of) == (str(winner), str(winner))
    assert [problem.code for problem in other.problems] == ["duplicate-name"]


def test_strict_callers_can_refuse_to_start(folders: AgentFolders) -> None:
    path = folders.file(".pi/agents/x.md", "---\nname: a:b\n---\n")
    with pytest.raises(DefinitionError, match=str(path)):
        folders.load().require_readable()
    folders.agent(".pi/agents/x.md")
    folders.file(".claude/agents/README.md", "# Only documentation\n")
    folders.load().require_readable()


def test_pis_user_folder_can_be_moved(folders: AgentFolders, tmp_path: Path) -> None:
    folders.agent("agents/x.md", base=tmp_path / "elsewhere")
    folders.environment["PI_CODING_AGENT_DIR"] = str(tmp_path / "elsewhere")
    assert folders.load().find("x").source == "user"


def test_devkit_finds_the_nearest_folder_upward(folders: AgentFolders) -> None:
    far = "name: far\ndescription: d\nreadonly: true\n"
    folders.file(".pi/agents/far.md", f"---\n{far}---\n")
    folders.file("sub/.agents/near.markdown", "---\nname: near\nreadonly: 1\ntools: read, grep\n---\nBody\n")
    (folders.project / "sub" / "deep").mkdir(parents=True)
    catalog = folders.load("sub/deep")
    assert catalog.names == ("near",)
    assert catalog.find("near").spec.readonly is True
    (folders.project / "other").mkdir()
    assert folders.load("other").names == ("far",)


def test_devkit_looks_above_the_repository_within_the_home(folders: AgentFolders) -> None:
    text = "---\nname: outer\nreadonly: true\n---\nBody\n"
    inner = folders.home / "code" / "inner"
    inner.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", inner], check=True)
    outer = folders.file(".agents/outer.md", text, base=folders.home / "code")
    folders.agent(".claude/agents/other.md", "other", base=folders.home / "code")
    assert [entry.path for entry in folders.load(inner).entries] == [str(outer)], "and nothing else of that folder"
    outer.parent.parent.chmod(0o1777)
    assert folders.load(inner).names == (), "others could write there"
    folders.file(".agents/outer.md", text, base=folders.home)
    assert folders.load(inner).names == ("outer",), "the home itself"
    folders.file(".agents/near.md", "---\nname: near\n---\nBody\n", base=inner)
    assert folders.load(inner).names == ("near",), "only the nearest"
    folders.file(".agents/outer.md", text, base=folders.project.parent)
    assert folders.load().names == (), "not outside of the home"


def test_user_agents_of_devkit(folders: AgentFolders) -> None:
    folders.file(".pi/agent/agents/u.md", "---\nname: u\nreadonly: true\npackage: x\n---\n", base=folders.home)
    assert folders.load().find("u").source == "user"


def test_the_five_of_devkit_are_built_in_and_read_only(folders: AgentFolders) -> None:
    catalog = folders.load(builtins=True)
    tools = {}
    for name in ("explorer", "researcher", "reviewer", "implementer", "tester"):
        entry = catalog.find(name)
        assert entry.spec.readonly is True
        assert entry.spec.description
        tools[name] = set(entry.spec.tools.allow or ())
    assert tools.pop("researcher") == {"web_search", "fetch_content", "get_search_content", "convert_content"}
    assert tools["reviewer"] - {"bash"} == {"read", "grep", "find", "ls", "lsp"}, "and a shell inside walls, for git"
    tools.pop("reviewer")
    for name in tools:
        assert tools[name] == {"read", "grep", "find", "ls", "lsp"}, name
    for legacy in ("planner", "worker", "delegate", "oracle", "scout", "context-builder"):
        with pytest.raises(UnknownAgentError):
            catalog.find(legacy)


def test_names_are_found_without_regard_to_case(folders: AgentFolders) -> None:
    catalog = folders.load(builtins=True)
    assert catalog.find("explore").name == "Explore"
    assert catalog.find("GENERAL-PURPOSE").name == "general-purpose"
    with pytest.raises(UnknownAgentError, match="Explore"):
        catalog.find("nobody")


def test_an_inexact_name_that_fits_two_agents_fits_none(folders: AgentFolders) -> None:
    folders.agent(".pi/agents/a.md", "Twin")
    folders.agent(".pi/agents/b.md", "twin")
    catalog = folders.load()
    assert catalog.find("twin").name == "twin"
    with pytest.raises(UnknownAgentError, match="Twin, twin"):
        catalog.find("TWIN")


def test_built_in_agents_leave_the_caller_its_choices(folders: AgentFolders) -> None:
    catalog = folders.load(builtins=True)
    for entry in catalog.entries:
        assert entry.parsed.problems == (), entry.path
        assert (entry.spec.background, entry.spec.inherit_context, entry.spec.isolated) == (None, None, None)
    for name in ("Explore", "Plan"):
        assert not {"write", "edit"} & set(catalog.find(name).spec.tools.allow or ("write",))


def test_the_files_of_the_built_in_agents_have_no_problem(folders: AgentFolders) -> None:
    entries = folders.load(builtins=True).entries
    assert [(entry.name, entry.problems) for entry in entries if entry.source == "builtin" and entry.problems] == []


@pytest.mark.parametrize("switch", SWITCH_VARIABLES)
def test_built_in_agents_can_be_switched_off_by_the_environment(folders: AgentFolders, switch: str) -> None:
    folders.agent(".pi/agents/mine.md", "mine")
    folders.environment[switch] = "1"
    catalog = folders.load(builtins=True)
    assert catalog.names == ("mine",)
    assert catalog.general_purpose().name == "general-purpose"
    folders.environment[switch] = "0"
    assert "Explore" in folders.load(builtins=True).names


def test_and_by_the_setting_where_the_nearest_file_wins(folders: AgentFolders) -> None:
    folders.file(".retinue/settings.json", '{"disableDefaultAgents": true}', base=folders.home)
    assert folders.load(builtins=True).names == ()
    folders.file(".retinue/settings.json", '{"disableDefaultAgents": false}')
    assert "Explore" in folders.load(builtins=True).names
    folders.file(".retinue/settings.local.json", '{"disableDefaultAgents": true}')
    assert folders.load(builtins=True).names == ()
    folders.file(".retinue/settings.local.json", "not json")
    assert "Explore" in folders.load(builtins=True).names


def test_disabled_agents_are_found_but_not_offered(folders: AgentFolders) -> None:
    folders.agent(".pi/agents/Explore.md", None, text="enabled: false\n")
    catalog = folders.load(builtins=True)
    assert not catalog.find("Explore").enabled
    assert "Explore" not in catalog.names
    assert "Explore" in {entry.name for entry in catalog.winners}
    assert "Plan" in catalog.names


def test_precedence_from_policy_to_builtin(folders: AgentFolders, tmp_path: Path) -> None:
    flag = '{"general-purpose": {"description": "d", "prompt": "p"}}'
    policy, plugin = tmp_path / "policy", tmp_path / "plugin"
    order: list[tuple[str, Callable[[], object]]] = [
        ("plugin", lambda: folders.agent("agents/g.md", "general-purpose", base=plugin)),
        ("user", lambda: folders.agent(".claude/agents/g.md", "general-purpose", base=folders.home)),
        ("project", lambda: folders.agent(".claude/agents/g.md", "general-purpose")),
        ("policy", lambda: folders.agent("g.md", "general-purpose", base=policy)),
    ]
    places = {"plugin_folders": [plugin], "policy_folders": [policy], "builtins": True}
    assert load_with(folders, **places).find("general-purpose").source == "builtin"
    for source, write in order:
        if source == "policy":
            assert load_with(folders, **places, agents_json=flag).find("general-purpose").source == "flag"
        write()
        assert load_with(folders, **places).find("general-purpose").source == source
    catalog = load_with(folders, **places, agents_json=flag)
    assert [entry.source for entry in catalog.entries if entry.name == "general-purpose"] == [
        "policy",
        "flag",
        "project",
        "user",
        "plugin",
        "builtin",
    ]


def test_within_one_folder_of_the_project_the_homes_have_an_order(folders: AgentFolders) -> None:
    homes = [
        ".cursor/agents/x.md",
        ".github/agents/x.agent.md",
        ".gemini/agents/x.md",
        ".opencode/agents/x.md",
        ".opencode/agent/x.md",
        ".codingcode/agents/x.md",
        ".agents/agents/x.md",
        ".pi/agents/x.md",
        ".claude/agents/x.md",
        ".retinue/agents/x.md",
    ]
    for home in homes:
        path = folders.agent(home)
        assert folders.load().find("x").path == str(path)
    assert len(folders.load().entries) == len(homes)


def test_the_nearest_folder_wins_and_all_up_to_the_repository_are_read(folders: AgentFolders) -> None:
    outside = folders.agent(".claude/agents/outside.md", "outside", base=folders.project.parent)
    folders.agent(".claude/agents/x.md")
    folders.agent(".claude/agents/top.md", "top")
    near = folders.agent("a/.claude/agents/x.md")
    (folders.project / "a" / "b").mkdir()
    catalog = folders.load("a/b")
    assert catalog.find("x").path == str(near)
    assert set(catalog.names) == {"x", "top"}
    assert str(outside) not in {entry.path for entry in catalog.entries}


def test_without_a_repository_the_walk_goes_up_but_not_through_folders_others_can_write_to(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    shutil.rmtree(folders.project / ".git")
    folders.agent(".claude/agents/top.md", "top", base=folders.project.parent)
    assert folders.load().names == ("top",)
    folders.project.parent.chmod(0o1777)
    assert folders.load().names == ()


def test_the_users_folder_is_the_users_even_when_the_walk_meets_it(folders: AgentFolders) -> None:
    folders.agent(".claude/agents/x.md", base=folders.home)
    (folders.home / "code").mkdir()
    catalog = folders.load(folders.home / "code")
    assert [entry.source for entry in catalog.entries] == ["user"]


def test_claude_and_retinue_folders_are_recursive_and_pi_is_not(folders: AgentFolders) -> None:
    folders.agent(".claude/agents/team/deep/a.md", "a")
    folders.agent(".retinue/agents/team/b.md", "b")
    folders.agent(".pi/agents/team/c.md", "c")
    folders.agent(".claude/agents/.hidden/d.md", "d")
    assert set(folders.load().names) == {"a", "b"}


def test_copilot_reads_only_its_own_suffix(folders: AgentFolders) -> None:
    folders.agent(".github/agents/deep/a.agent.md", None)
    folders.agent(".github/agents/README.md", "readme")
    assert folders.load().names == ("a",)


def test_plugins_are_found_by_their_scoped_name_too(folders: AgentFolders, tmp_path: Path) -> None:
    folders.agent("agents/review/deep.md", None, base=tmp_path / "kit")
    catalog = load_with(folders, builtins=False, plugin_folders=[tmp_path / "kit"])
    assert catalog.find("deep").source == "plugin"
    assert catalog.find("kit:review:deep").name == "deep"


def test_agents_on_the_command_line(folders: AgentFolders) -> None:
    text = '{"a": {"description": "d", "prompt": " P ", "tools": ["Read"], "maxTurns": 3}}'
    catalog = folders.load(agents=text)
    assert catalog.names == ("a",)
    found = catalog.find("a").spec
    assert (found.prompt, found.tools.allow, found.max_turns, found.source) == ("P", ("Read",), 3, "flag")


@pytest.mark.parametrize(
    "broken", ["5", '{"prompt": 7, "description": "d", "tools": ["Read"]}', '{"prompt": "p"}', "[]"]
)
def test_an_agent_on_the_command_line_is_never_replaced_by_a_file(folders: AgentFolders, broken: str) -> None:
    folders.agent(".claude/agents/w.md")
    with pytest.raises(UsageError, match="'w' of --agents cannot be loaded"):
        folders.load(agents=f'{{"w": {broken}}}')


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '"x"', "{", '{"a": ' + "[" * 5000 + "]" * 5000 + "}"])
def test_agents_on_the_command_line_that_are_no_object(folders: AgentFolders, text: str) -> None:
    with pytest.raises(UsageError):
        folders.load(agents=text)


def test_odd_characters_on_the_command_line(folders: AgentFolders) -> None:
    text = '{"a": {"description": "\\ud800", "prompt": "p", "x": 123456789012345678901234567890}}'
    assert len(folders.load(agents=text).find("a").spec.hash) == 64


@pytest.mark.parametrize("text", ["---\nname: x\n---\nno description\n", "---\nname: x\ntools: Read\nno end\n"])
def test_a_broken_file_hides_nothing_and_says_what_loads_instead(folders: AgentFolders, text: str) -> None:
    user = folders.agent(".claude/agents/x.md", base=folders.home)
    folders.file(".claude/agents/x.md", text)
    folders.agent(".claude/agents/y.md", "y")
    catalog = folders.load()
    assert set(catalog.names) == {"x", "y"}
    (failed,) = catalog.failed
    assert failed.instead == str(user)
    assert str(user) in failed.reason


def test_a_disabled_agent_is_not_what_loads_instead_of_a_broken_file(folders: AgentFolders) -> None:
    folders.file(".pi/agent/agents/x.md", "---\ndescription: d\nenabled: false\n---\nDo it.\n", base=folders.home)
    folders.file(".claude/agents/x.md", "---\nname: x\n---\nno description\n")
    catalog = folders.load()
    assert not catalog.find("x").enabled
    (failed,) = catalog.failed
    assert failed.instead is None and "loaded from" not in failed.reason


def test_an_unknown_name_whose_file_is_broken_is_explained(folders: AgentFolders) -> None:
    path = folders.file(".claude/agents/x.md", "---\nname: x\n---\n")
    with pytest.raises(UnknownAgentError, match=str(path)):
        folders.load().find("x")


def test_strange_things_in_a_folder_are_reported_and_never_fatal(folders: AgentFolders) -> None:
    folders.agent(".claude/agents/good.md", "good")
    folder = folders.project / ".claude" / "agents"
    os.mkfifo(folder / "pipe.md")
    (folder / "broken.md").symlink_to(folder / "nowhere.md")
    (folder / "loop").symlink_to(folder)
    (folder / "self.md").symlink_to(folder / "self.md")
    (folder / "folder.md").mkdir()
    folders.file(".claude/agents/big.md", b"---\nname: big\n---\n" + b"x" * (10 * 1024 * 1024))
    folders.file(".claude/agents/binary.md", b"\x00\x01\x02")
    server = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    try:
        os.chdir(folder)  # the path of a socket is short
        server.bind("socket.md")
    finally:
        os.chdir(here)
        server.close()
    catalog = folders.load()
    assert catalog.names == ("good",)
    assert {Path(failed.path).name: failed.problem.code for failed in catalog.failed} == {
        "pipe.md": "not-a-file",
        "broken.md": "broken-link",
        "self.md": "broken-link",
        "socket.md": "not-a-file",
        "big.md": "too-large",
        "binary.md": "binary",
    }
    assert all(failed.reason for failed in catalog.failed)


def test_linked_files_and_folders_are_read_once(folders: AgentFolders, tmp_path: Path) -> None:
    shared = folders.agent("team/x.md", base=tmp_path / "shared")
    folder = folders.project / ".claude" / "agents"
    folder.mkdir(parents=True)
    (folder / "team").symlink_to(shared.parent)
    (folder / "again").symlink_to(shared.parent)
    assert folders.load().names == ("x",)
    assert len(folders.load().entries) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_files_and_folders_are_reported(folders: AgentFolders) -> None:
    secret = folders.agent(".claude/agents/secret.md", "secret")
    closed = folders.agent(".claude/agents/closed/a.md", "a").parent
    folders.agent(".claude/agents/good.md", "good")
    secret.chmod(0)
    closed.chmod(0)
    try:
        catalog = folders.load()
    finally:
        secret.chmod(0o600)
        closed.chmod(0o700)
    assert catalog.names == ("good",)
    assert {failed.path for failed in catalog.failed} == {str(secret), str(closed)}


def test_a_folder_that_is_a_file_is_no_folder(folders: AgentFolders) -> None:
    folders.file(".claude", "not a folder")
    folders.file(".pi/agents", "not a folder")
    assert folders.load().entries == ()


SOUND = "---\nname: x\ndescription: sound\n---\nBody\n"


def test_a_file_that_was_only_recovered_hides_no_sound_one(folders: AgentFolders) -> None:
    recovered = folders.file(".claude/agents/x.md", "---\nname: x\ndescription: d\n  tools: a: [b\n @c\n---\nBody\n")
    sound = folders.file(".claude/agents/x.md", SOUND, base=folders.home)
    catalog = folders.load()
    found = catalog.find("x")
    assert found.path == str(sound)
    (loser,) = [entry for entry in catalog.entries if entry.path == str(recovered)]
    assert (loser.reading, loser.shadowed_by) == ("lines", str(sound))
    (note,) = [each for each in file_notes(found.spec, catalog) if each.startswith(f"{recovered}: ")]
    assert str(sound) in note


def test_agents_that_are_left_out_beside_the_folder_of_pi_are_named(folders: AgentFolders) -> None:
    folders.file(".pi/agents/near.md", SOUND)
    left = folders.file(".agents/left.md", "---\nname: left\nreadonly: true\n---\nBody\n")
    folders.file(".agents/notes.md", "Only notes.\n")
    catalog = folders.load()
    (failed,) = [each for each in catalog.failed if each.problem.severity != "info"]
    assert failed.path == str(left)
    assert str(folders.project / ".pi/agents") in failed.reason
    with pytest.raises(UnknownAgentError, match=str(left)):
        catalog.find("left")


def test_a_codingcode_user_file_replaces_neither_of_its_two_built_in_profiles(folders: AgentFolders) -> None:
    text = "---\nname: Plan\ndescription: mine\n---\nBody\n"
    user = folders.file(".codingcode/agents/Plan.md", text, base=folders.home)
    catalog = folders.load(builtins=True)
    assert catalog.find("Plan").source == "builtin"
    (loser,) = [entry for entry in catalog.entries if entry.path == str(user)]
    assert loser.shadowed_by is not None
    project = folders.file(".codingcode/agents/Plan.md", text)
    assert folders.load(builtins=True).find("Plan").path == str(project)


@pytest.mark.parametrize("name", ["reviewer", "tester", "explorer", "implementer", "researcher", "general-purpose"])
def test_a_codingcode_user_file_replaces_a_built_in_agent_of_another_system(folders: AgentFolders, name: str) -> None:
    user = folders.agent(".codingcode/agents/x.md", name, text='tools: ["read_file"]\n', base=folders.home)
    catalog = folders.load(builtins=True)
    assert [catalog.find(name, each).path for each in (None, "codingcode")] == [str(user)] * 2
    assert catalog.find(name).spec.tools.allow == ("read_file",)


def test_a_pi_agent_is_found_by_its_name_and_by_its_files_name(folders: AgentFolders) -> None:
    path = folders.file(".pi/agents/helper.md", "---\nname: friend\ndescription: d\n---\nBody\n")
    assert [folders.load().find(name).path for name in ("friend", "helper")] == [str(path)] * 2
    folders.file(".claude/agents/b.md", "---\nname: helper\ndescription: d\n---\nBody\n")
    assert folders.load().find("helper").path.endswith("b.md")


@pytest.mark.parametrize("line", ["mode: primary", "hidden: true"])
def test_an_opencode_agent_for_people_is_not_offered_to_agents(folders: AgentFolders, line: str) -> None:
    folders.file(".opencode/agent/chief.md", f"---\ndescription: d\n{line}\n---\nBody\n")
    folders.file(".opencode/agent/hand.md", "---\ndescription: d\nmode: subagent\n---\nBody\n")
    catalog = folders.load()
    assert [entry.name for entry in catalog.offered("claude")] == ["hand"]
    assert catalog.find("chief").startable
