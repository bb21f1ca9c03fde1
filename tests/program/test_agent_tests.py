"""`retinue test`: tests beside agent files, offline, judged by what the agent did."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.program.conftest import Project
from tests.program.model_server import ModelServer, Reply
from tests.recordings.scenes import fix, git, make_project, run_fixer

TESTS = ".retinue/agents/fixer.test.yaml"
CASSETTE = ".retinue/agents/cassettes/fixer-fix-src-io-py.cassette.jsonl"


@pytest.fixture(scope="module")
def drafted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose agent has a test, drafted from a run."""
    folder = tmp_path_factory.mktemp("drafted")
    made = Project(folder / "project", folder / "home")
    made.cwd.mkdir()
    made.home.mkdir()
    make_project(made)
    with ModelServer(fix) as server:
        run_fixer(made, server)
    done = made.retinue("test", "new", "fixer")
    assert done.returncode == 0, done.stderr
    return made.cwd


@pytest.fixture
def tested(drafted: Path, tmp_path: Path) -> Project:
    shutil.copytree(drafted, tmp_path / "project")
    (tmp_path / "home").mkdir()
    made = Project(tmp_path / "project", tmp_path / "home")
    assert made.retinue("trust", "add", TESTS).returncode == 0
    return made


@pytest.fixture
def server(tested: Project) -> Iterator[ModelServer]:
    with ModelServer(fix) as started:
        tested.server = started
        yield started


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_a_drafted_test_passes_without_a_model_and_leaves_the_project_alone(tested: Project) -> None:
    before = git(tested.cwd, "status", "--porcelain")
    done = tested.retinue("test")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✓ fixer › Fix src/io.py" in done.stdout and "1 passed" in done.stdout
    assert git(tested.cwd, "status", "--porcelain") == before
    assert (tested.cwd / "src/io.py").read_text() == "def f(): pass\n"


def test_a_repository_without_a_commit_is_tested_as_it_is(project: Project) -> None:
    make_project(project)
    shutil.rmtree(project.cwd / ".git")
    git(project.cwd, "init", "-q")
    (project.cwd / ".gitignore").write_text("ignored/\n")
    (project.cwd / "ignored").mkdir()
    with ModelServer(fix) as server:
        project.server = server
        assert project.retinue("run", "fixer", "Fix src/io.py").returncode == 0
    project.server = None
    (project.cwd / "src/io.py").write_text("def f(): pass\n")
    (project.cwd / "made.txt").unlink()
    assert project.retinue("test", "new", "fixer").returncode == 0
    done = project.retinue("test")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert (project.cwd / "src/io.py").read_text() == "def f(): pass\n", "the project itself is left alone"


def test_a_draft_has_the_mode_that_settings_gave_the_run(project: Project) -> None:
    make_project(project)
    with ModelServer(fix) as server:
        project.server = server
        assert project.retinue("run", "fixer", "Fix src/io.py").returncode == 0
    git(project.cwd, "checkout", "-q", ".")
    project.server = None
    assert project.retinue("test", "new", "fixer").returncode == 0
    assert "permission_mode: bypassPermissions" in (project.cwd / TESTS).read_text()
    done = project.retinue("test")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("cassettes/fixer", "cassettes/nothing", ":6: The cassette cassettes/nothing"),
        ("    expect:\n", "    fixture: nowhere\n    expect:\n", ":8: The fixture"),
        ("    expect:\n", "    expect:\n      schema: none.json\n", ":9: The schema none.json does not exist."),
        ("    expect:\n", "    policy: often\n    expect:\n", "One of: always, usually, tracked."),
    ],
)
def test_what_a_case_names_and_is_not_there_is_said_with_its_line(
    tested: Project, before: str, after: str, said: str
) -> None:
    edit(tested.cwd / TESTS, before, after)
    done = tested.retinue("test", "--trust")
    assert done.returncode == 2 and said in done.stdout + done.stderr, done.stdout + done.stderr


def test_a_prompt_that_was_edited_is_still_tested(tested: Project) -> None:
    edit(tested.cwd / ".retinue/agents/fixer.md", "You fix things.", "You fix things with care, and say so.")
    assert tested.retinue("test").returncode == 0


def test_a_tool_that_was_removed_fails_with_the_assertion_and_the_line_of_the_ledger(tested: Project) -> None:
    edit(tested.cwd / ".retinue/agents/fixer.md", "read, edit, bash", "read, bash")
    done = tested.retinue("test", "--junit", "out.xml", "--github")
    assert done.returncode == 1
    assert "tools.called: `edit` did not work once" in done.stdout
    assert "ledger: fixer turn 2: edit(path='src/io.py'" in done.stdout and "is not among your tools" in done.stdout
    assert "::error file=.retinue/agents/fixer.test.yaml,line=" in done.stdout
    failures = ElementTree.parse(tested.cwd / "out.xml").findall("testsuite/testcase/failure")
    assert {each.get("type") for each in failures} == {"tools.called", "files.written"}


