"""Images that a person attaches: as images of the message for models that see them, and as words for the others."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from retinue import Retinue
from retinue.capabilities.attachments.attach import MAX_IMAGE_CHARACTERS
from retinue.tools.read import MAX_IMAGE_BYTES
from tests.program.chat_server import ChatServer
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(64))
DATA = base64.b64encode(PICTURE).decode()
SAID = """What is in @shot.png?

<attached_image name="shot.png">
shot.png: image/png, 72B
It is a part of this message. If you cannot see it here, look at it with read before you answer.
</attached_image>"""
SEEN = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}


@pytest.fixture
def shot(project: Project) -> Path:
    path = project.cwd / "shot.png"
    path.write_bytes(PICTURE)
    return path


def images_of(request: Request) -> list[dict[str, Any]]:
    """The images of the messages of a person."""
    contents = [message["content"] for message in request.body["messages"] if message["role"] == "user"]
    return [part for parts in contents if isinstance(parts, list) for part in parts if part["type"] == "image"]


@pytest.mark.parametrize("command", [("-p",), ("run", "Explore")])
def test_an_image_is_content_of_the_message_in_anthropic_messages(
    project: Project, serve: Any, shot: Path, command: tuple[str, ...]
) -> None:
    server = serve(lambda request: Reply("A cat."))
    done = project.retinue(*command, "What is in @shot.png?")
    assert done.returncode == 0, done.stderr
    first, image = server.requests[0].body["messages"][0]["content"][:2]
    image.pop("cache_control", None)
    assert first == {"type": "text", "text": SAID}
    assert json.dumps(image) == json.dumps(SEEN)


@pytest.mark.parametrize("sees", [True, False])
def test_an_image_in_chat_completions(project: Project, shot: Path, sees: bool) -> None:
    with ChatServer("seer") as server:
        models = [{"id": "seer", "images": sees}]
        providers = {"mine": {"baseUrl": server.url, "api": "openai", "apiKey": "k", "models": models}}
        environment = {"RETINUE_PROVIDERS": json.dumps(providers), "RETINUE_MODEL": "mine/seer"}
        done = project.retinue("-p", "What is in @shot.png?", env=environment)
        assert done.returncode == 0, done.stderr
        content = next(each for each in server.requests[0]["messages"] if each["role"] == "user")["content"]
    if sees:
        url = {"url": f"data:image/png;base64,{DATA}"}
        assert content == [{"type": "text", "text": SAID}, {"type": "image_url", "image_url": url}]
    else:
        assert content == f"{SAID}\n[an image that this model cannot see]"
        assert "accepts no images" in done.stderr


def test_the_path_alone_is_an_image_and_not_a_file_of_words(project: Project, serve: Any, shot: Path) -> None:
    server = serve(lambda request: Reply("A cat."))
    assert project.retinue("-p", "@shot.png").returncode == 0
    assert project.retinue("run", "Explore", "@shot.png").returncode == 0
    assert [len(images_of(request)) for request in server.requests] == [1, 1]


def test_a_resumed_conversation_still_has_the_image(project: Project, serve: Any, shot: Path) -> None:
    server = serve(lambda request: Reply("A cat."))
    assert project.retinue("-p", "What is in @shot.png?").returncode == 0
    shot.write_bytes(PICTURE + b"another")
    run_id = project.json("runs", "list", "--json")["runs"][0]["id"]
    assert project.retinue("-p", "And now in @shot.png?", "--resume", run_id).returncode == 0
    first, second = images_of(server.requests[-1])
    assert first["source"]["data"] == DATA
    assert second["source"]["data"] == base64.b64encode(PICTURE + b"another").decode()
    shown = project.retinue("runs", "show", run_id)
    assert DATA[:40] not in shown.stdout, "people are shown words"


def test_a_replay_asks_with_the_same_image(project: Project, serve: Any, shot: Path) -> None:
    serve(lambda request: Reply("A cat."))
    assert project.retinue("-p", "What is in @shot.png?").returncode == 0
    run_id = project.json("runs", "list", "--json")["runs"][0]["id"]
    shot.unlink()
    assert project.retinue("runs", "export", run_id, "--cassette", "cat.cassette.jsonl").returncode == 0
    assert DATA not in (project.cwd / "cat.cassette.jsonl").read_text(), "a cassette has digests of images"
    done = project.retinue("replay", "cat.cassette.jsonl")
    assert done.returncode == 0, done.stdout + done.stderr


async def test_the_task_keeps_its_image_when_the_conversation_is_shortened(
    project: Project, serve: Any, shot: Path
) -> None:
    server = serve(lambda request: Reply("A cat."))
    async with Retinue(project.cwd, environment=project.environment) as retinue:
        run = await retinue.prompt("What is in @shot.png?")
        await run.wait()
        for words in ("Are you sure?", "Really?", "Quite?"):
            again = await retinue.resume(run.id, words)
            again.controls.compact("the cat")
            await again.wait()
    assert [image["source"]["data"] for image in images_of(server.requests[-1])] == [DATA]


async def test_an_image_that_is_said_meanwhile_is_heard(project: Project, serve: Any, shot: Path) -> None:
    def answer(request: Request) -> Reply:
        if request.turn == 0:
            return Reply("I look.", [("ls", {"path": "."})])
        return Reply("A cat.")

    server = serve(answer)
    async with Retinue(project.cwd, environment=project.environment) as retinue:
        run = await retinue.prompt("Begin.")
        said = await retinue.say("What is in @shot.png?", to=run)
        assert said.action == "steered"
        await run.wait()
    assert images_of(server.requests[-1])[0]["source"]["data"] == DATA


async def test_images_have_the_limits_of_read_and_one_together(project: Project) -> None:
    (project.cwd / "large.png").write_bytes(PICTURE + bytes(MAX_IMAGE_BYTES))
    count = MAX_IMAGE_CHARACTERS // (MAX_IMAGE_BYTES * 4 // 3) + 1
    for number in range(count):
        (project.cwd / f"{number}.png").write_bytes(PICTURE + bytes(MAX_IMAGE_BYTES - len(PICTURE)))
    async with Retinue(project.cwd, environment=project.environment) as retinue:
        large = await retinue.expand("See @large.png")
        many = await retinue.expand(" ".join(f"@{number}.png" for number in range(count)))
    assert large.images == []
    assert "at most 3.6MB can be shown" in large.notes[0]
    assert len(many.images) == count - 1
    assert many.notes == [f"{count - 1}.png is not attached: the images of one message have at most 14.3MB."]


async def test_only_a_person_who_can_be_asked_attaches_images_from_outside(project: Project) -> None:
    outside = project.home / "shot.png"
    outside.write_bytes(PICTURE)

    async def ask(line: str, why: str) -> bool:
        return True

    async with Retinue(project.cwd, environment=project.environment) as retinue:
        program = await retinue.expand(f"See @{outside}")
        person = await retinue.expand(f"See @{outside}", ask=ask)
    assert program.images == []
    assert "outside the workspace" in program.notes[0]
    assert [image.data for image in person.images] == [DATA]
