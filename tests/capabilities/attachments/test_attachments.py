"""`@path` in a prompt: what is attached, and what is refused with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

from retinue import Retinue
from retinue.capabilities.attachments.attach import MAX_ATTACHMENTS, find_mentions, holds_secrets
from retinue.core.person_prompt import PersonPrompt


def asked(request: Request) -> str:
    content = request.body["messages"][0]["content"]
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


async def expanded(project: Project, text: str) -> PersonPrompt:
    async with Retinue(project.cwd, environment=project.environment) as retinue:
        return await retinue.expand(text)


def test_a_file_a_range_and_a_folder_go_with_the_words(project: Project, serve: Any) -> None:
    (project.cwd / "src").mkdir()
    (project.cwd / "src" / "app.py").write_text("".join(f"line {n}\n" for n in range(1, 9)))
    server = serve(lambda request: Reply("Read."))
    done = project.retinue("-p", "Compare @f0.txt, @src/app.py#L3-4 and @src/.")
    assert done.returncode == 0, done.stderr
    text = asked(server.requests[0])
    assert text.startswith("Compare @f0.txt, @src/app.py#L3-4 and @src/.\n")
    assert '<attached_file name="f0.txt">' in text
    assert "alpha 0" in text
    assert "line 3" in text
    assert "line 5" not in text
    assert '<attached_folder name="src/">' in text


def test_a_command_may_name_files_too(project: Project, serve: Any) -> None:
    (project.cwd / ".claude/commands").mkdir(parents=True)
    (project.cwd / ".claude/commands/look.md").write_text("Look at @f1.txt.\n")
    server = serve(lambda request: Reply("Read."))
    assert project.retinue("-p", "/look").returncode == 0
    assert "alpha 1" in asked(server.requests[0])


async def test_secrets_binaries_and_files_outside_are_refused_with_a_sentence(project: Project) -> None:
    (project.cwd / ".env").write_text("KEY=hunter2\n")
    (project.cwd / "data.bin").write_bytes(b"\0\1\2" * 100)
    (project.home / "outside.txt").write_text("not here\n")
    said = await expanded(project, f"See @.env @data.bin @{project.home}/outside.txt @missing.txt @someone")
    assert said.blocks == []
    assert len(said.notes) == 3
    assert ".env is not attached: a file of this name usually contains secrets" in said.notes[0]
    assert "data.bin is binary data" in said.notes[1]
    assert "outside the workspace" in said.notes[2]


def test_why_a_file_is_not_attached_is_said_on_the_command_line(project: Project, serve: Any) -> None:
    (project.cwd / ".env").write_text("KEY=hunter2\n")
    serve(lambda request: Reply("Fine."))
    done = project.retinue("-p", "See @.env please")
    assert ".env is not attached" in done.stderr
    assert done.stdout == "Fine.\n"


async def test_a_file_that_a_rule_denies_is_not_attached(project: Project) -> None:
    environment = project.environment | {"RETINUE_PERMISSIONS_DENY": '["Read(f2.txt)"]'}
    async with Retinue(project.cwd, environment=environment) as retinue:
        said = await retinue.expand("See @f2.txt and @f3.txt")
    assert [block.name for block in said.blocks] == ["f3.txt"]
    assert said.notes[0].startswith("f2.txt is not attached: ")


async def test_only_so_many_files_are_attached(project: Project) -> None:
    names = [f"many{number}.txt" for number in range(MAX_ATTACHMENTS + 2)]
    for name in names:
        (project.cwd / name).write_text("x\n")
    said = await expanded(project, " ".join(f"@{name}" for name in names))
    assert len(said.blocks) == MAX_ATTACHMENTS
    assert said.notes == [
        f"{names[MAX_ATTACHMENTS]} and the files after it are not attached: at most {MAX_ATTACHMENTS} files are."
    ]


async def test_an_image_is_named_so_that_the_model_looks_at_it(project: Project) -> None:
    (project.cwd / "shot.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 64)
    said = await expanded(project, "What is wrong in @shot.png?")
    assert [(block.tag, block.name) for block in said.blocks] == [("attached_image", "shot.png")]
    assert "look at it with read" in said.blocks[0].text


def test_a_mention_is_a_path_that_exists(tmp_path: Path) -> None:
    (tmp_path / "my notes.md").write_text("x")
    (tmp_path / "a.py").write_text("x")
    text = 'me@a.py (@a.py) @"my notes.md" @a.py, @decorator @a.py#L2'
    assert [mention.shown for mention in find_mentions([text], tmp_path)] == ["a.py", "my notes.md", "a.py#L2"]


@pytest.mark.parametrize("name", [".env", ".env.local", "id_rsa", "server.PEM", "credentials.json"])
def test_names_of_files_with_secrets(name: str) -> None:
    assert holds_secrets(name)


@pytest.mark.parametrize("name", [".env.example", "id_rsa.pub", "keyboard.py", "environment.yml"])
def test_names_of_files_without_secrets(name: str) -> None:
    assert not holds_secrets(name)


def test_a_model_that_takes_no_images_is_said_to_the_person(project: Project, serve: Any) -> None:
    (project.cwd / "shot.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 64)
    serve(lambda request: Reply("Blind."))
    seeing = project.retinue("-p", "See @shot.png please")
    assert "accepts no images" not in seeing.stderr
    blind = project.retinue("-p", "See @shot.png please", "--model", "anthropic/unheard-of-1")
    assert "anthropic/unheard-of-1 accepts no images" in blind.stderr
