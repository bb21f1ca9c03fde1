"""The profile for the sandbox of macOS: its text, its grammar, and what it would decide. No Mac has run it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from retinue.app import doctor_checks
from retinue.core.programs import NotConfinedError
from retinue.guard.sandbox import kernel, policy, seatbelt
from retinue.guard.sandbox.policy import SandboxPolicy
from retinue.guard.sandbox.seatbelt import in_seatbelt, make_profile

GOLDEN = Path(__file__).with_name("seatbelt")
WORKSPACE, HOME, SCRATCH = Path("/Users/ann/app"), Path("/Users/ann"), Path("/private/var/folders/x/T/run/work")
POLICIES = {
    "unasked": SandboxPolicy(
        reach="system", shown=(WORKSPACE,), hidden=(WORKSPACE / ".env",), home=HOME, path="/Users/ann/.cargo/bin"
    ),
    "workspace": SandboxPolicy(
        writable=(WORKSPACE,),
        readonly=(WORKSPACE / ".git/config",),
        hidden=(WORKSPACE / "keys/secret.pem", HOME / ".retinue"),
        shown=(HOME / ".retinue/outputs",),
        home=HOME,
    ),
    "free": SandboxPolicy(
        change="all", network="on", hidden=(WORKSPACE / ".env",), readonly=(WORKSPACE / ".git/config",)
    ),
    "free without network": SandboxPolicy(change="all", network="off"),
}
OPERATIONS = frozenset(
    """default file-ioctl file-link file-read* file-read-metadata file-write* file-write-data file-write-unlink
    mach-lookup network* network-outbound process-exec* process-fork process-info* signal sysctl-read
    system-socket""".split()
)
FILTERS = frozenset(("literal", "subpath", "global-name", "target"))

Expression = str | list["Expression"]


def read_profile(text: str) -> list[list[Expression]]:
    """Read the rules of a profile: expressions in parentheses of names and quoted texts."""
    tokens = re.findall(r'[()]|"(?:[^"\\]|\\.)*"|[^\s()"]+', text)
    assert "".join(tokens) == re.sub(r'("(?:[^"\\]|\\.)*")|\s', r"\1", text), "something is no token"
    stack: list[list[Expression]] = [[]]
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            expression = stack.pop()
            stack[-1].append(expression)
        else:
            stack[-1].append(token)
    assert len(stack) == 1
    return stack[0]  # type: ignore[return-value]


def unquote(value: Expression) -> str:
    assert isinstance(value, str) and value[0] == value[-1] == '"'
    return re.sub(r"\\(.)", r"\1", value[1:-1])


def is_allowed(profile: str, operation: str, path: str) -> bool:
    """Decide as the kernel does: the last rule about the operation and the path."""
    allowed = False
    for verdict, *words in read_profile(profile)[1:]:
        names = [word for word in words if isinstance(word, str)]
        filters = [word for word in words if isinstance(word, list)]
        about_operation = any(name in ("default", operation) or _covers(name, operation) for name in names)
        about_path = not filters or any(_matches(part, path) for part in filters)
        if about_operation and about_path:
            allowed = verdict == "allow"
    return allowed


def _covers(name: str, operation: str) -> bool:
    return name.endswith("*") and operation.startswith(name[:-1])


def _matches(part: list[Expression], path: str) -> bool:
    if part[0] not in ("literal", "subpath"):
        return False
    value = unquote(part[1])
    return path == value or (part[0] == "subpath" and path.startswith(value + "/"))


@pytest.fixture(autouse=True)
def no_tools(monkeypatch: pytest.MonkeyPatch):
    """Tools of the machine that runs the test are in no golden file."""
    monkeypatch.setattr(seatbelt, "tool_roots", lambda home, path: [path])


@pytest.mark.parametrize("name", POLICIES)
def test_the_profile_of_a_policy_is_as_recorded(name: str):
    file = GOLDEN / f"{name.replace(' ', '-')}.sb"
    assert make_profile(POLICIES[name], SCRATCH) == file.read_text()


@pytest.mark.parametrize("name", POLICIES)
def test_a_profile_follows_the_grammar(name: str):
    version, *rules = read_profile(make_profile(POLICIES[name], SCRATCH))
    assert version == ["version", "1"]
    for index, (verdict, *words) in enumerate(rules):
        assert verdict in ("allow", "deny")
        operations = [word for word in words if isinstance(word, str)]
        filters = [word for word in words if isinstance(word, list)]
        assert operations and words == [*operations, *filters]
        assert set(operations) <= OPERATIONS
        assert ("default" in operations) == (index == 0)
        for part in filters:
            assert part[0] in FILTERS and len(part) == 2
            if part[0] == "target":
                assert part[1] == "same-sandbox"
            elif part[0] == "global-name":
                assert re.fullmatch(r"com\.apple\.[\w.]+", unquote(part[1]))
            else:
                assert unquote(part[1]).startswith("/")


def allows(name: str, operation: str, path: Path | str) -> bool:
    return is_allowed(make_profile(POLICIES[name], SCRATCH), operation, str(path))


def test_an_unasked_command_writes_to_its_scratch_folder_only():
    assert allows("unasked", "file-write-create", SCRATCH / "file")
    for path in (WORKSPACE / "a.py", HOME / ".zshrc", "/private/tmp/x", "/usr/local/bin/x", SCRATCH.parent / "plan"):
        assert not allows("unasked", "file-write-create", path)
        assert not allows("unasked", "file-write-unlink", path)
    assert not allows("unasked", "file-link", SCRATCH / "file")
    assert allows("unasked", "file-write-data", "/dev/null")


def test_an_unasked_command_reads_the_workspace_the_system_and_its_tools():
    for path in (WORKSPACE / "a.py", "/usr/lib/x", "/Users/ann/.cargo/bin/cargo", SCRATCH / "file"):
        assert allows("unasked", "file-read-data", path)
    hidden = (HOME / ".ssh/id_rsa", HOME / "other/a.py", WORKSPACE / ".env", "/private/tmp/x", "/Volumes/x")
    for path in (*hidden, HOME / "Library/Keychains/login.keychain-db", "/Library/Keychains/System.keychain"):
        assert not allows("unasked", "file-read-data", path)


@pytest.mark.parametrize("operation", ["network-outbound", "network-bind", "network-inbound", "mach-register"])
def test_an_unasked_command_reaches_nobody(operation: str):
    assert not allows("unasked", operation, "/private/var/run/docker.sock")
    assert not allows("unasked", operation, "*:443")


def test_protected_and_hidden_files_of_a_writable_workspace_stay():
    assert allows("workspace", "file-write-create", WORKSPACE / "new.py")
    assert allows("workspace", "file-write-unlink", WORKSPACE / "old.py")
    for operation in ("file-write-data", "file-write-unlink", "file-write-create"):
        assert not allows("workspace", operation, WORKSPACE / ".git/config")
        assert not allows("workspace", operation, WORKSPACE / "keys/secret.pem")
    assert allows("workspace", "file-read-data", WORKSPACE / ".git/config")
    assert not allows("workspace", "file-read-data", WORKSPACE / "keys/secret.pem")
    assert not allows("workspace", "file-read-metadata", WORKSPACE / "keys/secret.pem")


def test_folders_above_protected_and_hidden_files_cannot_be_moved():
    for folder in (WORKSPACE, WORKSPACE / ".git", WORKSPACE / "keys"):
        assert not allows("workspace", "file-write-unlink", folder)
    for folder in (HOME, WORKSPACE, WORKSPACE / ".git"):
        assert not allows("free", "file-write-unlink", folder)
    assert allows("free", "file-write-unlink", WORKSPACE / "src")


def test_a_folder_in_a_hidden_one_can_be_shown():
    assert allows("workspace", "file-read-data", HOME / ".retinue/outputs/1.txt")
    assert not allows("workspace", "file-write-data", HOME / ".retinue/outputs/1.txt")
    assert not allows("workspace", "file-read-data", HOME / ".retinue/settings.json")


@pytest.mark.parametrize("change", ["listed", "all"])
def test_a_hidden_file_in_a_shown_folder_of_a_hidden_one_stays_hidden(change: str):
    secrets = (HOME, WORKSPACE / ".env")
    profile = make_profile(SandboxPolicy(change=change, hidden=secrets, shown=(WORKSPACE,)), SCRATCH)  # type: ignore[arg-type]
    assert is_allowed(profile, "file-read-data", f"{WORKSPACE}/a.py")
    for path in (WORKSPACE / ".env", HOME / ".zshrc"):
        assert not is_allowed(profile, "file-read-data", str(path))
        assert not is_allowed(profile, "file-write-data", str(path))


def test_a_free_command_keeps_from_rules_only():
    assert allows("free", "file-write-data", HOME / ".zshrc")
    assert allows("free", "network-outbound", "*:443")
    assert not allows("free", "file-read-data", WORKSPACE / ".env")
    assert not allows("free", "file-link", WORKSPACE / ".env")
    assert not allows("free", "file-write-data", WORKSPACE / ".git/config")
    assert not allows("free without network", "network-outbound", "*:443")


def test_without_anything_to_keep_a_free_command_starts_as_it_is():
    free = SandboxPolicy(change="all", network="on")
    assert in_seatbelt(free, SCRATCH, ["/bin/ls"]) == ["/bin/ls"]
    assert in_seatbelt(POLICIES["free"], SCRATCH, ["/bin/ls"])[:2] == ["/usr/bin/sandbox-exec", "-p"]


def test_a_path_cannot_end_a_rule():
    folder = WORKSPACE / 'a") (allow default) ("\\'
    profile = make_profile(SandboxPolicy(writable=(folder,)), SCRATCH)
    assert ["allow", "default"] not in read_profile(profile)
    assert is_allowed(profile, "file-write-create", f"{folder}/x")
    assert not is_allowed(profile, "file-write-create", f"{WORKSPACE}/x")


@pytest.mark.parametrize(
    "unfit", [SandboxPolicy(writable=(WORKSPACE / "a\nb",)), SandboxPolicy(network=("a.example",))]
)
def test_a_policy_that_no_profile_can_express_starts_nothing(unfit: SandboxPolicy):
    with pytest.raises(NotConfinedError):
        in_seatbelt(unfit, SCRATCH, ["/bin/ls"])


@pytest.mark.skipif(sys.platform == "darwin", reason="is about other systems")
def test_a_mac_without_a_working_sandbox_confines_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(sys, "platform", "darwin")
    for probe in (kernel.why_not, seatbelt.why_no_seatbelt):
        probe.cache_clear()
    try:
        assert kernel.why_not() == "sandbox-exec is not there"
        assert "sandbox-exec" in policy.uncovered(SandboxPolicy())
        rows = list(doctor_checks.layers(doctor_checks.Installation(tmp_path, {})))
        assert [(row[0], row[1]) for row in rows] == [("warning", "Seatbelt")]
        assert "not run on a Mac" in str(rows)
    finally:
        for probe in (kernel.why_not, seatbelt.why_no_seatbelt):
            probe.cache_clear()
