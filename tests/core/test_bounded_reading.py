"""Files of a project are read by one function, which neither waits nor fills the memory.

A clone can hold a link to a device, an archive a pipe. The first tests put them in the place of every file that the
program reads by itself; the last one keeps other ways of opening files out of the packages that read such files.
"""

import ast
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

import retinue
from retinue.core import files
from retinue.core.files import FileRefusedError, read_file, read_head, read_text

SOURCE = Path(retinue.__file__).parent
RETINUE = Path(sys.executable).with_name("retinue")


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("/dev/zero", "a device"),
        ("/dev/tty", "a device"),
        ("/proc/self/environ", "a file of the kernel"),
        ("/proc/kmsg", None),
        ("/etc", "a folder"),
    ],
)
def test_a_link_to_anything_but_a_regular_file_is_refused_with_the_cause(tmp_path, target, kind):
    link = tmp_path / "settings.json"
    link.symlink_to(target)
    for read in (read_file, read_text, lambda path: read_head(path, 100)):
        with pytest.raises(OSError) as refused:
            read(link)
        # /dev/tty cannot even be opened without a terminal.
        if kind is not None and isinstance(refused.value, FileRefusedError):
            assert refused.value.strerror == f"it is {kind}, not a regular file"
            assert refused.value.reason == "not-a-file"


def test_a_pipe_and_a_socket_are_refused_at_once(tmp_path):
    import socket

    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        began = time.monotonic()
        with pytest.raises(FileRefusedError, match="a pipe, not a regular file"):
            read_file(tmp_path / "pipe")
        with pytest.raises(OSError):
            read_file(tmp_path / "socket")
        assert time.monotonic() - began < 1


def test_a_link_to_a_regular_file_is_read(tmp_path):
    (tmp_path / "real").write_bytes(b"a\r\nb\r")
    (tmp_path / "link").symlink_to("real")
    assert read_file(tmp_path / "link") == b"a\r\nb\r"
    assert read_text(tmp_path / "link") == "a\nb\n"
    assert read_head(tmp_path / "link", 2) == b"a\r"


def test_the_null_device_reads_as_an_empty_file(tmp_path):
    (tmp_path / "link").symlink_to(os.devnull)
    assert read_file(tmp_path / "link") == b""


