"""Python functions as tools: schema from annotations, failures as results."""

from pathlib import Path
from typing import Annotated, Literal

import pytest

from retinue import tool
from retinue.core.tool import ToolContext
from retinue.errors import UsageError

CONTEXT = ToolContext("r", (Path(),), Path())


async def test_an_async_function_becomes_a_tool_with_a_schema():
    @tool
    async def weather(city: Annotated[str, "a town"], days: int = 1, unit: Literal["c", "f"] | None = None) -> str:
        """The forecast for a city."""
        return f"{city} {days}"

    assert weather.spec.name == "weather"
    assert weather.spec.description == "The forecast for a city."
    assert weather.spec.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "a town"},
            "days": {"type": "integer"},
            "unit": {"enum": ["c", "f"]},
        },
        "additionalProperties": False,
        "required": ["city"],
    }
    output = await weather.run("1", {"city": "Ulm", "days": 2}, CONTEXT)
    assert (output.text, output.is_error) == ("Ulm 2", False)


async def test_a_plain_function_runs_off_the_loop_and_returns_json():
    @tool(name="lookup", effects=["read"])
    def find(keys: list[str], context: ToolContext) -> dict:
        """Looks keys up."""
        return {"keys": keys, "run": context.run_id}

    assert find.spec.effects == {"read"}
    assert "context" not in find.spec.parameters["properties"]
    assert '"run": "r"' in (await find.run("1", {"keys": ["a"]}, CONTEXT)).text


async def test_what_a_function_raises_is_an_error_result():
    @tool
    def broken() -> str:
        """Breaks."""
        raise ValueError("no luck")

    output = await broken.run("1", {}, CONTEXT)
    assert output.is_error
    assert output.text == "broken failed: ValueError: no luck"
    assert (await broken.run("1", {"surprise": 1}, CONTEXT)).is_error


def test_functions_a_model_could_not_use_are_refused_when_made():
    with pytest.raises(UsageError, match="docstring"):
        tool(lambda x: x)

    def odd(path: Path) -> str:
        """Has a parameter without a JSON form."""
        return str(path)

    with pytest.raises(UsageError, match="no JSON form"):
        tool(odd)
