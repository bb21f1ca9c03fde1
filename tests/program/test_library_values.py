"""The library in programs: typed results, models as objects, one call in any place, many tasks at once."""

import subprocess
import sys
import textwrap
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import pydantic
import pytest

import retinue
from retinue import MapProgress, Retinue, Run
from retinue.core.messages import AssistantMessage, Text
from retinue.core.spec import AgentSpec, ToolPolicy
from retinue.errors import ConfigurationError, RefusedAgentError, UnknownAgentError, UsageError
from retinue.models.protocol import Finished, ModelInfo, ModelRequest
from retinue.testing import Call, Expect, ScriptedModel, Turn


@dataclass
class Finding:
    title: str
    line: int


class Place(TypedDict):
    file: str


class Checked(pydantic.BaseModel):
    title: str
    line: int

    @pydantic.field_validator("line")
    @classmethod
    def _positive(cls, line: int) -> int:
        if line < 1:
            raise ValueError("lines begin with 1")
        return line


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETINUE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def submits(*values: object) -> ScriptedModel:
    return ScriptedModel(*(Turn(Call("submit_result", value)) for value in values))


@pytest.mark.parametrize(
    ("schema", "submitted", "value"),
    [
        (Finding, {"title": "a", "line": 3}, Finding("a", 3)),
        (Place, {"file": "a.py"}, {"file": "a.py"}),
        (Checked, {"title": "a", "line": 3}, Checked(title="a", line=3)),
        (list[Finding], {"value": [{"title": "a", "line": 3}]}, [Finding("a", 3)]),
        (list[Checked], {"value": [{"title": "a", "line": 3}]}, [Checked(title="a", line=3)]),
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, {"n": 1}, {"n": 1}),
    ],
)
def test_the_value_has_the_type_that_was_asked_for(cwd, schema, submitted, value):
    outcome = retinue.run("general-purpose", "x", cwd=cwd, model=submits(submitted), schema=schema)
    assert outcome.value == value and type(outcome.value) is type(value)


def test_what_a_validator_objects_to_is_told_to_the_model(cwd):
    model = ScriptedModel(
        Turn(Call("submit_result", {"title": "a", "line": 0})),
        Turn(Expect("lines begin with 1"), Call("submit_result", {"title": "a", "line": 1})),
    )
    with model:
        outcome = retinue.run("general-purpose", "x", cwd=cwd, model=model, schema=Checked)
    assert outcome.value == Checked(title="a", line=1)


def test_a_type_that_is_none_is_refused(cwd):
    with pytest.raises(UsageError, match="not a type that a result can have"):
        retinue.run("general-purpose", "x", cwd=cwd, model=ScriptedModel(), schema=open)


async def test_run_works_where_a_loop_already_runs(cwd):
    assert retinue.run("general-purpose", "x", cwd=cwd, model=ScriptedModel("hello")).text == "hello"
    assert (await retinue.run_async("general-purpose", "x", cwd=cwd, model=ScriptedModel("again"))).text == "again"
    with pytest.raises(UnknownAgentError):
        retinue.run("nobody", "x", cwd=cwd)


async def test_a_model_given_to_the_project_is_used_by_all_its_runs(cwd):
    (cwd / ".claude" / "agents").mkdir(parents=True)
    (cwd / ".claude" / "agents" / "child.md").write_text(
        "---\nname: child\ndescription: d\nmodel: opus\ntools: Read\n---\nYou help."
    )
    model = ScriptedModel(
        Turn(
            Call(
                "Agent",
                {
                    "subagent_type": "child",
                    "prompt": "help",
                    "description": "d",
                    "model": "haiku",
                    "run_in_background": False,
                },
            )
        ),
        "from the child",
        "from the parent",
    )
    with model:
        async with Retinue(cwd, model=model, environment={"ANTHROPIC_API_KEY": "k", "HOME": str(cwd)}) as crew:
            outcome = await (await crew.prompt("go")).wait()
    assert outcome.text == "from the parent"


async def test_any_object_of_the_protocol_is_a_model_and_two_of_one_name_stay_apart(cwd):
    class Parrot:
        info = ModelInfo("own", "parrot")

        def __init__(self, word: str) -> None:
            self.word = word

        async def stream(self, request: ModelRequest) -> AsyncGenerator[Finished, None]:
            yield Finished(AssistantMessage((Text(self.word),), model=self.info.full_name))

        async def close(self) -> None:
            raise AssertionError("the program closes its own models")

    async with Retinue(cwd) as crew:
        runs = [await crew.spawn("general-purpose", "x", model=Parrot(word)) for word in ("one", "two")]
        assert [(await run.wait()).text for run in runs] == ["one", "two"]
        with pytest.raises(UsageError, match="int is no model"):
            await crew.spawn("general-purpose", "x", model=3)


