"""The answers of hook handlers, merged into one result: exit codes, JSON of two dialects, plain text.

Of several handlers of one event, deny wins over ask, and ask over allow. A guarding handler whose answer has
not exactly an allowed form denies: text where none is expected, an unknown key, a value of the wrong type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import replace

from retinue.capabilities.hooks.sources import (
    BLOCKABLE_EVENTS,
    CONTEXT_EVENTS,
    END_EVENTS,
    GUARDING_EVENTS,
    STRICT_EVENTS,
    Handler,
)
from retinue.core.permission import NO_OPINION, HookEvent, HookResult, Verdict

MAX_ANSWER_CHARACTERS = 10_000

_VERDICT_STRENGTH: dict[Verdict | None, int] = {None: 0, "allow": 1, "ask": 2, "deny": 3}

StoreText = Callable[[str], str | None]
"""Stores a text that is too long and returns its path; None if it cannot be stored."""


def merge(opinions: Sequence[HookResult], store_text: StoreText) -> HookResult:
    """Merge `opinions`, which are in the order of their handlers' priority. The strongest verdict wins, with the
    reasons of all handlers that gave it. Of several changed inputs or outputs the first is used, and a message says
    so."""
    if all(opinion is NO_OPINION for opinion in opinions):
        return NO_OPINION
    verdict = max((opinion.verdict for opinion in opinions), key=_VERDICT_STRENGTH.__getitem__)
    messages = [message for opinion in opinions for message in opinion.messages]
    inputs = [opinion.updated_input for opinion in opinions if opinion.updated_input is not None]
    outputs = [opinion.updated_output for opinion in opinions if opinion.updated_output is not None]
    for what, changes in (("input", inputs), ("output", outputs)):
        if any(change != changes[0] for change in changes[1:]):
            messages.append(f"Several hooks changed the {what} of one call: the change of the first one is used.")
    reasons = [opinion.reason for opinion in opinions if opinion.verdict == verdict]
    last_outputs = filter(None, (opinion.output for opinion in reversed(opinions)))
    return HookResult(
        verdict=verdict,
        reason=_shorten(_join(reasons, "\n"), store_text),
        updated_input=next(iter(inputs), None),
        updated_output=next(iter(outputs), None),
        context=_shorten(_join([opinion.context for opinion in opinions], "\n\n"), store_text),
        stop=next(filter(None, (opinion.stop for opinion in opinions)), None),
        messages=tuple(_shorten(message, store_text) for message in dict.fromkeys(messages)),
        output=_shorten(next(last_outputs, ""), store_text),
        failures=tuple(failure for opinion in opinions for failure in opinion.failures),
        handlers=tuple(dict.fromkeys(label for opinion in opinions for label in opinion.handlers)),
    )


def _join(texts: Iterable[str], between: str) -> str:
    return between.join(filter(None, dict.fromkeys(texts)))


def _shorten(text: str, store_text: StoreText) -> str:
    if len(text) <= MAX_ANSWER_CHARACTERS:
        return text
    path = store_text(text)
    where = f" in {path}" if path else ""
    note = f"\n[… {len(text) - MAX_ANSWER_CHARACTERS} more characters{where}]"
    return text[: MAX_ANSWER_CHARACTERS - len(note)] + note


BLOCK_EXIT_CODE = 2
CONTINUE_TEXT = "(continue)"

_VERDICT_BY_DECISION: Mapping[str, Verdict] = {
    "allow": "allow",
    "approve": "allow",
    "ask": "ask",
    "defer": "ask",
    "deny": "deny",
    "block": "deny",
}


class HandlerResult(Struct, frozen=True):
    """The outcome of a handler. `failure` is the reason why it gave no answer; `data` is the value that a function
    returned."""

    code: int = 0
    out: str = ""
    err: str = ""
    failure: str = ""
    data: Any = None


class _InvalidAnswerError(Exception):
    """The handler gave an answer of no known form. The message completes "handler …"."""


def read_opinion(handler: Handler, answer: HandlerResult) -> HookResult:
    """Return the opinion of one handler. Never raises. A failure is listed in `failures`; for a guarding event the
    verdict is then deny."""
    if answer.failure:
        return failed_result(handler, answer.failure)
    if handler.observes:
        return NO_OPINION if answer.code == 0 else failed_result(handler, _describe_exit(answer))
    try:
        data = answer.data
        if data is None:
            data = _parse_object(handler, answer)
        if answer.code == BLOCK_EXIT_CODE:
            return _exit_code_denial(handler, answer, data)
        if data is None:
            return _read_text(handler, answer)
        result = _read_object(handler, data)
    except _InvalidAnswerError as error:
        return failed_result(handler, str(error))
    if result == NO_OPINION:
        return result
    return replace(result, handlers=(handler.label,))


def failed_result(handler: Handler, why: str) -> HookResult:
    """Return the result of a handler that failed: deny where the handler guards something."""
    failure = f"{handler.label} {why}"
    blocks = handler.event in STRICT_EVENTS or (handler.on_failure == "block" and handler.event in BLOCKABLE_EVENTS)
    if handler.observes or handler.on_failure == "continue" or not blocks:
        return HookResult(failures=(failure,))
    reason = f"{failure}. It guards this, so the answer is no."
    return HookResult(verdict="deny", reason=reason, failures=(failure,), handlers=(handler.label,))


def _parse_object(handler: Handler, answer: HandlerResult) -> Mapping[str, Any] | None:
    """Return the JSON object on standard output; None for plain text, which does not begin with `{`."""
    text = answer.out.strip()
    if not text.startswith("{"):
        if handler.point and text and answer.code == 0:
            raise _InvalidAnswerError(f"must answer with a JSON object, but said: {_excerpt(text)}")
        return None
    try:
        data: dict[str, Any] = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        # With another exit code the handler has failed, which matters more than an incomplete answer.
        if answer.code not in (0, BLOCK_EXIT_CODE):
            return None
        raise _InvalidAnswerError(f"answered with broken JSON ({error})") from None
    return data


def _exit_code_denial(handler: Handler, answer: HandlerResult, data: Any) -> HookResult:
    """Return the result of exit code 2: deny, with the reason from standard error; standard output is ignored unless
    that is empty."""
    reason = answer.err.strip() or _reason_in(data) or "no reason was given"
    label = (handler.label,)
    if handler.event == "PostToolUseFailure":
        # The call has failed already, so there is nothing to deny; the text is for the model.
        return HookResult(context=reason, handlers=label)
    if handler.event not in BLOCKABLE_EVENTS:
        return HookResult(messages=(f"{handler.label}: {reason}",))
    return HookResult(
        verdict="deny", reason=reason, context=reason if handler.event in END_EVENTS else "", handlers=label
    )


def _read_text(handler: Handler, answer: HandlerResult) -> HookResult:
    text = answer.out.strip()
    if answer.code != 0:
        return failed_result(handler, _describe_exit(answer))
    if not text:
        return NO_OPINION
    if handler.event in GUARDING_EVENTS - CONTEXT_EVENTS:
        raise _InvalidAnswerError(f"must answer with a JSON object or nothing, but said: {_excerpt(text)}")
    if handler.event in CONTEXT_EVENTS:
        return HookResult(context=text, output=text, handlers=(handler.label,))
    return HookResult(output=text)


def _read_object(handler: Handler, data: Any) -> HookResult:
    if isinstance(data, HookResult):
        return data
    if not isinstance(data, Mapping):
        raise _InvalidAnswerError(f"must return an object, not {type(data).__name__}")
    event = handler.event
    specific = data.get("hookSpecificOutput")
    if specific is not None and not isinstance(specific, Mapping):
        raise _InvalidAnswerError("has a 'hookSpecificOutput' that is not an object")
    specific = specific or {}
    if event in STRICT_EVENTS:
        _check_form(data, specific)
    named = specific.get("hookEventName")
    # Scripts written for Stop also serve SubagentStop, and name the event they were written for.
    if named is not None and named != event and not {named, event} <= END_EVENTS:
        raise _InvalidAnswerError(f"answered for the event '{named}'")
    result = _verdict(event, data, specific)
    context = _text(specific, "additionalContext") or _text(data, "additionalContext")
    if context and event in END_EVENTS and result.verdict is None:
        result = replace(result, verdict="deny", reason=context, context=context)
    elif context:
        result = replace(result, context="\n".join(filter(None, (result.context, context))))
    stop = result.stop
    if data.get("continue") is False:
        stop = _text(data, "stopReason") or f"Stopped by the {handler.label}."
    return replace(
        result,
        stop=stop,
        messages=tuple(filter(None, (_text(data, "systemMessage"),))),
        updated_input=_find_object(specific, data, "updatedInput", "modifiedInput", default=result.updated_input),
        updated_output=_updated_output(specific, data),
    )


_TEXT_KEYS = frozenset(
    {
        *("additionalContext", "reason", "stopReason", "systemMessage", "injection", "permissionDecision"),
        *("permissionDecisionReason", "hookEventName", "decision", "worktreePath"),
    }
)
_SWITCH_KEYS = frozenset({"continue", "suppressOutput", "suppressOriginalPrompt"})
_OBJECT_KEYS = frozenset({"updatedInput", "modifiedInput", "updatedPermissions"})
_UNCHECKED_KEYS = frozenset({"hookSpecificOutput", "updatedToolOutput", "updatedMCPToolOutput", "modifiedOutput"})
_SPECIFIC_KEYS = frozenset({"permissionDecision", "permissionDecisionReason", "hookEventName"})
"""Keys that are valid in `hookSpecificOutput` only."""


def _check_form(data: Mapping[str, Any], specific: Mapping[str, Any]) -> None:
    """Raise for a guard's answer that has not exactly an allowed form: a part of it would be ignored."""
    for table, outside in ((data, True), (specific, False)):
        for key, value in table.items():
            if outside and key in _SPECIFIC_KEYS:
                raise _InvalidAnswerError(f"has '{key}' outside of 'hookSpecificOutput'")
            if key == "decision" and isinstance(value, Mapping):
                continue
            if value is not None and not _is_allowed(key, value):
                raise _InvalidAnswerError(f"has {key!r}: {_excerpt(repr(value))}, which is not a valid answer")


