"""The doctor: what it says, and what its exit code means."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.app import doctor as doctor
from retinue.app.doctor import DOCTOR_CHECKS, Installation, examine
from retinue.core.install import install_command
from retinue.frontends.cli.main import run
from retinue.guard.sandbox import kernel
from retinue.guard.sandbox import policy as probe


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project").mkdir()
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "RETINUE_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RETINUE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def document(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = run(["doctor", "--json", *words])
    return code, json.loads(capsys.readouterr().out)


def test_every_category_is_looked_at_and_every_complaint_has_a_remedy(project: Path, capsys: Any):
    code, found = document(capsys)
    assert code == (0 if found["ok"] else 1)
    assert {row["category"] for row in found["findings"]} == {category for category, _ in DOCTOR_CHECKS}
    for row in found["findings"]:
        assert set(row) == {"category", "name", "status", "detail", "remedy"}
        assert row["status"] in ("ok", "info") or row["remedy"], row


def test_the_text_names_what_is_wrong_and_what_to_do(project: Path, capsys: Any):
    (project / ".retinue").mkdir()
    (project / ".retinue" / "settings.json").write_text('{"maxConcurrent": "many"}')
    assert run(["doctor", "settings"]) == 0
    out = capsys.readouterr().out
    assert "maxConcurrent" in out
    assert "Correct the file" in out
    assert out.endswith("1 warning.\n")


@pytest.mark.skipif(kernel.why_not() is not None, reason=str(kernel.why_not()))
def test_the_walls_are_tried(project: Path, capsys: Any):
    code, found = document(capsys, "sandbox")
    rows = {row["name"]: row for row in found["findings"]}
    assert code == 0
    assert rows["walls"]["status"] == "ok"
    assert "change a file's mode" in rows["walls"]["detail"]
    assert "connect" in rows["walls"]["detail"]


def test_a_host_that_cannot_confine_says_what_that_means(project: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("retinue.app.doctor_checks.why_not", lambda: "this is a test")
    monkeypatch.setattr("retinue.app.doctor_checks.landlock_abi", lambda: 0)
    _, found = document(capsys, "sandbox")
    rows = {row["name"]: row for row in found["findings"]}
    assert rows["Landlock"]["status"] == "warning"
    assert "read-only agents have no shell here: this is a test" in rows["read-only shells"]["detail"]


@pytest.mark.skipif(not probe.masks_work(), reason="needs namespaces, to take them away")
def test_a_host_without_namespaces_is_told_which_walls_do_not_hold(project: Path):
    """A user namespace in which no further ones may be made stands for such a host."""
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all -- "$@"'
    argv = ["unshare", "-U", "--map-user=1000", "--map-group=1000", "--keep-caps", "sh", "-c", script, "sh"]
    done = subprocess.run([*argv, sys.executable, "-m", "retinue", "doctor", "sandbox"], capture_output=True, text=True)
    rows = {line.split(":")[0].strip(" !✓·✗"): line for line in done.stdout.splitlines() if ": " in line}
    assert "could" not in rows["walls"], done.stdout + done.stderr
    assert "see only the system, your tools and the workspace" in rows["reading"]
    assert "are not walled off from commands that may change everything" in rows["rules about files"]
    assert "Files in a writable folder cannot be hidden or protected" in rows["not covered"]
    assert "in a container, allow user namespaces" in done.stdout.lower()


def test_keys_are_named_and_never_shown(project: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-very-secret-value")
    run(["doctor", "models"])
    out = capsys.readouterr().out
    assert "ANTHROPIC_API_KEY" in out
    assert "very-secret" not in out


def test_a_damaged_log_is_a_failure(project: Path, capsys: Any):
    from retinue.settings.places import state_folder

    folder = state_folder(project)
    folder.mkdir(parents=True)
    (folder / "log.db").write_bytes(b"not a database, whatever it is called" * 100)
    code, found = document(capsys, "log")
    assert code == 1
    assert [row for row in found["findings"] if row["name"] == "log" and row["status"] == "failure" and row["remedy"]]


def test_an_unknown_category_is_refused(project: Path, capsys: Any):
    assert run(["doctor", "weather"]) == 2
    assert "Choose from: system" in capsys.readouterr().err


def test_a_check_that_breaks_hides_no_other(project: Path, monkeypatch: pytest.MonkeyPatch):
    def nonsense(installation: Installation) -> None:
        raise RuntimeError("nonsense")

    rows = [("broken", nonsense), *DOCTOR_CHECKS]
    monkeypatch.setattr(doctor, "DOCTOR_CHECKS", rows)
    found = list(examine(Installation(project, {"HOME": str(project)}), ("broken", "settings")))
    assert [finding.grade for finding in found] == ["failure", "ok"]


def test_a_model_whose_extra_is_missing_is_a_failure_that_names_it(
    project: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "pydantic_ai.direct", None)  # as where the extra is not installed
    monkeypatch.setenv("RETINUE_MODEL", "pydantic-ai/bedrock:us.anthropic.claude-sonnet-5-5-20261001-v1:0")
    code, found = document(capsys, "models")
    (row,) = [row for row in found["findings"] if row["name"] == "default"]
    assert (code, row["status"]) == (1, "failure")
    assert "'bedrock' needs the optional part 'providers'" in row["detail"]
    assert install_command("providers") in row["remedy"]
