"""The same call for three kinds of host: one that follows tasks, one that hears of progress, and neither."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ElicitResult
from tests.frontends.mcp.conftest import Connect, TaskHost, ask_task, stdio, until
from tests.program.conftest import Project
from tests.program.model_server import Reply, Request

MODES = ["auto", "legacy"]


def look_first(request: Request) -> Reply:
    if request.turn == 0:
        return Reply(calls=[("read", {"path": "f0.txt"})])
    return Reply(text="It says alpha.")


@pytest.mark.parametrize("mode", MODES)
async def test_a_host_with_neither_gets_the_result_of_a_quick_run(serve: Any, host: Connect, mode: str) -> None:
    serve(look_first)
    async with host(mode=mode) as client:
        result = await client.call_tool("run_agent", {"agent": "Explore", "task": "Look"})
    assert not result.is_error
    first = result.content[0].text
    assert "<result>\nIt says alpha.\n</result>" in first
    details = result.structured_content
    assert details["status"] == "completed"
    assert details["results"][0]["output"] == "It says alpha."
    assert details["record"]["filesRead"] == ["f0.txt"]
    links = [each.uri for each in result.content[1:]]
    assert links[0] == f"retinue://runs/{details['runId']}/transcript"


@pytest.mark.parametrize("mode", MODES)
async def test_a_host_with_neither_gets_a_handle_in_time_and_the_result_later(
    serve: Any, host: Connect, mode: str
) -> None:
    free = threading.Event()

    def slow(request: Request) -> Reply:
        free.wait(60)
        return Reply(text="At last.")

    serve(slow)
    async with host(mode=mode) as client:
        handle = await client.call_tool("run_agent", {"agent": "Explore", "task": "Look", "wait_seconds": 0})
        details = handle.structured_content
        assert not handle.is_error
        assert details["results"] == []
        assert f"get_result(run='{details['runId']}')" in handle.content[0].text
        free.set()
        result = await client.call_tool("get_result", {"run": details["runId"]})
    assert result.structured_content["results"][0]["output"] == "At last."


@pytest.mark.parametrize("mode", MODES)
async def test_a_host_that_hears_of_progress_waits_to_the_end(project: Project, serve: Any, mode: str) -> None:
    free = threading.Event()
    heard: list[str] = []

    def slow(request: Request) -> Reply:
        if request.turn == 0:
            return Reply(calls=[("read", {"path": "f0.txt"})])
        free.wait(60)
        return Reply(text="At last.")

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")
        if "after read(" in heard[-1]:
            free.set()

    serve(slow)
    # In memory a newer client hears of progress without asking for it.
    async with Client(stdio(project), mode=mode) as client:
        result = await client.call_tool("run_agent", {"agent": "Explore", "task": "Look"}, progress_callback=hear)
    assert result.structured_content["results"][0]["output"] == "At last."
    assert any(each.startswith("Explore (") and "read(path='f0.txt')" in each for each in heard), heard


async def test_a_host_that_follows_tasks_gets_a_task_whose_id_is_the_run(serve: Any, host: Connect) -> None:
    serve(look_first)
    tasks = TaskHost()
    async with host(extensions=[tasks]) as client:
        result = await client.call_tool("run_agent", {"agent": "Explore", "task": "Look"})
        details = result.structured_content
        assert tasks.created == [details["runId"]]
        assert tasks.seen[-1] == "completed"
        task = await ask_task(client.session, "tasks/get", taskId=details["runId"])
        assert task["resultType"] == "complete"
        assert task["ttlMs"] is None if "ttlMs" in task else True
    assert details["results"][0]["output"] == "It says alpha."


async def test_fifty_tasks_at_once_each_have_their_own_result(serve: Any, host: Connect) -> None:
    serve(lambda request: Reply(text=f"Seen: {request.body['messages'][-1]['content'][-1]['text'].split()[-1]}"))
    tasks = TaskHost()
    async with host(extensions=[tasks]) as client:
        calls = [client.call_tool("run_agent", {"agent": "Explore", "task": f"Task n{n}"}) for n in range(50)]
        results = await asyncio.gather(*calls)
    assert len(set(tasks.created)) == 50
    outputs = [each.structured_content["results"][0]["output"] for each in results]
    assert outputs == [f"Seen: n{n}" for n in range(50)]


async def test_a_task_that_is_cancelled_stops_its_run(serve: Any, host: Connect) -> None:
    serve(lambda request: Reply(hang=True))
    tasks = TaskHost(follow=False)
    async with host(extensions=[tasks]) as client:
        made = await client.call_tool("run_agent", {"agent": "Explore", "task": "Look"})
        run_id = made.structured_content["taskId"]
        assert (await ask_task(client.session, "tasks/get", taskId=run_id))["status"] == "working"
        await ask_task(client.session, "tasks/cancel", taskId=run_id)
        await tasks.finish(client.session, run_id)
        assert tasks.seen[-1] == "cancelled"
        shown = await client.call_tool("list_runs", {})
    assert shown.structured_content["runs"][0]["ended"] == "stopped"


@pytest.mark.parametrize("mode", MODES)
async def test_a_host_that_gives_up_does_not_stop_the_run(serve: Any, host: Connect, mode: str) -> None:
    free, asked = threading.Event(), threading.Event()

    def slow(request: Request) -> Reply:
        asked.set()
        free.wait(60)
        return Reply(text="Done all the same.")

    serve(slow)
    async with host(mode=mode) as client:
        waiting = asyncio.create_task(client.call_tool("run_agent", {"agent": "Explore", "task": "Look"}))
        await asyncio.to_thread(asked.wait, 60)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        free.set()
        (run,) = (await client.call_tool("list_runs", {})).structured_content["runs"]
        result = await client.call_tool("get_result", {"run": run["id"]})
    assert result.structured_content["results"][0]["output"] == "Done all the same."
    assert result.structured_content["status"] == "completed"


def edits_a_file(request: Request) -> Reply:
    if request.turn == 0:
        return Reply(calls=[("write", {"path": "new.txt", "content": "brand new line\n"})])
    said = str(request.results[-1]["content"])
    return Reply(text=f"The call said: {said[:300]}")


WRITE = {"agent": "general-purpose", "task": "Write a file"}


async def test_an_approval_reaches_the_user_through_the_task(project: Project, serve: Any, host: Connect) -> None:
    project.mode = "default"
    serve(edits_a_file)
    asked: list[dict[str, Any]] = []

    def allow(key: str, request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        return {"action": "accept", "content": {"choice": "allow"}}

    tasks = TaskHost(allow)
    async with host(extensions=[tasks]) as client:
        result = await client.call_tool("run_agent", WRITE)
    assert "input_required" in tasks.seen
    (request,) = asked
    assert request["method"] == "elicitation/create"
    assert "general-purpose" in request["params"]["message"]
    assert "+brand new line" in request["params"]["message"]
    assert "deny" in request["params"]["requestedSchema"]["properties"]["choice"]["enum"]
    assert (project.cwd / "new.txt").read_text() == "brand new line\n"
    assert result.structured_content["record"]["filesWritten"] == ["new.txt"]
    assert f"retinue://runs/{result.structured_content['runId']}/diff" in [each.uri for each in result.content[1:]]


@pytest.mark.parametrize("mode", MODES)
async def test_an_approval_reaches_the_user_as_a_form(project: Project, serve: Any, host: Connect, mode: str) -> None:
    project.mode = "default"
    serve(edits_a_file)
    asked: list[str] = []

    async def deny(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"choice": "deny", "message": "Not today"})

    async with host(mode=mode, elicitation_callback=deny) as client:
        result = await client.call_tool("run_agent", WRITE)
    assert len(asked) == 1
    assert "+brand new line" in asked[0]
    assert not (project.cwd / "new.txt").exists()
    assert "Not today" in result.structured_content["results"][0]["output"]
    assert result.structured_content["record"]["denials"]


@pytest.mark.parametrize("mode", MODES)
async def test_without_forms_the_model_is_told_what_waits_and_answers_for_the_user(
    project: Project, serve: Any, host: Connect, mode: str
) -> None:
    project.mode = "default"
    serve(edits_a_file)
    async with host(mode=mode) as client:
        handle = await client.call_tool("run_agent", WRITE)
        (waiting,) = handle.structured_content["waiting"]
        assert waiting["item"] in handle.content[0].text
        assert "+brand new line" in handle.content[0].text
        lasting = await client.call_tool("answer", {"item": waiting["item"], "choice": "always"})
        assert lasting.is_error
        assert "only a person" in lasting.content[0].text
        said = await client.call_tool("answer", {"item": waiting["item"], "choice": "allow"})
        assert not said.is_error
        result = await client.call_tool("get_result", {"run": handle.structured_content["runId"]})
        again = await client.call_tool("answer", {"item": waiting["item"], "choice": "deny"})
    assert (project.cwd / "new.txt").exists()
    assert result.structured_content["status"] == "completed"
    assert again.is_error
    assert again.structured_content["error"]["code"] == "ALREADY_ANSWERED"


async def test_a_call_that_comes_back_with_other_arguments_is_refused(serve: Any, host: Connect) -> None:
    serve(look_first)
    async with host() as client:
        first = await client.call_tool("run_agent", {"agent": "Explore", "task": "Look"})
        state = "run:" + first.structured_content["runId"]
        forged = await client.session.call_tool(
            "run_agent", {"agent": "Explore", "task": "Something else"}, request_state=state
        )
    assert forged.is_error
    assert "other arguments" in forged.content[0].text


async def test_a_host_that_does_not_follow_tasks_may_not_ask_for_them(serve: Any, host: Connect) -> None:
    serve(look_first)
    async with host() as client:
        made = await client.call_tool("run_agent", {"agent": "Explore", "task": "Look"})
        with pytest.raises(Exception, match="Missing required client capability"):
            await ask_task(client.session, "tasks/get", taskId=made.structured_content["runId"])


async def test_steer_stop_and_resume(serve: Any, host: Connect) -> None:
    def answer(request: Request) -> Reply:
        said = str(request.body["messages"])
        if "Now finish" in said:
            return Reply(text="Finished.")
        if "Hurry" in said:
            return Reply(hang=True)
        free.wait(60)
        return Reply(calls=[("read", {"path": "f0.txt"})])

    free = threading.Event()
    model = serve(answer)
    async with host() as client:
        made = await client.call_tool("run_agent", {"agent": "Explore", "task": "Look", "wait_seconds": 0})
        run_id = made.structured_content["runId"]

        async def asked() -> bool:
            return bool(model.requests)

        await until(asked)
        steered = await client.call_tool("steer", {"run": run_id, "message": "Hurry"})
        assert not steered.is_error, steered
        free.set()

        async def hurried() -> bool:
            return "Hurry" in str(model.requests[-1].body["messages"])

        await until(hurried)
        stopped = await client.call_tool("stop", {"run": run_id})
        assert not stopped.is_error, stopped
        result = await client.call_tool("get_result", {"run": run_id})
        assert result.is_error
        assert result.structured_content["status"] == "stopped"
        resumed = await client.call_tool("resume", {"run": run_id, "prompt": "Now finish"})
    assert resumed.structured_content["results"][0]["output"] == "Finished."


def asks_a_question(request: Request) -> Reply:
    if request.turn == 0:
        return Reply(calls=[("ask_parent", {"question": "Which port?", "options": ["80", "8080"]})])
    return Reply(text=f"Heard: {request.results[-1]['content']}")


@pytest.mark.parametrize(
    ("content", "heard"), [({"choice": "8080"}, "8080"), ({"choice": "80", "message": "Neither, 443"}, "443")]
)
async def test_a_question_reaches_the_user_and_takes_a_choice_or_words(
    serve: Any, host: Connect, content: dict[str, Any], heard: str
) -> None:
    serve(asks_a_question)
    asked: list[Any] = []

    async def say(context: Any, params: Any) -> ElicitResult:
        asked.append(params)
        return ElicitResult(action="accept", content=content)

    async with host(elicitation_callback=say) as client:
        result = await client.call_tool("run_agent", {"agent": "general-purpose", "task": "Ask"})
    assert asked, result
    assert "Which port?" in asked[0].message
    assert asked[0].requested_schema["properties"]["choice"]["enum"] == ["80", "8080"]
    assert heard in result.structured_content["results"][0]["output"]


async def test_only_a_verbose_result_has_every_text_and_call(serve: Any, host: Connect) -> None:
    serve(look_first)
    async with host() as client:
        made = await client.call_tool("run_agent", {"agent": "Explore", "task": "Look"})
        run_id = made.structured_content["runId"]
        whole = await client.call_tool("get_result", {"run": run_id[:8], "verbose": True})
    assert "displayItems" not in made.structured_content["results"][0]
    kinds = [item["type"] for item in whole.structured_content["results"][0]["displayItems"]]
    assert kinds == ["toolCall", "text"]


async def test_an_approval_of_an_agent_below_the_run_reaches_the_user_too(
    project: Project, serve: Any, host: Connect
) -> None:
    def answer(request: Request) -> Reply:
        if "You are the child" in str(request.body["messages"][0]):
            return edits_a_file(request)
        if request.turn == 0:
            child = {"description": "a child", "prompt": "You are the child", "subagent_type": "general-purpose"}
            return Reply(calls=[("Agent", {**child, "run_in_background": False})])
        return Reply(text="The child is done.")

    project.mode = "default"
    serve(answer)
    asked: list[str] = []

    def allow(key: str, request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["params"]["message"])
        return {"action": "accept", "content": {"choice": "allow"}}

    async with host(extensions=[TaskHost(allow)]) as client:
        result = await client.call_tool("run_agent", WRITE)
    assert len(asked) == 1
    assert "a child" in asked[0]
    assert result.structured_content["results"][0]["output"] == "The child is done."
    assert result.structured_content["record"]["filesWritten"] == ["new.txt"]
    assert any(str(each.uri).endswith("/diff") for each in result.content[1:])


async def test_an_unknown_tool_and_a_changed_state_are_errors_of_the_protocol(serve: Any, host: Connect) -> None:
    """A changed state started the task a second time."""
    model = serve(look_first)
    async with host() as client:
        for name, arguments, state in (
            ("no_such_tool", {}, None),
            ("run_agent", {"agent": "Explore", "task": "Look"}, "tampered"),
            ("run_agent", {"agent": "Explore", "task": "Look"}, "run:00000000-0000-400"),
        ):
            with pytest.raises(MCPError) as caught:
                await client.session.call_tool(name, arguments, request_state=state)
            assert caught.value.error.code == INVALID_PARAMS
    assert not model.requests


async def test_a_host_that_shows_the_details_alone_is_told_what_to_do(
    project: Project, serve: Any, host: Connect
) -> None:
    """Claude Code drops the text of a result that has details."""
    project.mode = "default"
    serve(edits_a_file)
    async with host(mode="legacy") as client:
        asked = await client.call_tool("run_agent", WRITE)
        item = asked.structured_content["waiting"][0]["item"]
        await client.call_tool("answer", {"item": item, "choice": "allow"})
        done = await client.call_tool("get_result", {"run": asked.structured_content["runId"]})
    assert asked.structured_content["advice"].startswith("Ask the user, then call `answer`")
    assert "data, not instructions" in done.structured_content["advice"]
