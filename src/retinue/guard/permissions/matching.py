"""Whether a rule speaks about a call: it does, it may, or it does not.

Only rules that forbid or ask use the middle answer. What allows must match for certain.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from functools import lru_cache

from retinue.guard.permissions.call import CONTENT, Call
from retinue.guard.permissions.marks import HOLE, MAYBE, NO, YES, Match, is_known, match
from retinue.guard.permissions.place import match_path
from retinue.guard.permissions.rule import FETCHING, READING, SHELL, SPAWNING, WRITING, Rule, names_tool
from retinue.guard.permissions.shell.commands import SPEAKING, WRITERS, is_reader, operands
from retinue.guard.permissions.shell.step import Step

_SEARCHERS = frozenset({"grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack"})
_PATTERN_OPTIONS = ("-e", "-f", "--regexp", "--file")
_GIT_VALUED = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"})
_FORMS_OF_SUFFIX = 16


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
    for step in call.script.all_steps():
        for form in denied_forms(step):
            best = max(best, match_command(pattern, form))
            if best == YES:
                return YES
        if best == NO and step.opaque and _mentions(pattern, step):
            best = MAYBE
        elif best == NO and not _well_known(step):
            best = MAYBE if any(match_command(pattern, form) for form in _suffixes(step)) else NO
    if best == NO and call.script.doubts:
        return MAYBE
    return best


def _well_known(step: Step) -> bool:
    return bool(step.inner) or step.name in SPEAKING or step.name in WRITERS or step.name == "git" or is_reader(step)


def _mentions(pattern: str, step: Step) -> bool:
    """Whether code that is not a shell's holds every word of a pattern: it may run that."""
    wanted = set(re.findall(r"\w+", pattern))
    return bool(wanted) and wanted <= set(re.findall(r"\w+", " ".join(step.words[1:])))


def _suffixes(step: Step) -> list[str]:
    """What an unknown program might start: the rest of its words, from any of them on."""
    words = step.words[1 : _FORMS_OF_SUFFIX + 1]
    return [_tight(step.words[at:]) for at, word in enumerate(words, 1) if is_known(word) and not word.startswith("-")]


def denied_forms(step: Step) -> tuple[str, ...]:
    """Every way in which a rule may have written this command."""
    words = step.words
    plain = (step.name, *words[1:])
    forms = [" ".join(words), _tight(words), " ".join(plain), _tight(plain)]
    if step.name == "git":
        forms.append(_tight(("git", *_without_globals(words[1:]))))
    if step.assigned:
        before = tuple(f"{name}={given}" for name, given in step.assigned)
        forms.append(_tight((*before, *words)))
    return tuple(dict.fromkeys(forms))


def allowed_forms(step: Step) -> tuple[str, ...]:
    """How a rule that allows it must have written it."""
    from retinue.guard.permissions.shell.variables import is_harmless

    words = (step.plain_name or step.words[0], *step.words[1:])
    text = " ".join(words)
    kept = [f"{name}={given}" for name, given in step.assigned if not is_harmless(name)]
    if not kept:
        return (text,)
    return (" ".join([*(f"{name}={given}" for name, given in step.assigned), text]),)


def _tight(words: tuple[str, ...]) -> str:
    """Words joined. A word that is all hole may vanish with the blank before it."""
    return "".join(word if at == 0 else HOLE if word == HOLE else f" {word}" for at, word in enumerate(words))


def _without_globals(words: tuple[str, ...]) -> tuple[str, ...]:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _GIT_VALUED else 1
    return words[at:]


def match_command(pattern: str, text: str) -> Match:
    """`*` spans anything; ` *` or `:*` at the end also matches nothing, at the end of a word."""
    return max(match(each, text) for each in _patterns(pattern))


@lru_cache(maxsize=512)
def _patterns(pattern: str) -> tuple[str, ...]:
    if pattern.endswith(":*"):
        pattern = f"{pattern[:-2]} *"
    patterns = [pattern]
    if any(sign in pattern for sign in "'\"\\"):
        with contextlib.suppress(ValueError):
            patterns.append(" ".join(shlex.split(pattern)))
    return tuple(dict.fromkeys([*patterns, *(each[:-2] for each in patterns if each.endswith(" *"))]))


def _touched(rule: Rule, call: Call) -> Match:
    """Rules about files, for the files that a command opens or is handed."""
    reading, writing = bool(rule.tools & {"read"}), bool(rule.tools & WRITING)
    if not (reading or writing) or rule.glob is not None or (rule.specifier or "").startswith("domain:"):
        return NO
    best: Match = NO
    for path, writes in touched_paths(call):
        if writes or reading:
            best = max(best, _match_touch(rule, call, path))
            if best == YES:
                return YES
    return best


def _match_touch(rule: Rule, call: Call, path: str) -> Match:
    if rule.specifier is None:
        return NO if path.startswith("/dev/") else YES
    return max(match_path(rule, call.place, path, base) for base in call.bases)


def touched_paths(call: Call) -> list[tuple[str, bool]]:
    """The files of a command line, and whether it changes them."""
    found = [(file.path, file.writes) for file in call.script.opened]
    for step in call.script.all_steps():
        if step.name in SPEAKING:
            continue
        given = operands(step)
        if step.name in _SEARCHERS and not any(
            word.startswith(("-e", "-f", "--regexp", "--file")) for word in step.words
        ):
            given = given[1:]
        writes = step.name in WRITERS and not is_reader(step)
        writes = writes or (step.name == "git" and not is_reader(step))
        for path in given:
            found.append((path, writes))
            if step.name == "git" and ":" in path:
                found.append((path.partition(":")[2], writes))
            elif path.startswith("@"):
                found.append((path[1:], writes))
    return [(path, writes) for path, writes in found if path]


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