def _is_allowed(key: str, value: Any) -> bool:
    if key in _TEXT_KEYS:
        return isinstance(value, str)
    if key in _SWITCH_KEYS:
        return isinstance(value, bool)
    if key in _OBJECT_KEYS:
        return isinstance(value, Mapping | list)
    return key in _UNCHECKED_KEYS


def _verdict(event: HookEvent, data: Mapping[str, Any], specific: Mapping[str, Any]) -> HookResult:
    """Return the decision, from the first of its possible fields that has one."""
    if event == "PermissionRequest" and isinstance(specific.get("decision"), Mapping):
        return _permission_request(specific["decision"])
    decision = specific.get("permissionDecision")
    reason = _text(specific, "permissionDecisionReason")
    other = data.get("decision", specific.get("decision"))
    if (
        decision is not None
        and other is not None
        and _VERDICT_BY_DECISION.get(str(decision)) != _VERDICT_BY_DECISION.get(str(other))
    ):
        raise _InvalidAnswerError(f"decided {decision!r} and {other!r} at once")
    if decision is None:
        decision = other
        reason = reason or _text(data, "reason") or _text(specific, "reason")
    if decision is None:
        return HookResult()
    if event in END_EVENTS:
        return _decide_end(decision, reason, data)
    if decision == "continue":
        return HookResult(context=_text(data, "injection"))
    if not isinstance(decision, str) or decision not in _VERDICT_BY_DECISION:
        raise _InvalidAnswerError(f"decided {decision!r}, which is none of {', '.join(_VERDICT_BY_DECISION)}")
    return HookResult(verdict=_VERDICT_BY_DECISION[decision], reason=reason, context=_text(data, "injection"))


