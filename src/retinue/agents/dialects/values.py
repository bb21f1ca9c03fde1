"""The kinds of plain values that fields take: text, numbers, switches, choices.

Each reader returns a value, returns UNSET for a key that says nothing, or raises BadValueError.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from retinue.agents.dialects.table import UNSET, BadValueError, FieldKind
from retinue.agents.dialects.tools import EVERY, BadNamesError, both_allow, describe, read_names, says_none
from retinue.agents.yaml_items import too_deep
from retinue.core.placement import ClusterPlacement
from retinue.core.tool_list import off_by_one
from retinue.errors import UsageError

_SCHEMA_REMEDY = "Write a JSON Schema such as {type: object, properties: {answer: {type: string}}}."
_MILLISECONDS_FROM = 10_000
_SEPARATORS = frozenset(" \t\n;|&+，、；")
_YES = frozenset({"true", "yes", "on", "1"})
_NO = frozenset({"false", "no", "off", "0"})


def _text(value: Any) -> Any:
    if value is None:
        return UNSET
    if not isinstance(value, str):
        raise BadValueError(f"text is wanted, not {describe(value)}", "Write it as one value, in quotes if need be.")
    return value.strip() or UNSET


def _label(value: Any) -> Any:
    """Read text that may be blank: a name or description that was written, if only as `""`."""
    if type(value) is str:
        return value.strip()
    if value is None:
        return UNSET
    return _text(value)


def _names(value: Any) -> Any:
    if value is None:
        return UNSET
    try:
        return read_names(value)
    except BadNamesError as error:
        raise BadValueError(error.why, error.remedy, instead=error.readable or UNSET) from None


def _names_or_unset(value: Any) -> Any:
    """Read names, where `none` and an empty list say nothing."""
    names = _names(value)
    if names is UNSET or not names or says_none(names):
        return UNSET
    return names


def _whole_number(least: int) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if value is None:
            return UNSET
        number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise BadValueError(f"a whole number from {least} on is wanted, not {describe(value)}")
        return number

    return read


def _seconds(factor: float) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if value is None:
            return UNSET
        number = _decimal(value)
        if number is None or not 0 < number <= 10**9:
            raise BadValueError(f"a positive number is wanted, not {describe(value)}")
        return number * factor

    return read


def _timeout(value: Any) -> Any:
    """Read a time of which nobody says whether it is in seconds."""
    seconds = _seconds(1)(value)
    if seconds is not UNSET and seconds >= _MILLISECONDS_FROM:
        why = f"nobody can tell whether {describe(value)} are seconds or milliseconds"
        raise BadValueError(why, "Write 'timeout_seconds' with a number of seconds.")
    return seconds


def _worktree(value: Any) -> Any:
    wanted = _yes_or_no()(value)
    return "worktree" if wanted is True else UNSET


def _excluded(value: Any) -> Any:
    """Read names of what is left out. A separator that is none would leave nothing out."""
    names = _names_or_unset(value)
    if names is UNSET:
        return UNSET
    for name in names:
        if not _SEPARATORS.isdisjoint(name):
            raise BadValueError(f"{describe(name)} is not one name", "Put a comma between two names.")
    return names


def _temperature(value: Any) -> Any:
    if value is None:
        return UNSET
    number = _decimal(value)
    if number is None or not 0 <= number <= 2:
        raise BadValueError(f"a number from 0 to 2 is wanted, not {describe(value)}")
    return number


def _decimal(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _yes_or_no(yes: bool = True, remedy: str = "", instead: Any = UNSET) -> Callable[[Any], Any]:
    """Return a reader of true and false in every spelling. `yes` is what true means for the field."""

    def read(value: Any) -> Any:
        if value is None:
            return UNSET
        word = str(value).strip().lower()
        if word in _YES:
            return yes
        if word in _NO:
            return not yes
        raise BadValueError(f"true or false is wanted, not {describe(value)}", remedy, instead=instead)

    return read


def _exact_true(value: Any) -> Any:
    # pi's rule: a key that is present is said, and only an unquoted `true` says yes.
    if value is None:
        return UNSET
    if isinstance(value, bool):
        return value
    raise BadValueError(f"only an unquoted true counts as yes; {describe(value)} was read as false", instead=False)


def _sandbox(value: Any) -> Any:
    """Read Codex's `sandbox_mode`."""
    # A file cannot widen the sandbox, so only `read-only` has an effect.
    if value is None:
        return UNSET
    word = str(value).strip().lower()
    if word in ("read-only", "readonly"):
        return True
    if word in _NO or word in ("none", "danger-full-access", "workspace-write"):
        return UNSET
    why = f"only read-only can be enforced for one agent, not {describe(value)}"
    raise BadValueError(why, "Write 'sandbox: read-only', or set sandbox in the settings.", instead=True)