async def test_map_keeps_the_order_and_the_limit_and_tells_of_progress(cwd):

    told: list[MapProgress] = []
    model = ScriptedModel(*(f"answer {number}" for number in range(5)))
    async with Retinue(cwd, model=model) as crew:
        outcomes = await crew.map("general-purpose", [f"task {n}" for n in range(5)], limit=1, progress=told.append)
    assert [outcome.text for outcome in outcomes] == [f"answer {number}" for number in range(5)]
    assert [(each.done, each.total, each.failed, each.index) for each in told] == [(n + 1, 5, 0, n) for n in range(5)]
    assert str(told[0]).startswith("✓ 1 of 5 · task 0")


async def test_map_refuses_bad_tasks_and_raises_what_cannot_start(cwd):
    async with Retinue(cwd, model=ScriptedModel()) as crew:
        for tasks, limit in (("one text", 2), (["a", " "], 2), (["a"], 0)):
            with pytest.raises(UsageError):
                await crew.map("general-purpose", tasks, limit=limit)
        with pytest.raises(UnknownAgentError):
            await crew.map("nobody", ["a", "b"])


async def test_an_unreadable_denial_of_a_program_has_a_remedy_about_what_is_denied(cwd):
    spec = AgentSpec(name="mine", prompt="x", tools=ToolPolicy(deny=("bsh",)))
    async with Retinue(cwd, model=ScriptedModel()) as crew:
        with pytest.raises(RefusedAgentError) as refused:
            await crew.spawn(spec, "x")
    assert refused.value.remedy == "Correct what it denies, or leave the entry out."


async def test_run_and_retinue_offer_their_public_names(cwd):
    async with Retinue(cwd, model=ScriptedModel("x")) as crew:
        run = await crew.spawn("general-purpose", "x")
        assert isinstance(run, Run)
        names = {name for name in dir(run) if not name.startswith("_")}
        assert names == {"agent", "events", "id", "outcome", "steer", "stop", "wait"}
        assert "map" in dir(crew) and "supervisor" not in dir(crew)
        await run.wait()


def test_settings_of_a_program_hold_for_it_alone(cwd):
    with pytest.raises(ConfigurationError, match="did you mean maxConcurrent"):
        Retinue(cwd, settings={"maxConcurent": 3})
    with pytest.raises(ConfigurationError, match="whole number"):
        Retinue(cwd, settings={"maxConcurrent": "many"})
    with pytest.raises(UsageError, match="closing parenthesis"):
        Retinue(cwd, disallowed_tools=["Bash(rm"])
    assert Retinue(cwd, settings={"retry": {"enabled": False}}).supervisor.settings.retry_enabled is False
    assert Retinue(cwd).supervisor.settings.retry_enabled is True


TYPED = """
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type
import retinue
from retinue import Outcome, Retinue

@dataclass
class Finding:
    title: str

class Place(TypedDict):
    file: str

async def main(crew: Retinue) -> None:
    assert_type(await (await crew.spawn("a", "b", schema=Finding)).wait(), Outcome[Finding])
    assert_type((await crew.prompt("a", schema=Place)).outcome, Outcome[Place] | None)
    assert_type(await crew.map("a", ["b"], schema=list[Finding]), list[Outcome[list[Finding]]])
    assert_type(retinue.run("a", "b").value, Any | None)
    await crew.spawn("a", "b", modle="c")
"""


def test_a_type_checker_infers_the_value_and_sees_a_wrong_option(tmp_path):
    (tmp_path / "program.py").write_text(textwrap.dedent(TYPED))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout.count(": error:") == 1 and 'Unexpected keyword argument "modle"' in done.stdout, done.stdout


async def test_a_resumed_run_has_the_value_as_json_has_it(cwd):
    model = submits({"title": "a", "line": 1}, {"title": "b", "line": 0})
    async with Retinue(cwd, model=model) as crew:
        first = await crew.spawn("general-purpose", "x", schema=Checked, background=False)
        assert (await first.wait()).value == Checked(title="a", line=1)
        again = await crew.resume(first.id, "once more")
        assert (await again.wait()).value == {"title": "b", "line": 0}, "no type was asked for this time"