def test_a_file_made_through_the_shell_counts_as_written(tested: Project) -> None:
    edit(tested.cwd / TESTS, "        - made.txt\n", "")
    done = tested.retinue("test", "--trust", "--json")
    (case,) = json.loads(done.stdout)["cases"]
    (unmet,) = case["trials"][0]["unmet"]
    assert done.returncode == 1 and unmet["assertion"] == "files.written" and "made.txt" in unmet["reason"]
    assert any("echo made > made.txt" in line for line in unmet["ledger"])


def test_a_cassette_from_another_machine_plays_here(tested: Project, tmp_path: Path) -> None:
    """The other machine has another home and another folder; nothing of them is in the cassette."""
    text = (tested.cwd / CASSETTE).read_text()
    assert str(tmp_path) not in text and "$CWD/src/io.py" in text
    other = Project(tmp_path / "elsewhere" / "checkout", tmp_path / "other-home")
    other.home.mkdir()
    shutil.copytree(tested.cwd, other.cwd)
    done = other.retinue("test", "--trust")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_case_without_a_cassette_is_skipped_and_said(tested: Project) -> None:
    edit(tested.cwd / TESTS, "    model:\n      scenario: cassettes/fixer-fix-src-io-py.cassette.jsonl\n", "")
    (tested.cwd / CASSETTE).unlink()
    done = tested.retinue("test")
    assert done.returncode == 0 and "skipped, it has no cassette" in done.stdout


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("    expect:\n", "    expects:\n", ":8: There is no key `expects` here. Did you mean `expect`?"),
        ("      ended: completed\n", "      ended: fine\n", ":9: `ended`:"),
        ("max: 4", "max: many", ": `max`: expected"),
        ("    task: Fix src/io.py\n", "", ":3: A case has either a `task` or a `routing`."),
        ("cases:\n", "cases: [\n", "YAML"),
        ("agent: fixer", "agent: nobody", "There is no agent 'nobody'"),
        ("agent: fixer\n", "agent: fixer\nfixture: no/such/folder\n", ":2: The fixture"),
        ("fixer-fix-src-io-py.cassette", "gone.cassette", "The cassette cassettes/gone.cassette.jsonl"),
    ],
)
def test_a_broken_test_file_is_named_with_line_reason_and_remedy(
    tested: Project, before: str, after: str, said: str
) -> None:
    edit(tested.cwd / TESTS, before, after)
    done = tested.retinue("test", "--trust")
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stdout + done.stderr and "Traceback" not in done.stderr
    assert "fixer.test.yaml" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace('"version":1', '"version":0', 1), ":1: It is a cassette of version 0"),
        (lambda text: text.replace('"type":"cassette"', '"type":"tape"', 1), ":1: This is not a cassette"),
        (lambda text: text[: len(text) // 2], "This line is not an event"),
        (lambda text: "", ":1: This is not a cassette"),
        (lambda text: text.splitlines()[0] + "\n", "The cassette has no events"),
    ],
)
def test_a_broken_cassette_is_named_with_line_reason_and_remedy(tested: Project, change, said: str) -> None:
    path = tested.cwd / CASSETTE
    path.write_text(change(path.read_text()))
    done = tested.retinue("test")
    assert done.returncode == 2 and said in done.stdout, done.stdout + done.stderr
    assert "retinue runs export RUN --cassette FILE" in done.stdout and "Traceback" not in done.stderr


def test_a_check_of_the_project_runs_only_with_consent(tested: Project) -> None:
    edit(tested.cwd / TESTS, "      denials: []\n", "      denials: []\n      check: grep -q 'return 1' src/io.py\n")
    refused = tested.retinue("test")
    assert refused.returncode == 2 and "it is not trusted" in refused.stdout
    edit(tested.cwd / TESTS, "permission_mode: bypassPermissions", "permission_mode: plan")
    unchecked = tested.retinue("test")
    assert unchecked.returncode == 1 and "run only with consent" in unchecked.stdout
    edit(tested.cwd / TESTS, "permission_mode: plan", "permission_mode: bypassPermissions")
    assert tested.retinue("test", "--trust").returncode == 0
    edit(tested.cwd / TESTS, "'return 1'", "'return 2'")
    failed = tested.retinue("test", "--trust")
    assert failed.returncode == 1 and "exited with 1" in failed.stdout


def test_golden_diffs_are_written_with_update_and_compared_afterwards(tested: Project) -> None:
    edit(tested.cwd / TESTS, "      denials: []\n", "      denials: []\n      diff: golden/fix.patch\n")
    missing = tested.retinue("test", "--trust")
    assert missing.returncode == 1 and "retinue test --update" in missing.stdout
    assert tested.retinue("test", "--trust", "--update").returncode == 0
    golden = tested.cwd / ".retinue/agents/golden/fix.patch"
    assert "+def f(): return 1" in golden.read_text() and "b/made.txt" in golden.read_text()
    assert tested.retinue("test", "--trust").returncode == 0
    edit(golden, "return 1", "return 2")
    assert tested.retinue("test", "--trust").returncode == 1