def _devkit_readonly(value: Any) -> Any:
    # devkit-pi compares with these words; `yes` would leave its agent writable, so it is reported.
    if value is None:
        return UNSET
    word = value if isinstance(value, str) else ("true" if value is True else str(value))
    word = word.split(" #")[0].strip()
    if word in ("true", "1"):
        return True
    if word.lower() in _NO:
        return False
    raise BadValueError(
        f"devkit-pi takes only true or 1 for read-only, so {describe(value)} leaves it writable",
        "Write 'readonly: true'.",
        instead=False,
    )


def _enabled(value: Any) -> Any:
    # pi compares with false itself; a quoted "false" would leave the agent on.
    if value is None:
        return UNSET
    if isinstance(value, bool):
        return value
    raise BadValueError(
        f"only an unquoted false switches an agent off, not {describe(value)}", "Write 'enabled: false'."
    )


def _primary(value: Any) -> Any:
    # opencode's `mode`: a primary agent is for people, the others are for agents as well.
    word = str(value).strip().lower()
    if value is None or word in ("subagent", "all"):
        return UNSET
    if word == "primary":
        return False
    raise BadValueError(f"one of primary, subagent, all is wanted, not {describe(value)}", "Write one of these words.")


def _choice(words: Mapping[str, str]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if value is None:
            return UNSET
        word = str(value).strip()
        if word in words:
            return words[word]
        wanted = ", ".join(dict.fromkeys(words.values()))
        raise BadValueError(f"one of {wanted} is wanted, not {describe(value)}", "Write one of these words.")

    return read


def _prompt_mode(value: Any) -> Any:
    if value is None:
        return UNSET
    if value in ("append", "replace"):
        return value
    raise BadValueError(f"append or replace is wanted, not {describe(value)}; read as replace", instead="replace")


def _isolation(value: Any) -> Any:
    if value is None:
        return UNSET
    word = "false" if value is False else str(value).strip().lower()
    if word == "worktree":
        return "worktree"
    if word in ("off", "none", "no", "false"):
        return "off"
    why = f"only worktree and off are supported, not {describe(value)}"
    remedy = "Write 'isolation: worktree', or remove the key to work in the checkout itself."
    raise BadValueError(why, remedy, code="unsupported-value")


def _placement(value: Any) -> Any:
    if value is None:
        return UNSET
    word = str(value).strip()
    try:
        ClusterPlacement.read(word)
    except UsageError as error:
        raise BadValueError(error.message, error.remedy or "") from None
    return word


def _rollback(value: Any) -> Any:
    word = "off" if value is False else str(value).strip().lower().replace("_", "-")
    if value is None or word in ("off", "none", "no", "false", "never"):
        return UNSET
    if word == "on-failure":
        return "on-failure"
    raise BadValueError(f"only on-failure and off are supported, not {describe(value)}", code="unsupported-value")


def _all_or_names(value: Any) -> Any:
    """Read `extensions`, `skills`, `allowed_subagents`: everything, nothing, or these names."""
    if value is None:
        return UNSET
    if isinstance(value, bool):
        return value
    try:
        names = read_names(value)
    except BadNamesError as error:
        raise BadValueError(f"{error.why}; read as none", error.remedy, instead=False) from None
    words = {name.lower() for name in names}
    if words <= {"none", "false", "no", "off"}:
        return False
    if isinstance(value, str) and _decimal(value) is not None:
        raise BadValueError(f"{describe(value)} is no name; read as none", "Write names, or false.", instead=False)
    if isinstance(value, str) and len(names) == 1 and off_by_one(names[0].lower(), "false"):
        # A name that nothing has would leave the agent more than `false` does.
        remedy = f"Did you mean 'false'? If something is really called so, write '[{names[0]}]'."
        raise BadValueError(f"{describe(value)} is neither false nor a name", remedy, instead=False)
    if len(words) == 1 and words <= {"all", "*", "true"}:
        return True
    return names


def _subagents(value: Any) -> Any:
    found = _all_or_names(value)
    if found is UNSET:
        return False
    if isinstance(found, tuple) and any(name.lower() in EVERY for name in found):
        return True
    return found


def _thinking(value: Any) -> Any:
    if value is None:
        return UNSET
    if not isinstance(value, str):
        raise BadValueError(f"a level such as low or high is wanted, not {describe(value)}")
    if value in ("true", "True", "TRUE"):
        raise BadValueError("true is not a level", "Write one of off, minimal, low, medium, high, xhigh, max.")
    if value in ("false", "False", "FALSE"):
        return "off"
    return value.strip() or UNSET


def _schema(value: Any) -> Any:
    if value is None:
        return UNSET
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise BadValueError("the text is not valid JSON", _SCHEMA_REMEDY) from None
    if not isinstance(value, dict) or too_deep(value):
        raise BadValueError(f"a mapping is wanted, not {describe(value)}", _SCHEMA_REMEDY)
    return value


def _role(value: Any) -> Any:
    if value is None:
        return UNSET
    if not isinstance(value, dict):
        raise BadValueError(f"a mapping is wanted, not {describe(value)}")
    return _text(value.get("ROLE_ADDITIONAL", value.get("roleAdditional")))


def _safer(left: bool, right: bool) -> bool:
    return left and right


def _either(left: bool, right: bool) -> bool:
    return left or right


def _fewer(left: Any, right: Any) -> Any:
    """Return what two of `all, none or names` both allow."""
    if isinstance(left, bool):
        if left:
            return right
        return False
    if isinstance(right, bool):
        if right:
            return left
        return False
    return both_allow(left, right)


def _fewest(left: int, right: int) -> int:
    """Return the smaller of two limits."""
    # 0 means unlimited, so it is the larger of any two.
    if left and right:
        return min(left, right)
    return left or right


def _stricter_mode(left: str, right: str) -> str:
    return min(left, right, key=_FROM_STRICT.index)


def _together(left: tuple[str, ...], right: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*left, *right)))