def _decide_end(decision: Any, reason: str, data: Mapping[str, Any]) -> HookResult:
    """Return the decision about a run that is about to end: `block` and CodingCode's `continue` keep it running."""
    if decision in ("block", "continue", "deny"):
        text = _text(data, "injection") or reason or CONTINUE_TEXT
        return HookResult(verdict="deny", reason=reason or text, context=text)
    if decision in ("allow", "approve"):
        return HookResult(verdict="allow", reason=reason)
    if isinstance(decision, str) and decision in _VERDICT_BY_DECISION:
        # A person cannot be asked about an end.
        return HookResult(reason=reason)
    raise _InvalidAnswerError(f"decided {decision!r}, which is neither block nor allow")


def _permission_request(decision: Mapping[str, Any]) -> HookResult:
    behavior = decision.get("behavior")
    if behavior not in ("allow", "deny"):
        raise _InvalidAnswerError(f"has the behavior {behavior!r}, which is neither allow nor deny")
    message = _text(decision, "message")
    stop = None
    if behavior == "deny" and decision.get("interrupt") is True:
        stop = message or "A hook refused this and stopped the run."
    changed = _find_object(decision, {}, "updatedInput", default=None)
    return HookResult(verdict=_VERDICT_BY_DECISION[behavior], reason=message, updated_input=changed, stop=stop)


def _find_object(
    first: Mapping[str, Any], second: Mapping[str, Any], *keys: str, default: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    for table in (first, second):
        for key in keys:
            value = table.get(key)
            if value is not None and not isinstance(value, Mapping):
                raise _InvalidAnswerError(f"has a '{key}' that is not an object")
            if value is not None:
                return value
    return default


def _updated_output(specific: Mapping[str, Any], data: Mapping[str, Any]) -> str | None:
    for table in (specific, data):
        for key in ("updatedToolOutput", "updatedMCPToolOutput", "modifiedOutput"):
            value = table.get(key)
            if isinstance(value, str):
                return value
            if value is not None:
                return json.dumps(value, ensure_ascii=False, default=str)
    return None


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    return value.strip() if isinstance(value, str) else ""


def _reason_in(data: Any) -> str:
    if not isinstance(data, Mapping):
        return ""
    specific = data.get("hookSpecificOutput")
    if isinstance(specific, Mapping) and _text(specific, "permissionDecisionReason"):
        return _text(specific, "permissionDecisionReason")
    return _text(data, "reason")


def _describe_exit(answer: HandlerResult) -> str:
    detail = _excerpt(answer.err.strip() or answer.out.strip())
    return f"failed with exit code {answer.code}" + (f": {detail}" if detail else "")


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:299]}…"