def test_a_file_is_read_up_to_its_limit_and_no_further(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert read_file(path, 100) == b"x" * 100
    with pytest.raises(FileRefusedError, match="it has 100 bytes, and at most 99 are read") as refused:
        read_file(path, 99)
    assert refused.value.reason == "too-large"
    with path.open("wb") as sparse:
        sparse.truncate(1 << 40)
    assert read_head(path, 10) == b"\0" * 10


def test_a_path_that_no_file_can_have_is_an_error_of_the_operating_system():
    with pytest.raises(OSError):
        read_file("a\0b")


def test_a_file_that_delivers_too_slowly_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    monkeypatch.setattr(files, "MAX_READ_SECONDS", -1.0)
    with pytest.raises(TimeoutError, match="longer than"):
        read_file(path)


READ_BY_ITSELF = (
    *(".claude/settings.json", ".claude/settings.local.json", ".retinue/settings.json", ".retinue/settings.local.json"),
    *(".pi/settings.json", ".pi/subagents.json", ".codingcode/config.yaml", ".mcp.json", ".vscode/mcp.json"),
    *("CLAUDE.md", "AGENTS.md", ".claude/CLAUDE.md", "GEMINI.md", "mcp.yaml", ".worktreeinclude"),
    *(".claude/agents/a.md", ".retinue/agents/a.md", ".claude/commands/c.md", ".claude/skills/s/SKILL.md"),
    *(".claude/agents/a.test.yaml", ".retinue/plugins/p/plugin.json", ".claude-plugin/plugin.json"),
    *(".retinue/agent-memory/explore/MEMORY.md", ".git/config", ".git/HEAD", ".gitmodules", ".retinue/system.md"),
)
"""Every file of a project that a command reads without being told to."""


def hostile(folder: Path, kind: str) -> Path:
    """Return a project in which all those files are pipes, or links to an endless device."""
    subprocess.run(["git", "init", "-q", folder], check=True)
    for name in READ_BY_ITSELF:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
    return folder


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize(
    "command",
    [
        ("doctor",),
        ("agents", "list"),
        ("agents", "lint"),
        ("settings", "list"),
        ("servers", "list"),
        ("trust",),
        ("test",),
        ("run", "Explore", "hello"),
        ("-p", "hello"),
    ],
    ids=" ".join,
)
def test_no_command_waits_or_fills_the_memory_in_a_hostile_project(tmp_path, kind, command):
    project = hostile(tmp_path / "project", kind)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NO_COLOR": "1"}
    done = subprocess.run(
        [RETINUE, *command],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=20,
        stdin=subprocess.DEVNULL,
        preexec_fn=limited,
    )
    assert "Traceback" not in done.stderr
    assert "MemoryError" not in done.stderr


@pytest.mark.parametrize("name", [".claude/settings.json", ".retinue/settings.json", ".retinue/settings.local.json"])
def test_settings_that_cannot_be_read_refuse_the_launch(tmp_path, name):
    path = tmp_path / "project" / name
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    done = subprocess.run(
        [RETINUE, "run", "Explore", "hello", "--json"],
        cwd=tmp_path / "project",
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 2
    assert f"/{name}" in done.stderr and "cannot be read: it is a pipe, not a regular file" in done.stderr
    assert "or remove it" in done.stderr + done.stdout


def test_a_settings_file_under_the_null_device_has_no_effect(tmp_path):
    project = tmp_path / "project"
    (project / ".claude").mkdir(parents=True)
    (project / ".claude/settings.json").symlink_to(os.devnull)
    done = subprocess.run(
        [RETINUE, "doctor", "--json"],
        cwd=project,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert "cannot be read" not in json.dumps(json.loads(done.stdout))


PACKAGES = (
    *(
        "agents",
        "app",
        "capabilities",
        "cluster",
        "recordings",
        "frontends",
        "guard",
        "loop",
        "runs",
        "settings",
        "testing",
        "tools",
    ),
)
OTHERWISE = {
    "agents/edit.py": "writes",
    "agents/manage.py": "a prompt of the package",
    "capabilities/audit/ledger.py": "a lock, and a file of the kernel",
    "capabilities/audit/undo.py": "writes",
    "capabilities/convert/attach.py": "its own cache",
    "capabilities/mcp/tool_list.py": "writes",
    "capabilities/memory/store.py": "an archive in memory",
    "capabilities/web/base.py": "its own cache",
    "capabilities/worktree/record.py": "its own records",
    "capabilities/worktree/integrate.py": "its own records",
    "capabilities/worktree/repository.py": "a copy of the index, whose source is a regular file",
    "capabilities/worktree/save.py": "writes",
    "capabilities/worktree/worktree.py": "a lock",
    "cluster/workspace_store.py": "a bundle that git has just made",
    "frontends/acp/": "the null device, and its own list of sessions",
    "frontends/cli/agents_edit.py": "a file that the person names, which may be a pipe",
    "app/completion.py": "its own cache",
    "frontends/cli/console/progress.py": "the null device",
    "app/doctor_checks.py": "its own probe",
    "frontends/cli/main.py": "the null device",
    "app/process.py": "the null device",
    "app/memory.py": "a file that the person names",
    "frontends/cli/schemas.py": "a schema of the package",
    "frontends/cli/terminal.py": "the null device",
    "frontends/cli/test.py": "writes",
    "frontends/server/": "files of the package, and its own record",
    "app/session_options.py": "a file that the person names, which may be a pipe",
    "app/prompt_history.py": "its own history",
    "frontends/tui/report_commands.py": "writes",
    "frontends/tui/screens/external_editor.py": "a draft of its own",
    "guard/permissions/modes.py": "a prompt of the package",
    "guard/sandbox/": "files of the kernel, and descriptors that follow no link",
    "loop/prompts/": "prompts of the package",
    "runs/prompt.py": "prompts of the package",
    "runs/system_prompt.py": "a page of the package",
    "settings/write.py": "writes",
    "tools/base.py": "prompts of the package",
    "tools/bash.py": "writes",
    "tools/content.py": "writes",
    "tools/delegation/base.py": "writes",
    "tools/delegation/describe.py": "prompts of the package",
    "tools/edit.py": "a folder, by descriptor",
    "tools/paths.py": "opens by descriptor, follows no link and refuses what is no regular file",
    "tools/processes.py": "writes, and files of the kernel",
    "tools/safe_dir.py": "opens by descriptor, follows no link and refuses what is no regular file",
    "tools/server_launcher.py": "the null device, and files of the kernel",
}
"""Where else files are opened, and which they are."""


OTHER_WAYS = ("io.FileIO", "linecache.getlines", "linecache.getline", "fileinput.input", "codecs.open", "mmap.mmap")


def openings(text: str) -> int:
    count = 0
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name):
            count += called.id == "open"
        elif isinstance(called, ast.Attribute):
            owner = called.value.id if isinstance(called.value, ast.Name) else ""
            mode = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
            count += called.attr in ("read_text", "read_bytes")
            named = isinstance(mode, str) and len(mode) < 4
            options = {keyword.arg for keyword in node.keywords} & {
                "mode",
                "encoding",
                "errors",
                "newline",
                "buffering",
            }
            named = named or bool(options) or (not node.args and owner.endswith(("path", "file")))
            count += called.attr == "open" and (named or owner in ("os", "posix", "io"))
            count += f"{owner}.{called.attr}" in OTHER_WAYS
    return count


def test_nothing_else_opens_files_in_packages_that_read_projects():
    opening = set()
    for package in PACKAGES:
        for path in sorted((SOURCE / package).rglob("*.py")):
            if openings(path.read_text("utf-8")):
                opening.add(path.relative_to(SOURCE).as_posix())
    assert {path for path in opening if not path.startswith(tuple(OTHERWISE))} == set()
    assert {place for place in OTHERWISE if not any(path.startswith(place) for path in opening)} == set()


@pytest.mark.parametrize(
    "line",
    [
        "open(path)",
        "path.read_text()",
        "path.open('rb')",
        "path.open()",
        "(folder / name).open(encoding='utf-8')",
        "os.open(path, os.O_RDONLY)",
        "io.FileIO(path)",
        "linecache.getlines(path)",
        "fileinput.input(path)",
    ],
)
def test_the_contract_sees_an_opening(line):
    assert openings(line)
