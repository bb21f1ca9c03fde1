"""What the doctor says about searching and reading the web."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from retinue.app.doctor import DoctorFinding, Installation, examine
from retinue.capabilities.web import searchers as duckduckgo
from retinue.core.install import install_command


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The findings about the web, by name."""
    monkeypatch.setattr(duckduckgo.DuckDuckGo, "missing", lambda self: "install it")

    def examined(settings: dict | None = None, **environment: str) -> dict[str, DoctorFinding]:
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        (home / "settings.json").write_text(json.dumps(settings or {}))
        patient = Installation(tmp_path, {"RETINUE_HOME": str(home), "HOME": str(tmp_path), **environment})
        return {finding.name: finding for finding in examine(patient, ["web"])}

    return examined


def test_nobody_to_ask_is_a_warning_with_a_remedy(look) -> None:
    found = look()["search"]
    assert found.grade == "warning"
    assert "BRAVE_SEARCH_API_KEY" in found.remedy


def test_who_would_be_asked_and_who_is_not_set_up(look) -> None:
    found = look({"web": {"searxngUrl": "http://127.0.0.1:1"}}, TAVILY_API_KEY="secret-key")
    assert found["search"].detail == "asks tavily, then searxng"
    assert "brave (set BRAVE_SEARCH_API_KEY)" in found["search services"].detail
    assert "secret-key" not in str(found)


def test_a_named_service_without_its_key_is_a_warning(look) -> None:
    found = look({"web": {"provider": "exa"}})["search"]
    assert found.grade == "warning"
    assert "EXA_API_KEY" in found.remedy


def test_without_the_extra_pages_are_a_warning_that_names_it(look, monkeypatch: pytest.MonkeyPatch) -> None:
    assert look()["pages"].grade == "ok"
    monkeypatch.setitem(sys.modules, "html_to_markdown", None)
    found = look()["pages"]
    assert found.grade == "warning"
    assert "HTML cannot be read" in found.detail
    assert install_command("web") in found.remedy


def test_a_library_that_is_there_and_cannot_be_imported_is_a_warning(look, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("trafilatura", "justext")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lxml_html_clean", None)
    monkeypatch.delitem(sys.modules, "lxml.html.clean", raising=False)
    found = look()["pages"]
    assert found.grade == "warning" and "trafilatura cannot be imported" in found.detail
    assert "[web]" in found.remedy


def test_switched_off_and_exempt_hosts_are_said(look) -> None:
    assert look({"web": {"enabled": False}})["web tools"].grade == "info"
    assert "10.0.0.1" in look({"web": {"allowHosts": ["10.0.0.1"]}})["allowed hosts"].detail
