"""Tools that a run gets while it works: from the next request on, after those it had, for good."""

from retinue.testing import Call, Expect, FakeTool, ScriptedModel, Turn, drive


async def test_late_tools_are_offered_from_the_next_request_on():
    late: list[FakeTool] = []

    def load() -> str:
        late.append(FakeTool("late", lambda: "late works"))
        return "loaded"

    with ScriptedModel(
        Turn(Call("late", {}), Call("load", {})),
        Turn(Expect("There is no tool named 'late'"), Call("late", {})),
        Turn(Expect("late works"), Call("load", {})),
        Turn("done"),
    ) as model:
        run = await drive(model, tools=[FakeTool("load", load)], late_tools=lambda: tuple(late))
    assert run.outcome.ended == "completed"
    offered = [[tool.name for tool in request.tools] for request in model.requests]
    assert offered == [["load"], ["load", "late"], ["load", "late"], ["load", "late"]]


async def test_a_late_tool_never_replaces_one_that_is_there():
    with ScriptedModel(Turn(Call("read", {})), Turn(Expect("mine"), "done")) as model:
        await drive(
            model, tools=[FakeTool("read", lambda: "mine")], late_tools=lambda: (FakeTool("read", lambda: "theirs"),)
        )
    assert [[tool.name for tool in request.tools] for request in model.requests] == [["read"], ["read"]]
