"""PDFs that a run reads, as its model gets them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.capabilities.convert.documents import pdf
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

PDF = pdf("Hello from page one", "And from page two")
DATA = base64.b64encode(PDF).decode()


def reading(request: Request) -> Reply:
    return Reply(calls=[("read", {"path": "report.pdf"})]) if request.turn == 0 else Reply("Read.")


def test_a_run_hands_a_pdf_that_it_read_to_claude_as_a_document(project: Project, serve: Any) -> None:
    server = serve(reading)
    (project.cwd / "report.pdf").write_bytes(PDF)
    done = project.retinue("-p", "go", env={"RETINUE_MODEL": "anthropic/claude-sonnet-5-5"})
    assert done.returncode == 0, done.stderr
    (result,) = server.requests[-1].results
    assert result["content"][0]["text"].startswith("report.pdf: PDF, ")
    assert result["content"][1]["source"]["data"] == DATA


def test_a_run_on_a_model_without_documents_reads_the_text_of_a_pdf(project: Project, serve: Any) -> None:
    pytest.importorskip("markitdown")
    server = serve(reading)
    (project.cwd / "report.pdf").write_bytes(PDF)
    settings = project.home / ".retinue" / "settings.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(json.dumps({"models": {"anthropic/claude-sonnet-5-5": {"documents": False}}}))
    done = project.retinue("-p", "go", env={"RETINUE_MODEL": "anthropic/claude-sonnet-5-5"})
    assert done.returncode == 0, done.stderr
    (result,) = server.requests[-1].results
    assert "Hello from page one" in result["content"] and "And from page two" in result["content"]
    assert result["content"].endswith("[text of a PDF, without its images]")
