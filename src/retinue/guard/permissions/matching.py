"""Whether a rule speaks about a call: it does, it may, or it does not.

Only rules that forbid or ask use the middle answer. What allows must match for certain.
"""

from __future__ import annotations

from retinue.guard.permissions.call import CONTENT, Call
from retinue.guard.permissions.forms import allowed_forms
from retinue.guard.permissions.guesses import match_command, may_be_meant
from retinue.guard.permissions.marks import HOLE, MAYBE, NO, YES, Match, match
from retinue.guard.permissions.place import any_matches, match_path
from retinue.guard.permissions.rule import FETCHING, READING, SHELL, SPAWNING, WRITING, Rule, names_tool
from retinue.guard.permissions.shell.step import Step


def restricts(rule: Rule, call: Call) -> Match:
    """What a deny or ask rule says about a call."""
    about = names_tool(rule, call.tool)
    if rule.specifier is None:
        if about:
            return YES
        return _touched(rule, call) if call.is_shell and rule.glob is None else NO
    best: Match = NO
    if about:
        best = _specified(rule, call)
    if best != YES and call.is_shell:
        best = max(best, _touched(rule, call), _reached(rule, call))
    if best != YES and about:
        best = max(best, _parameter(rule, call))
    return best


def _specified(rule: Rule, call: Call) -> Match:
    assert rule.specifier is not None
    if call.is_shell and rule.tools & SHELL:
        return _commands(rule.specifier, call)
    if call.tool in SPAWNING:
        wanted = {name.strip().lower() for name in rule.specifier.split(",")}
        return YES if any(agent.lower() in wanted for agent in call.agents) else NO
    if call.tool in FETCHING and rule.specifier.startswith("domain:"):
        return _hosts(rule.specifier, call)
    if call.tool in READING | WRITING and not rule.specifier.startswith("domain:"):
        return max((match_path(rule, call.place, path) for path in call.paths), default=NO)
    return NO


def _commands(pattern: str, call: Call) -> Match:
    best: Match = NO
    for forms, found in call.forms:
        for form in forms:
            best = max(best, match_command(pattern, form))
            if best == YES:
                return YES
        if best == NO and may_be_meant(pattern, found, call.text):
            best = MAYBE
    if best == NO and call.script.doubts:
        return MAYBE
    return best


def _touched(rule: Rule, call: Call) -> Match:
    """Rules about files, for the files that a command opens or is handed."""
    reading, writing = bool(rule.tools & {"read"}), bool(rule.tools & WRITING)
    if not (reading or writing) or rule.glob is not None or (rule.specifier or "").startswith("domain:"):
        return NO
    best: Match = NO
    for path, writes in call.touched:
        if writes or reading:
            best = max(best, _match_touch(rule, call, path))
            if best == YES:
                return YES
    if best == NO and reading and rule.specifier is not None and _reaches(rule, call):
        return MAYBE
    return best


def _reaches(rule: Rule, call: Call) -> bool:
    """Whether it goes through a folder with a file that the rule is about, or hands another
    language a text that names one."""
    if call.through is None or any_matches(rule, call.place, call.through):
        return True
    name = (rule.specifier or "").rstrip("/*").rpartition("/")[2]
    coded = len(name) > 2 and "*" not in name and name in call.text
    return coded and any(step.opaque for step in call.script.all_steps())


def _match_touch(rule: Rule, call: Call, path: str) -> Match:
    if rule.specifier is None:
        return NO if path.startswith("/dev/") else YES
    return max(match_path(rule, call.place, path, base) for base in call.bases)


def _reached(rule: Rule, call: Call) -> Match:
    """Rules about hosts, for the URLs that a command is handed."""
    if not rule.tools & FETCHING or not (rule.specifier or "").startswith("domain:"):
        return NO
    return _hosts(rule.specifier or "", call)


def _hosts(specifier: str, call: Call) -> Match:
    return max((match_host(specifier, host) for host in call.hosts), default=NO)


def match_host(specifier: str, host: str) -> Match:
    """`domain:host`, `domain:*.host` for what is below it, `domain:*`."""
    wanted = specifier.removeprefix("domain:").strip().rstrip(".").lower()
    if wanted == "*":
        return YES
    if host == HOLE:
        return MAYBE
    if wanted.startswith("*."):
        return YES if host.endswith(wanted[1:]) and host != wanted[2:] else NO
    return match(wanted, host)


def _parameter(rule: Rule, call: Call) -> Match:
    """`Tool(param:value)`: a plain value of the call, never its content."""
    name, colon, wanted = (rule.specifier or "").partition(":")
    name = name.strip()
    if not colon or name in CONTENT:
        return NO
    given = call.arguments.get(name)
    if isinstance(given, bool):
        text = "true" if given else "false"
    elif isinstance(given, str | int | float):
        text = str(given)
    else:
        return NO
    return match(wanted.strip().lower(), text.replace("\0", " ").replace("\1", " ").lower())


def allows(rule: Rule, call: Call) -> bool:
    """Whether an allow rule covers a call that is not a command line."""
    if not names_tool(rule, call.tool):
        return False
    if rule.specifier is None:
        return True
    if call.tool in FETCHING and rule.specifier.startswith("domain:"):
        return bool(call.hosts) and all(match_host(rule.specifier, host) == YES for host in call.hosts)
    if call.tool in SPAWNING:
        wanted = {name.strip().lower() for name in rule.specifier.split(",")}
        return all(agent.lower() in wanted for agent in call.agents)
    if call.tool in READING | WRITING:
        return bool(call.paths) and all(match_path(rule, call.place, path) == YES for path in call.paths)
    return False


def allows_step(rule: Rule, step: Step, *, wary: bool) -> bool:
    """Whether an allow rule covers one command. `wary`: others are forbidden, so that one which
    is handed code of its own needs a rule that names it."""
    if "bash" not in rule.tools:
        return False
    unseen = bool(step.opaque) and wary
    if rule.specifier is None:
        return not unseen
    if unseen and rule.specifier.partition(" ")[0].partition(":")[0] != step.words[0]:
        return False
    return any(match_command(rule.specifier, form) == YES for form in allowed_forms(step))


def touched_paths(call: Call) -> list[tuple[str, bool]]:
    """The files of a command line, and whether it changes them."""
    return list(call.touched)