def _anything(value: Any) -> Any:
    return value


_MODES = {
    "default": "default",
    "manual": "default",
    "ask": "default",
    "acceptEdits": "acceptEdits",
    "plan": "plan",
    "dontAsk": "dontAsk",
    "auto": "auto",
    "bypassPermissions": "bypassPermissions",
    "bypass": "bypassPermissions",
}
_FROM_STRICT = ("plan", "dontAsk", "default", "acceptEdits", "auto", "bypassPermissions")

_WRITE = "Write true or false."
_switch = _yes_or_no()

UNSET_RULE = "dropped and reported; as if the key were absent"

TEXT = FieldKind("text", UNSET_RULE, _text, textual=True)
LABEL = FieldKind("text", UNSET_RULE, _label, textual=True)
NAMES = FieldKind("names: comma text or list", UNSET_RULE, _names)
SOME_NAMES = FieldKind("names: comma text or list", UNSET_RULE, _names_or_unset, combine=_together)
TURNS = FieldKind("whole number, 0 = unlimited", UNSET_RULE, _whole_number(0), combine=_fewest)
STEPS = FieldKind("whole number from 1", UNSET_RULE, _whole_number(1), combine=_fewest)
SECONDS = FieldKind("number of seconds", UNSET_RULE, _seconds(1), combine=min)
MINUTES = FieldKind("number of minutes", UNSET_RULE, _seconds(60), combine=min)
TIMEOUT = FieldKind("number of seconds below 10,000", UNSET_RULE, _timeout, combine=min)
WORKTREE = FieldKind("true or false", UNSET_RULE, _worktree, combine=lambda left, right: left)
EXCLUDED = FieldKind("names: comma text or list", UNSET_RULE, _excluded, combine=_together)
TEMPERATURE = FieldKind("number from 0 to 2", UNSET_RULE, _temperature)
SWITCH = FieldKind("true or false (also yes, no, on, off, 1, 0)", UNSET_RULE, _switch)
EXACT_TRUE = FieldKind("true or false", "anything but an unquoted true is false, and reported", _exact_true)
ISOLATED = FieldKind(SWITCH.type, UNSET_RULE, _switch, combine=_either)
EXACT_ISOLATED = FieldKind(EXACT_TRUE.type, UNSET_RULE, _exact_true, combine=_either)
READONLY = FieldKind(SWITCH.type, UNSET_RULE, _yes_or_no(remedy=_WRITE, instead=True), combine=_either)
SANDBOX = FieldKind("read-only", UNSET_RULE, _sandbox, combine=_either)
DEVKIT_READONLY = FieldKind("true or 1", UNSET_RULE, _devkit_readonly, combine=_either)
ENABLED = FieldKind("true or false", UNSET_RULE, _enabled, combine=_safer)
SWITCHED_ON = FieldKind("true or false", UNSET_RULE, _yes_or_no(remedy=_WRITE, instead=False), combine=_safer)
"""`enabled` in the dialects that do not have the key themselves: some of them know only texts."""
DISABLED = FieldKind("true or false", UNSET_RULE, _yes_or_no(False, _WRITE, instead=False), combine=_safer)
PRIMARY = FieldKind("one of primary, subagent, all", UNSET_RULE, _primary, combine=_safer)
HIDDEN = FieldKind(SWITCH.type, UNSET_RULE, _yes_or_no(False), combine=_safer)
MODE = FieldKind(
    "one of default, acceptEdits, plan, dontAsk, auto, bypassPermissions",
    UNSET_RULE,
    _choice(_MODES),
    "grants",
    combine=_stricter_mode,
)
MEMORY = FieldKind(
    "one of user, project, local",
    UNSET_RULE,
    _choice({"user": "user", "project": "project", "local": "local"}),
    "grants",
)
ROLLBACK = FieldKind("on-failure, or off", UNSET_RULE, _rollback)
PROMPT_MODE = FieldKind("append or replace", "replace, and reported", _prompt_mode)
ISOLATION = FieldKind("worktree, or off to refuse it", UNSET_RULE, _isolation)
PLACEMENT = FieldKind("local, cluster, or cluster:LABEL,LABEL", UNSET_RULE, _placement)
ALL_OR_NAMES = FieldKind("true, false or names", "false, and reported", _all_or_names, combine=_fewer)
SUBAGENTS = FieldKind("all, none or names of agents", UNSET_RULE, _subagents, combine=_fewer)
THINKING = FieldKind("level: off, minimal, low, medium, high, xhigh, max", UNSET_RULE, _thinking, textual=True)
SCHEMA = FieldKind("JSON Schema, as a mapping or JSON text", UNSET_RULE, _schema)
ROLE = FieldKind("mapping with ROLE_ADDITIONAL", UNSET_RULE, _role)
ANYTHING = FieldKind("anything", "kept as it is", _anything)