def test_live_needs_a_price_limit_and_quotes_first(tested: Project, server: ModelServer) -> None:
    refused = tested.retinue("test", "--live", "sonnet")
    assert refused.returncode == 2 and "--max-usd" in refused.stderr
    (tested.cwd / CASSETTE).unlink()
    arguments = ("test", "--live", "anthropic/claude-sonnet-4-5", "--max-usd", "1", "--record", "--repeat", "2")
    done = tested.retinue(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 runs on anthropic/claude-sonnet-4-5" in done.stderr and "at most" in done.stderr
    assert "2 of 2 passed" in done.stdout and len(server.requests) == 8
    tested.server = None
    assert tested.retinue("test").returncode == 0


def test_the_limit_on_the_price_ends_a_live_suite(tested: Project, server: ModelServer) -> None:
    done = tested.retinue("test", "--live", "anthropic/claude-sonnet-4-5", "--max-usd", "0.0000001", "--repeat", "3")
    assert "the limit of $1e-07 is reached" in done.stdout or "over-budget" in done.stdout


def test_two_agents_are_compared_on_the_same_cases(tested: Project) -> None:
    """The second agent lacks a tool, so its runs fail the cases that the first one passes."""
    other = tested.cwd / "other.md"
    text = (tested.cwd / ".retinue/agents/fixer.md").read_text()
    other.write_text(text.replace("read, edit, bash", "read, bash"))
    model = ("--live", "anthropic/claude-sonnet-4-5", "--max-usd", "1", "--repeat", "2")
    with ModelServer(fix) as server:
        tested.server = server
        done = tested.retinue("eval", "fixer", "--compare", "other.md", *model, "--json")
        shown = tested.retinue("eval", "fixer", *model)
    assert done.returncode == 0, done.stderr
    assert "4 runs on anthropic/claude-sonnet-4-5" in done.stderr
    found = json.loads(done.stdout)
    assert [each["passes"] for each in found["agents"]] == [2, 0] and found["difference"]["value"] == -1.0
    assert "100% [34%, 100%]" in shown.stdout, shown.stdout


def test_an_evaluation_that_cannot_begin_says_why(tested: Project) -> None:
    for arguments in (("nobody",), ("fixer", "--compare", "gone.md"), ("fixer", "-k", "nothing")):
        done = tested.retinue("eval", *arguments, "--live", "sonnet", "--max-usd", "1")
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr


def test_a_judge_is_asked_of_a_live_model_only(tested: Project) -> None:
    edit(tested.cwd / TESTS, "      denials: []\n", "      denials: []\n      judge: {rubric: is polite, pass: 0.5}\n")
    offline = tested.retinue("test", "--trust")
    assert offline.returncode == 0 and "the judge is asked with --live only" in offline.stdout

    def answer(request):
        if "rubric" in str(request.body["messages"][0]["content"]):
            return Reply('{"score": 0.2, "reason": "it is rude"}')
        return fix(request)

    with ModelServer(answer) as server:
        tested.server = server
        done = tested.retinue("test", "--trust", "--live", "anthropic/claude-sonnet-4-5", "--max-usd", "1")
    assert done.returncode == 1 and "the judge gave 0.2, wanted 0.5: it is rude" in done.stdout, done.stdout


def test_rights_of_a_test_file_need_consent_to_it_and_to_its_cassette(tested: Project) -> None:
    """A clone must not run recorded commands because its test file names a wide mode."""
    (tested.home / ".ssh").mkdir()
    (tested.home / ".ssh/id_rsa").write_text("PRIVATE")
    cassette = tested.cwd / CASSETTE
    trace = tested.home / "trace"
    stolen = json.dumps(f"cat {tested.home}/.ssh/id_rsa > {trace}")[1:-1]
    before = cassette.read_text()
    assert tested.retinue("test").returncode == 0
    cassette.write_text(before.replace('"read"', '"bash"', 1).replace('"path":"src/io.py"', f'"command":"{stolen}"'))
    assert cassette.read_text() != before
    refused = tested.retinue("test")
    assert refused.returncode == 2 and f"retinue trust add {tested.cwd / TESTS}" in refused.stdout
    assert not trace.exists()
    edit(tested.cwd / TESTS, "permission_mode: bypassPermissions", "permission_mode: default")
    tested.retinue("test")
    assert not trace.exists()


def test_answers_of_a_test_file_need_consent(tested: Project) -> None:
    edit(
        tested.cwd / TESTS,
        "permission_mode: bypassPermissions",
        "permission_mode: default\n    answers: {approval: allow}",
    )
    refused = tested.retinue("test")
    assert refused.returncode == 2 and "answers approvals with allow" in refused.stdout
    listed = tested.retinue("trust").stdout
    assert "answers approvals with allow" in listed
    assert tested.retinue("trust", "add", TESTS).returncode == 0
    assert tested.retinue("test").returncode == 0
