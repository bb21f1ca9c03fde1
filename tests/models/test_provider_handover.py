"""The work of one provider taken up on the next, as a user does it: with the program.

A run on the first provider reads a file, looks at a picture and starts an agent of the second with its whole
conversation (a fork); then the run itself is resumed on the second. Both servers are as strict as their makers.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from retinue.models.presets import BUILT_IN, PRESETS
from tests.fork_server import run_program
from tests.models.servers import Reply
from tests.models.zoo import Animal, Keeper, called, neighbours, spoken

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
FORK = """---
name: second-opinion
description: Looks again, on another provider.
model: {model}
inherit_context: true
tools: read
---
Look again.
"""


class Host(Keeper):
    """Makes the calls of `plan`, one a turn, and then says `last`."""

    def __init__(self, animal: Animal, *plan: tuple[str, dict[str, Any]], last: str) -> None:
        super().__init__(animal)
        self.plan = list(plan)
        self.last = last

    def _hurdle(self) -> Reply | None:
        return None

    def _turn(self) -> Reply:
        if not self.plan:
            return Reply(spoken(self.animal, self.last))
        return Reply(called(self.animal, *self.plan.pop(0)))


def full_name(animal: Animal) -> str:
    return f"{animal.provider}/{animal.model}"


def make_project(folder: Path, *hosts: Host) -> dict[str, str]:
    """A project, the user's settings, and the variables that lead to the servers."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "RETINUE_HOME": str(folder / "home")}
    environment["RETINUE_PERMISSIONS_DEFAULT_MODE"] = "bypassPermissions"
    entries: dict[str, Any] = {}
    for host in hosts:
        animal = host.animal
        preset = BUILT_IN.get(animal.provider) or PRESETS[animal.provider]
        environment |= dict.fromkeys(preset.keys, "key-1234567")
        # The images of models that are not in the table are shown to them here as to the others.
        entry: dict[str, Any] = {"models": [{"id": animal.model, "images": True, "thinking": True, "window": 60000}]}
        if animal.provider == "azure":
            environment["AZURE_OPENAI_ENDPOINT"] = host.url
        else:
            entry["baseUrl"] = f"{host.url}/v1"
        if animal.format != preset.api and animal.provider != "azure":
            entry["api"] = animal.format
        entries[animal.provider] = entry
    (folder / "home").mkdir()
    (folder / "home" / "settings.json").write_text(json.dumps({"providers": entries}))
    project = folder / "project"
    agents = project / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "second-opinion.md").write_text(FORK.format(model=full_name(hosts[-1].animal)))
    (project / "a.txt").write_text("content of a\n")
    (project / "shot.png").write_bytes(PNG)
    return environment


async def retinue(folder: Path, environment: dict[str, str], *words: str) -> dict[str, Any]:
    done = await asyncio.to_thread(run_program, words, folder / "project", environment)
    assert done.returncode == 0, (done.stdout, done.stderr)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.parametrize(("first", "second"), neighbours(), ids=lambda animal: animal.provider)
async def test_a_run_is_forked_to_the_next_provider_and_resumed_there(
    first: Animal, second: Animal, tmp_path: Path
) -> None:
    forked = {"subagent_type": "second-opinion", "description": "again", "prompt": "Look.", "run_in_background": False}
    begin = Host(
        first,
        ("read", {"path": "a.txt"}),
        ("read", {"path": "shot.png"}),
        ("read", {"path": "missing.txt"}),
        ("Agent", forked),
        last="The first is done.",
    )
    again = Host(second, ("read", {"path": "a.txt"}), last="The second is done.")
    async with begin, again:
        environment = make_project(tmp_path, begin, again)
        name = full_name(first)
        before = await retinue(tmp_path, environment, "-p", "Go.", "--model", name, "--output-format", "json")
        assert before["result"] == "The first is done."
        asked = [seen.raw.decode() for seen in again.seen if seen.method == "POST" and b"Look again." in seen.raw]
        assert len(asked) == 2, "the fork ran on the second provider"
        assert "Parent Conversation Context" in asked[0] and "[User]: Go." in asked[0]
        again.plan = [("read", {"path": "a.txt"})]
        resumed = await retinue(
            tmp_path,
            environment,
            *("runs", "resume", before["run_id"], "And the rest?", "--model", full_name(second), "--json"),
        )
    assert resumed["content"][0]["text"] == "The second is done."
    assert (begin.refused, again.refused) == ([], [])
    last = again.seen[-1].raw.decode()
    assert "content of a" in last and "And the rest?" in last and "Go." in last
