"""Whether a rule is about a call: yes, perhaps, or no.

Only rules that forbid or ask use the middle answer. A rule that allows must match for certain.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterator
from functools import lru_cache

from retinue.core.tool_names import STARTING_TOOLS
from retinue.guard.permissions.call import COMMAND_FIELDS, PATH_FIELDS, URL_FIELDS, JudgedCall, plain_path
from retinue.guard.permissions.locations import RunFolders, anchor_pattern, below, compile_pattern, match_path
from retinue.guard.permissions.rule import (
    FETCHING,
    GLOB,
    HOLE,
    MAYBE,
    NO,
    READING,
    SHELL,
    WRITING,
    YES,
    Match,
    Rule,
    is_about_files,
    match,
    names_tool,
    takes_away,
)
from retinue.guard.permissions.shell_commands import (
    SPEAKING,
    WRITERS,
    git_without_globals,
    is_option,
    makes_programs_load_code,
    sets_only_harmless,
)
from retinue.guard.permissions.shell_grammar import analyse
from retinue.guard.permissions.shell_step import CARRIERS, SHELLS, Step, carries_code, has_option

_MAX_PATH_CHARACTERS = 4_096
_MAX_FOLDER_ENTRIES = 2_000
_WILD = re.compile(r"\*\*|[*?]|\[[^]]*\]|\{[^}]*\}")
_LOCATED = re.compile(r"[./~]")
_MAX_STARTING_WORDS = 16
_WORD_PATTERN = re.compile(r"[\w.-]+")
_UNQUOTED = re.compile(r"[\\'\"]")
_SEARCHES = ("find", "gfind", "fd", "fdfind")


_CONTENT = frozenset({*COMMAND_FIELDS, *PATH_FIELDS, *URL_FIELDS, "prompt", "content", "pattern", "query", "task"})
"""Fields that `Tool(param:value)` cannot match, because their rules have a separate syntax."""


def restricts(rule: Rule, call: JudgedCall) -> Match:
    """Return whether a deny or ask rule matches a call."""
    if rule.specifier is None:
        if takes_away(rule, call.tool, call.possible):
            return YES
        if call.is_shell and rule.glob is None:
            return _match_files(rule, call)
        return NO
    about = names_tool(rule, call.tool)
    best: Match = NO
    if call.is_shell:
        if about:
            best = _commands(rule.specifier, call) if rule.tools & SHELL else NO
        if best != YES:
            best = max(best, _match_files(rule, call))
            if rule.effect == "network" and rule.specifier.startswith("domain:"):
                best = max(best, _hosts(rule.specifier, call))
    elif about or rule.effect in call.subjects:
        best = _match_specifier(rule, call)
    if best != YES and about:
        best = max(best, _parameter(rule, call))
    return best


def _match_specifier(rule: Rule, call: JudgedCall) -> Match:
    assert rule.specifier is not None
    if call.is_foreign and call.is_too_large and rule.effect is not None:
        return MAYBE
    if rule.effect == "spawn":
        return _match_agents(rule, call)
    if rule.specifier.startswith("domain:"):
        return _hosts(rule.specifier, call)
    if rule.effect == "execute":
        return _match_texts(rule.specifier, call)
    # A rule about the parameter of a server's tool is no rule about files.
    if call.is_server and rule.effect is None:
        return NO
    return _match_paths(rule, call)


def _match_agents(rule: Rule, call: JudgedCall) -> Match:
    agents = named_agents(rule)
    if not agents.isdisjoint(map(str.lower, call.agents)):
        return YES
    if not call.is_foreign:
        return NO
    if any(argument.text.strip().lower() in agents for argument in call.texts):
        return YES
    # Nobody knows which agent it starts.
    return NO if call.agents else MAYBE


def _match_paths(rule: Rule, call: JudgedCall) -> Match:
    """Match a rule about files with the paths of a call, and with the texts that may be paths."""
    folders = call.folders
    best: Match = max((match_path(rule, folders, path) for path in call.paths), default=NO)
    if best == YES or not call.is_foreign:
        return best
    best = max((best, *(match_suspect(rule, folders, text) for text in call.suspects)))
    if best != NO or not is_about_files(rule):
        return best
    places = (*call.paths, *(text for text in call.suspects if exists(folders, text)))
    if not places and call.hides_paths and (rule.effect == "read" or "write" in call.effects):
        return MAYBE
    # Our own searches leave out what rules withhold; of others nobody knows.
    return MAYBE if any(holds_file(rule, folders, folder) for folder in places) else NO


def _match_texts(pattern: str, call: JudgedCall) -> Match:
    """Match a rule about commands with the texts in a call of a tool that starts programs and is not our shell."""
    best: Match = NO
    for text, sure in call.commands:
        script = analyse(text)
        if script.doubts:
            if _mentions(pattern, text):
                best = MAYBE
        elif any(match_command(pattern, form) == YES for step in script.all_steps() for form in denied_forms(step)):
            if sure:
                return YES
            best = MAYBE
        elif sure and _mentions(pattern, text):
            best = MAYBE
    return best


def named_agents(rule: Rule) -> set[str]:
    """Return the agents in the parentheses of a rule, in small letters."""
    names = (rule.specifier or "").lower().split(",")
    return set(map(str.strip, names))


def _commands(pattern: str, call: JudgedCall) -> Match:
    """Match the commands of a call. A text that cannot be judged may hold any command."""
    if call.script.doubts:
        return MAYBE
    steps = call.script.all_steps()
    best: Match = max((_command(pattern, step) for step in steps), default=NO)
    writes = call.script.writes or not WRITERS.isdisjoint(call.script.names())
    if best == NO and writes and any(map(_runs_file, steps)):
        # It may carry out what it has just written.
        return MAYBE
    if best == NO and any(step.opaque for step in steps) and _mentions(pattern, call.text):
        return MAYBE
    return best


def _runs_file(step: Step) -> bool:
    return ("/" in step.words[0] and not step.plain_name) or (step.name in SHELLS and not step.inner)


def _command(pattern: str, step: Step) -> Match:
    """Match a command and what it may start. Of a program that starts others, each word may be
    the beginning of one; an unknown program may start what its words name."""
    best: Match = max(match_command(pattern, form) for form in denied_forms(step))
    if best == YES or step.name in SPEAKING:
        return best
    if any(makes_programs_load_code(name) for name, _ in step.assigned):
        return MAYBE
    if step.name == "git":
        return MAYBE if step.opaque else best
    if step.inner:
        # They are judged by themselves.
        return best
    # The command that it starts is not known for certain, so the answer is perhaps.
    if step.name in CARRIERS and (step.name not in _SEARCHES or starts_others(step)):
        return max(MAYBE, _match_started(pattern, step))
    if not carries_code(step.words) and any(_names(pattern, word) for word in step.words[1:]):
        return max(best, MAYBE)
    return best


def _match_started(pattern: str, step: Step) -> Match:
    """Match each word of a command as the beginning of another one."""
    best: Match = NO
    for at in range(1, min(len(step.words), _MAX_STARTING_WORDS)):
        best = max(best, match_command(pattern, " ".join(step.words[at:])))
    return best


def _names(pattern: str, word: str) -> bool:
    """Return whether a word, or a part of it, is the program that a pattern is about, or hides it."""
    if " " in word and not set("$`|;&<>").isdisjoint(word):
        return True
    # The program may hand the word to a shell, which takes out quotes and backslashes.
    parts = _WORD_PATTERN.findall(word) + _WORD_PATTERN.findall(_UNQUOTED.sub("", word))
    # The value of a short option stands right behind its letter.
    if word.startswith("-"):
        parts += _WORD_PATTERN.findall(word[2:])
    return _program(pattern) in parts


def _mentions(pattern: str, text: str) -> bool:
    """Return whether code in a text may start what a pattern is about: it names all its words."""
    words = set(_WORD_PATTERN.findall(pattern.removesuffix(":*").replace("*", " ")))
    # A backslash may begin an escape of a string, or be one that a shell takes out, as it does quotes.
    readings = (text, re.sub(r"\\\w", " ", text), _UNQUOTED.sub("", text))
    return bool(words) and any(words <= set(_WORD_PATTERN.findall(reading)) for reading in readings)


@lru_cache(maxsize=512)
def _program(pattern: str) -> str:
    return pattern.partition(" ")[0].removesuffix(":*").replace("*", "")


def match_command(pattern: str, text: str) -> Match:
    """Match with `*` for anything; ` *` or `:*` at the end also matches nothing."""
    return max(match(spelling, text) for spelling in _patterns(pattern))


@lru_cache(maxsize=512)
def _patterns(pattern: str) -> tuple[str, ...]:
    if pattern.endswith(":*"):
        pattern = f"{pattern[:-2]} *"
    patterns = [pattern]
    if not set("'\"\\").isdisjoint(pattern):
        with contextlib.suppress(ValueError):
            patterns.append(" ".join(shlex.split(pattern)))
    for spelling in tuple(patterns):
        patterns.append(spelling.removesuffix(" *"))
    return tuple(dict.fromkeys(patterns))


def denied_forms(step: Step) -> tuple[str, ...]:
    """Return every way in which a rule may have written this command."""
    words = step.words
    plain = (step.name, *words[1:])
    forms = [" ".join(words), " ".join(plain)]
    if step.name == "git":
        forms.append(" ".join(("git", *git_without_globals(words[1:]))))
    elif step.name.startswith("git-"):
        forms.append(" ".join(("git", step.name[4:], *words[1:])))
    elif words[1:2] and words[1].startswith("-"):
        forms += _without_options(plain)
    if step.assigned:
        forms.append(" ".join((*_assignments(step), *words)))
    return tuple(dict.fromkeys(forms))


def _without_options(words: tuple[str, ...]) -> list[str]:
    """Return forms without the first options and their values: `npm --prefix . publish` as `npm publish`."""
    forms = []
    for at, word in enumerate(words[1:6], 1):
        if not word.startswith("-"):
            forms.append(" ".join((words[0], *words[at:])))
    return forms[:2]


def allowed_form(step: Step) -> str:
    """Return how a rule that allows this command must have written it."""
    words = (step.plain_name or step.words[0], *step.words[1:])
    text = " ".join(words)
    if sets_only_harmless(step):
        return text
    return " ".join([*_assignments(step), text])


def _assignments(step: Step) -> list[str]:
    return [f"{name}={value}" for name, value in step.assigned]


def _match_files(rule: Rule, call: JudgedCall) -> Match:
    """Match rules about files with the files that a command opens or is handed.

    If the walls hide the files that a rule denies, further reads of the command do not matter.
    """
    if not is_about_files(rule):
        return NO
    reading = rule.effect == "read"
    best: Match = NO
    for path, writes in call.touched:
        if writes or reading:
            if rule.specifier is not None:
                best = max(best, *(match_path(rule, call.folders, path, base) for base in call.bases))
            elif not path.startswith("/dev/"):
                best = YES
            if best == YES:
                return YES
    # The sandbox hides the files from the command, whatever it tries.
    if call.masked:
        return NO
    if best == NO and rule.specifier is not None and (call.script.doubts or (reading and _reaches(rule, call))):
        return MAYBE
    return best


def _reaches(rule: Rule, call: JudgedCall) -> bool:
    """Return whether a command goes through whole folders, or code in it names the file."""
    steps = call.script.all_steps()
    if any(map(goes_through, steps)):
        return True
    name = (rule.specifier or "").rstrip("/*").rpartition("/")[2]
    coded = len(name) > 2 and "*" not in name and name in call.text
    return coded and any(step.opaque for step in steps)


_RECURSIVE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("scp", "diff", "zip"), ("-r", "--recursive")),
    **dict.fromkeys(
        ("grep", "egrep", "fgrep"), ("-r", "-R", "-d", "--recursive", "--dereference-recursive", "--directories")
    ),
    "cp": ("-r", "-a", "-R", "--recursive", "--archive"),
}
_THROUGH = frozenset({"rg", "ag", "ack", "tar", "bsdtar", "rsync", "7z", "xargs", "parallel"})


def goes_through(step: Step) -> bool:
    """Return whether a command reads files that its words do not name."""
    words = step.words[1:]
    if step.name in _THROUGH or (step.name == "git" and "grep" in words):
        return True
    if step.name in ("find", "fd") and has_option(words, "-exec", "-ok", "-x", "-X"):
        return True
    if "files0-from" in step.text or has_option(words, "--files-from"):
        return True
    options = _RECURSIVE.get(step.name, ())
    return any(is_option(word, option) for word in words for option in options)


def _hosts(specifier: str, call: JudgedCall) -> Match:
    best: Match = max((match_host(specifier, host) for host in call.hosts), default=NO)
    if best != NO or not call.is_foreign:
        return best
    domain = specifier.removeprefix("domain:").strip(" *.").lower()
    if domain:
        # A host may be written without a scheme.
        return MAYBE if any(domain in argument.text.lower() for argument in call.texts) else NO
    return YES if "network" in call.effects and not call.is_server else NO


def match_host(specifier: str, host: str) -> Match:
    """Match `domain:host`, `domain:*.host` for what is below it, `domain:*`."""
    domain = specifier.removeprefix("domain:").strip().rstrip(".").lower()
    if domain == "*":
        return YES
    if host == HOLE:
        return MAYBE
    if domain.startswith("*."):
        if host.endswith(domain[1:]) and host != domain[2:]:
            return YES
        return NO
    return match(domain, host)


def _parameter(rule: Rule, call: JudgedCall) -> Match:
    """Match `Tool(param:value)` with a plain value of the call, never with its content."""
    name, colon, expected = (rule.specifier or "").partition(":")
    name = name.strip()
    if not colon or name in _CONTENT:
        return NO
    value = call.arguments.get(name)
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, str | int | float):
        text = str(value)
    else:
        return NO
    return match(expected.strip().lower(), text.replace("\0", " ").replace("\1", " ").lower())


def match_suspect(rule: Rule, folders: RunFolders, text: str) -> Match:
    """Return what a rule about files says about a text that may be a path, or may have one in it.

    A text is certainly meant where it exists as a file or where the rule names the file; a mere mention of the file, or
    a pattern that may become its name, is a doubt.
    """
    path = plain_path(text)
    if 0 < len(path) <= _MAX_PATH_CHARACTERS and "\n" not in path:
        wild = _WILD.search(path) is not None and not any(map(str.isspace, path))
        if wild and match_path(rule, folders, _WILD.sub(_mark, path)) != NO:
            return MAYBE
        if match_path(rule, folders, path) == YES:
            if _literal(rule.specifier or "") is not None or exists(folders, path):
                return YES
            # A rule about every file: any text would be a name of one.
            return MAYBE if _LOCATED.search(path) and " " not in path else NO
    return MAYBE if _is_mentioned(rule.specifier or "", text) else NO


def _mark(wildcard: re.Match[str]) -> str:
    return HOLE if wildcard[0] in ("**",) or wildcard[0].startswith("{") else GLOB


def exists(folders: RunFolders, path: str) -> bool:
    try:
        return os.path.lexists(folders.absolute(path))
    except (OSError, ValueError):
        return False


@lru_cache(maxsize=512)
def _literal(specifier: str) -> str | None:
    """Return the last part of a pattern that says more than "any name"; None where none does."""
    for segment in reversed(specifier.split("/")):
        if segment.strip("*?.~"):
            return segment
    return None


def _is_mentioned(specifier: str, text: str) -> bool:
    name = _literal(specifier)
    return name is not None and _mention(name, "\n" in text).search(text) is not None


@lru_cache(maxsize=512)
def _mention(name: str, in_prose: bool) -> re.Pattern[str]:
    """Return a pattern that finds a file's name in a text. In prose a plain word such as `secrets` is a name only
    beside a slash."""
    source = "".join({"*": r"[^\s/'\"]*", "?": r"[^\s/'\"]"}.get(sign) or re.escape(sign) for sign in name)
    source = rf"(?<![\w.-]){source}(?![\w-])"
    if in_prose and "." not in name:
        source = rf"(?<=/){source}|{source}(?=/)"
    return re.compile(source, re.IGNORECASE)


def holds_file(rule: Rule, folders: RunFolders, path: str) -> bool:
    """Return whether a rule is about a file in this folder, as far as it can be looked through."""
    base, pattern = anchor_pattern(rule, folders)
    compiled = compile_pattern(pattern)
    for folder in folders.forms(path):
        for start in folders.forms(base):
            # A folder that has no path in common with the rule's holds nothing of it.
            if below(folder, start) is None and below(start, folder) is None:
                continue
            for entry in _entries(folder):
                if entry is None:
                    return True
                relative = below(entry, start)
                if relative and (compiled.match(relative) or compiled.match(f"{relative}/")):
                    return True
    return False


def _entries(folder: str) -> Iterator[str | None]:
    """Yield the entries of a folder and of the folders below it, and None at the end if there are too many."""
    waiting, count = [folder], 0
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    count += 1
                    if count > _MAX_FOLDER_ENTRIES:
                        yield None
                        return
                    yield entry.path
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue


def allows(rule: Rule, call: JudgedCall) -> bool:
    """Return whether an allow rule covers a call that is not a command line."""
    if not names_tool(rule, call.tool):
        return False
    if rule.specifier is None:
        return True
    if rule.specifier.startswith("domain:") and call.tool in FETCHING:
        return bool(call.hosts) and all(match_host(rule.specifier, host) == YES for host in call.hosts)
    if call.tool in STARTING_TOOLS:
        return named_agents(rule).issuperset(map(str.lower, call.agents))
    if not call.is_foreign and rule.tools & (READING | WRITING):
        return bool(call.paths) and all(match_path(rule, call.folders, path) == YES for path in call.paths)
    return False


def allows_step(rule: Rule, step: Step, *, wary: bool) -> bool:
    """Return whether an allow rule covers one command. `wary`: others are forbidden, so that one
    which is handed code of its own needs a rule that names it."""
    if "bash" not in rule.tools:
        return False
    if rule.specifier is None:
        return not (step.opaque and wary)
    wild = "*" in rule.specifier
    if step.opaque and wild and step.name == "git":
        # `Bash(git grep *)` is no consent to the program that -O starts.
        return False
    if step.opaque and wary and rule.specifier.partition(" ")[0].partition(":")[0] != step.words[0]:
        return False
    return match_command(rule.specifier, allowed_form(step)) == YES


def starts_others(step: Step) -> bool:
    """Return whether the command starts programs that its name does not imply."""
    if step.name in ("xargs", "parallel", "watch"):
        return len(step.words) > 1
    return step.name in _SEARCHES and has_option(step.words[1:], "-exec", "-ok", "-x", "-X", "--exec")
