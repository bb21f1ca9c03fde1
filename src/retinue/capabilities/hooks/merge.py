"""The opinions of all handlers of one event as one: no before ask, ask before yes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from retinue.core.hook import NO_OPINION, HookResult
from retinue.core.permission import Verdict

MOST_CHARACTERS = 10_000

_WEIGHT: dict[Verdict | None, int] = {None: 0, "allow": 1, "ask": 2, "deny": 3}

Spill = Callable[[str], str | None]
"""Keeps a text that is too long, and says where; None if it could not."""


def merged(opinions: Sequence[HookResult], spill: Spill) -> HookResult:
    """`opinions` in the order of their handlers' priority. The strongest verdict counts with
    the reasons of all who share it; of several changed inputs or outputs the first one does,
    and people are told of the others."""
    opinions = [each for each in opinions if each is not NO_OPINION]
    if not opinions:
        return NO_OPINION
    verdict = max((each.verdict for each in opinions), key=lambda said: _WEIGHT[said])
    inputs = [each.updated_input for each in opinions if each.updated_input is not None]
    outputs = [each.updated_output for each in opinions if each.updated_output is not None]
    messages = [message for each in opinions for message in each.messages]
    for what, changes in (("input", inputs), ("output", outputs)):
        if any(change != changes[0] for change in changes[1:]):
            messages.append(f"Several hooks changed the {what} of one call: the change of the first one counts.")
    outs = [each.output for each in opinions if each.output]
    return HookResult(
        verdict=verdict,
        reason=_capped(_joined(each.reason for each in opinions if each.verdict == verdict), spill),
        updated_input=inputs[0] if inputs else None,
        updated_output=outputs[0] if outputs else None,
        context=_capped("\n\n".join(dict.fromkeys(each.context for each in opinions if each.context)), spill),
        stop=next((each.stop for each in opinions if each.stop), None),
        messages=tuple(_capped(message, spill) for message in dict.fromkeys(messages)),
        output=_capped(outs[-1] if outs else "", spill),
        failures=tuple(failure for each in opinions for failure in each.failures),
        handlers=tuple(dict.fromkeys(label for each in opinions for label in each.handlers)),
    )


def _joined(reasons: Iterable[str]) -> str:
    return "\n".join(dict.fromkeys(reason for reason in reasons if reason))


def _capped(text: str, spill: Spill) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    place = spill(text)
    note = f"\n[… {len(text) - MOST_CHARACTERS} more characters" + (f" in {place}]" if place else "]")
    return text[: MOST_CHARACTERS - len(note)] + note
