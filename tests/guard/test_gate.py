"""The gate: who goes first, what really runs, what the model and the record are told."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace
from tests.guard.guard_scene import Asking, Noted, Rules, Spoken

from retinue.core.permission import Decision, HookResult, InboxAnswer
from retinue.core.tool import failed, ok
from retinue.guard.gate import PermissionGate, call_title, guard_tools
from retinue.guard.inbox_service import InboxPolicy
from retinue.tools.base import builtin_tools

ALLOW = Decision("allow", "Reads run.", "mode")
ASKS = {by: Decision("ask", f"{by} asks.", by) for by in ("mode", "rule", "critical", "protected", "unparsed", "taint")}


def make(scene: Asking, rules: Rules, hooks: Spoken | None = None, tool: Noted | None = None, **options):
    granted: list[str] = []

    async def on_grant(rule, answer):
        granted.append(f"{answer.choice} {rule}")
        rules.grant(rule)
        await scene.inbox.rejudge()

    tool = tool or Noted()
    gate = PermissionGate(rules, hooks or Spoken(), scene.asker, lambda: scene.inbox, on_grant, **options)
    return tool, guard_tools((tool,), gate)[0], granted


async def test_what_is_allowed_runs_and_the_record_says_who_allowed_it(tmp_path):
    async with Asking(tmp_path) as scene:
        tool, guarded, _ = make(scene, Rules(change=ALLOW))
        output = await guarded.run("c1", {"path": "a"}, scene.context())
        assert tool.calls == [{"path": "a"}]
        assert output.effect.allowed == "mode: Reads run."
        assert guarded.spec is tool.spec


@pytest.mark.parametrize(
    ("effect", "seen"), [("execute", "[REDACTED]"), ("network", "[REDACTED]"), ("read", "hunter2")]
)
async def test_what_programs_and_hosts_print_reaches_the_model_without_secrets(tmp_path, effect, seen):
    class Printing(Noted):
        async def run(self, call_id, arguments, context):
            return ok("password hunter2")

    async with Asking(tmp_path) as scene:
        printing = Printing(effects=frozenset({effect}))
        redact = lambda text: text.replace("hunter2", "[REDACTED]")  # noqa: E731
        _, guarded, _ = make(scene, Rules(change=ALLOW), tool=printing, redact=redact)
        assert (await guarded.run("c1", {}, scene.context())).text == f"password {seen}"


@pytest.mark.parametrize(("folder", "seen"), [("outputs", "[REDACTED]"), ("src", "hunter2")])
async def test_a_whole_output_is_read_without_secrets_and_a_file_of_the_project_as_it_is(tmp_path, folder, seen):
    async with Asking(tmp_path) as scene:
        context = scene.context()
        file = (context.outputs if folder == "outputs" else context.root) / "it.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("password hunter2")
        read = builtin_tools(["read"])["read"]
        redact = lambda text: text.replace("hunter2", "[REDACTED]")  # noqa: E731
        _, guarded, _ = make(scene, Rules(read=ALLOW), tool=read, redact=redact)
        within = replace(context, roots=(*context.roots, context.outputs))
        assert f"password {seen}" in (await guarded.run("c1", {"path": str(file)}, within)).text


async def test_what_is_denied_does_not_run_and_says_what_by_whom_why_and_what_to_do(tmp_path):
    async with Asking(tmp_path) as scene:
        denied = Decision("deny", "Secrets stay here.", "rule", "settings.json: Read(.env)")
        tool, guarded, _ = make(scene, Rules(change=denied))
        output = await guarded.run("c1", {"path": ".env"}, scene.context())
        assert tool.calls == [] and output.is_error
        assert output.effect.denied == "denied by a rule (settings.json: Read(.env)): Secrets stay here."
        for word in ("Denied: change was not run", "Denied by: a rule", "Reason: Secrets stay here.", "What to do:"):
            assert word in output.text


async def test_hooks_see_the_call_first_and_the_input_they_give_is_judged_and_run(tmp_path):
    async with Asking(tmp_path) as scene:
        hooks = Spoken(PreToolUse=HookResult(updated_input={"path": "safe"}, handlers=("fix",)))
        rules = Rules(change=ALLOW)
        tool, guarded, _ = make(scene, rules, hooks)
        output = await guarded.run("c1", {"path": "wild"}, scene.context())
        assert [dict(use.arguments) for use in rules.seen] == [{"path": "safe"}]
        assert tool.calls == [{"path": "safe"}]
        assert output.effect.allowed.endswith("input changed by hook fix")
        assert hooks.heard[0][2]["tool_input"] == {"path": "wild"}


async def test_an_input_of_a_hook_that_does_not_fit_the_tool_denies(tmp_path):
    async with Asking(tmp_path) as scene:
        hooks = Spoken(PreToolUse=HookResult(verdict="allow", updated_input={"path": 7}))
        tool, guarded, _ = make(scene, Rules(change=ALLOW), hooks)
        output = await guarded.run("c1", {"path": "a"}, scene.context())
        assert tool.calls == [] and "does not fit" in output.text


@pytest.mark.parametrize("event", ["PreToolUse", "PermissionRequest"])
@pytest.mark.parametrize("by", ASKS)
async def test_a_hooks_allow_answers_only_what_the_mode_would_ask(tmp_path, by, event):
    async with Asking(tmp_path, policy=InboxPolicy("deny")) as scene:
        hooks = Spoken(**{event: HookResult(verdict="allow", handlers=("yes",))})
        tool, guarded, _ = make(scene, Rules(change=ASKS[by]), hooks)
        output = await guarded.run("c1", {"path": "a"}, scene.context())
        assert bool(tool.calls) == (by == "mode")
        assert bool(output.effect.denied) == (by != "mode")


@pytest.mark.parametrize("verdict", ["allow", "ask", "deny"])
@pytest.mark.parametrize("said", ["allow", "ask", "deny", None])
async def test_deny_goes_before_ask_and_ask_before_allow(tmp_path, said, verdict):
    async with Asking(tmp_path, policy=InboxPolicy("deny")) as scene:
        hooks = Spoken(PreToolUse=HookResult(verdict=said, reason="Because."))
        tool, guarded, _ = make(scene, Rules(change=Decision(verdict, "It is so.", "mode")), hooks)
        await guarded.run("c1", {}, scene.context())
        order = {"deny": 0, "ask": 1, "allow": 2, None: 2}
        runs = min(order[said], order[verdict]) == 2 or (said == "allow" and verdict == "ask")
        assert bool(tool.calls) == runs


async def test_an_input_that_a_permission_hook_changes_is_judged_again(tmp_path):
    class ByPath(Rules):
        def decide(self, use):
            self.seen.append(use)
            path = use.arguments["path"]
            return Decision("deny", "No.", "rule") if path == "forbidden" else ASKS["mode"]

    async with Asking(tmp_path) as scene:
        hooks = Spoken(PermissionRequest=HookResult(verdict="allow", updated_input={"path": "forbidden"}))
        tool, guarded, _ = make(scene, ByPath(), hooks)
        output = await guarded.run("c1", {"path": "a"}, scene.context())
        assert tool.calls == [] and output.effect.denied


async def test_a_guard_that_raises_denies(tmp_path):
    class Broken(Rules):
        def decide(self, use):
            raise ZeroDivisionError("oops")

    async with Asking(tmp_path) as scene:
        tool, guarded, _ = make(scene, Broken())
        output = await guarded.run("c1", {}, scene.context())
        assert tool.calls == [] and "The guard failed (ZeroDivisionError: oops)" in output.text
        assert output.effect.denied


async def test_a_log_that_cannot_be_written_denies(tmp_path):
    async with Asking(tmp_path) as scene:
        scene.inbox.attended = 1
        tool, guarded, _ = make(scene, Rules())
        await scene.log.close()
        output = await guarded.run("c1", {"path": "a"}, scene.context())
        assert tool.calls == [] and output.effect.denied


@pytest.mark.parametrize("choice", ["allow", "allow-run", "allow-agent", "always", "deny"])
async def test_a_persons_answer_decides_and_grants_what_it_says(tmp_path, choice):
    async with Asking(tmp_path) as scene:

        async def approver(item):
            assert item.payload == {"tool": "change", "arguments": {"path": "a"}, "call_id": "c1"}
            return InboxAnswer(choice, "Not like that.", "test")

        scene.inbox.approvers.append(approver)
        tool, guarded, granted = make(scene, Rules())
        output = await guarded.run("c1", {"path": "a"}, scene.context())
        assert bool(tool.calls) == (choice != "deny")
        assert granted == ([f"{choice} change(*)"] if choice not in ("allow", "deny") else [])
        if choice == "deny":
            assert "Denied by: a person (test)" in output.text and "Message to you: Not like that." in output.text
        else:
            assert output.effect.allowed.startswith("person: test allowed it")


async def test_a_grant_lets_go_on_what_it_covers(tmp_path):
    async with Asking(tmp_path) as scene:
        tool, guarded, _ = make(scene, Rules())
        calls = [asyncio.create_task(guarded.run(f"c{n}", {"path": f"{n}"}, scene.context())) for n in range(3)]
        items = await scene.waiting(3)
        await scene.inbox.answer(items[0], InboxAnswer("allow-run", by="test"))
        outputs = await asyncio.gather(*calls)
        assert len(tool.calls) == 3
        assert sorted(output.effect.allowed for output in outputs)[0] == "person: an earlier answer allowed it once"


async def test_what_a_hook_wants_asked_no_rule_recollection_or_model_answers(tmp_path):
    async with Asking(tmp_path) as scene:

        async def easy(use, decision):
            return ALLOW

        hooks = Spoken(PreToolUse=HookResult(verdict="ask", handlers=("careful",)))
        for rules in (Rules(change=ALLOW), Rules()):
            scene.asker = scene.new_asker(f"run-{len(rules.verdicts)}")
            tool, guarded, _ = make(
                scene, rules, hooks, recall=lambda rules=rules: rules.grant("change(*)") or True, classify=easy
            )
            call = asyncio.create_task(guarded.run("c1", {"path": "a"}, scene.context()))
            item = next(each for each in await scene.waiting() if each.state == "waiting")
            await scene.inbox.rejudge()
            assert tool.calls == [] and item.options == ("allow", "deny")
            await scene.inbox.answer(item, InboxAnswer("allow", by="test"))
            await call
            assert len(tool.calls) == 1


async def test_where_no_rule_may_allow_it_only_once_and_no_are_offered(tmp_path):
    async with Asking(tmp_path) as scene:
        offered = []

        async def approver(item):
            offered.append((item.options, item.rule))
            return InboxAnswer("allow", by="test")

        scene.inbox.approvers.append(approver)
        for rules, options in ((Rules(change=ASKS["critical"]), {}), (Rules(), {"redact": lambda text: text + "!"})):
            _, guarded, _ = make(scene, rules, **options)
            await guarded.run("c1", {"path": f"{len(offered)}"}, scene.context())
        assert offered == [(("allow", "deny"), None)] * 2


async def test_what_people_allowed_earlier_for_good_is_recalled_before_anyone_is_asked(tmp_path):
    async with Asking(tmp_path, policy=InboxPolicy("deny")) as scene:
        rules = Rules()
        tool, guarded, _ = make(scene, rules, recall=lambda: rules.grant("change(*)") or True)
        await guarded.run("c1", {"path": "a"}, scene.context())
        assert len(tool.calls) == 1


async def test_hooks_hear_of_the_result_and_may_change_it(tmp_path):
    async with Asking(tmp_path) as scene:
        after = HookResult(verdict="deny", reason="Tests fail.", updated_output="DONE", context="Mind the lint.")
        hooks = Spoken(PreToolUse=HookResult(context="Before."), PostToolUse=after)
        _, guarded, _ = make(scene, Rules(change=ALLOW), hooks)
        output = await guarded.run("c1", {"path": "a"}, scene.context())
        assert output.text == "DONE\nA hook objects: Tests fail.\nMind the lint."
        assert hooks.heard[-1][2]["tool_response"].startswith("done")


async def test_hooks_hear_of_failures_and_denials(tmp_path):
    async with Asking(tmp_path) as scene:

        class Failing(Noted):
            async def run(self, call_id, arguments, context):
                return failed("broken")

        hooks = Spoken(PostToolUseFailure=HookResult(), PermissionDenied=HookResult())
        _, guarded, _ = make(scene, Rules(change=ALLOW), hooks, Failing())
        await guarded.run("c1", {"path": "a"}, scene.context())
        _, guarded, _ = make(scene, Rules(change=Decision("deny", "No.", "rule")), hooks)
        await guarded.run("c2", {"path": "a"}, scene.context())
        assert [event for event, *_ in hooks.heard] == ["PostToolUseFailure", "PermissionDenied"]
        assert hooks.heard[0][2]["error"] == "broken"


async def test_cancelling_a_call_that_waits_runs_nothing_and_says_so(tmp_path):
    async with Asking(tmp_path) as scene:
        tool, guarded, _ = make(scene, Rules())
        call = asyncio.create_task(guarded.run("c1", {"path": "a"}, scene.context()))
        await scene.waiting()
        call.cancel()
        output = await call
        assert output.is_error and "Nothing of it has happened" in output.text
        assert output.effect.status == "failed", "its effect is known: there is none"
        assert tool.calls == [] and scene.listed()[0].item.state == "withdrawn"


async def test_hooks_hear_of_a_tool_that_breaks_and_the_loop_does_too(tmp_path):
    class Breaking(Noted):
        async def run(self, call_id, arguments, context):
            raise RuntimeError("no disk")

    async with Asking(tmp_path) as scene:
        hooks = Spoken(PostToolUseFailure=HookResult())
        _, guarded, _ = make(scene, Rules(change=ALLOW), hooks, Breaking())
        with pytest.raises(RuntimeError, match="no disk"):
            await guarded.run("c1", {"path": "a"}, scene.context())
        event, subject, payload = hooks.heard[-1]
        assert (event, subject, payload["error"]) == ("PostToolUseFailure", "change", "RuntimeError: no disk")
        assert payload["tool_input"] == {"path": "a"}


def test_a_person_who_is_asked_about_a_deletion_reads_that_it_is_one():
    assert call_title("write", {"path": "a.txt", "delete": True}) == "delete a.txt"
    assert call_title("write", {"path": "a.txt", "content": ""}) == "write a.txt"
