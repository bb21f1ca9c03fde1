"""The whole of a command line: found commands opened up until nothing starts anything unseen."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from retinue.guard.permissions.marks import GLOB, HOLE, is_known, shown
from retinue.guard.permissions.shell import gitcode, surprises
from retinue.guard.permissions.shell.commands import WRITERS, is_reader
from retinue.guard.permissions.shell.sedcall import edits_only, read_call
from retinue.guard.permissions.shell.step import Opened, Script, Step
from retinue.guard.permissions.shell.variables import is_dangerous, is_harmless
from retinue.guard.permissions.shell.walk import read
from retinue.guard.permissions.shell.wrappers import (
    CARRIERS,
    CODE_OPTIONS,
    INLINE_CODE,
    SHELLS,
    STRANGE_BUILTINS,
    WRAPPERS,
    Wrapper,
    unwrap,
)

_DEEPEST = 6
_MOST_STEPS = 400
_RESERVED = frozenset(
    {"if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "in", "select"}
    | {"function", "{", "}", "!", "[[", "]]", "((", "))"}
)
"""As the name of a command they show that parser and shell have parted ways."""
_MOST_WORDS = 16
_MOVING = frozenset({"cd", "pushd", "popd", "chdir"})


@lru_cache(maxsize=256)
def analyse(command: str) -> Script:
    """Takes `command` apart. Never raises for any text."""
    reader = _Reader()
    try:
        steps = reader.script(command, 0)
    except RecursionError:
        return Script(doubts=("it is nested too deeply",))
    made = Script(tuple(steps), tuple(reader.opened), tuple(reader.moves))
    if surprises.written_and_run(made.all_steps(), made.opened):
        reader.doubts.append("it carries out a file that it makes itself")
    return replace(made, doubts=tuple(dict.fromkeys(reader.doubts)))


class _Reader:
    """Collects over all levels what belongs to the command line as a whole."""

    def __init__(self) -> None:
        self.opened: list[Opened] = []
        self.moves: list[str] = []
        self.doubts: list[str] = []
        self.count = 0
        self.fed = False

    def script(self, source: str, depth: int) -> list[Step]:
        if depth > _DEEPEST:
            self.doubts.append("it is nested too deeply")
            return []
        text = read(source)
        self.opened += text.opened
        self.doubts += text.doubts
        for name in (*(name for name, _ in text.assigned), *text.named):
            if is_dangerous(name):
                self.doubts.append(f"it sets {shown(name)}, which changes what commands do")
        self.fed = self.fed or any(found.fed for found in text.commands)
        return [self.step(found.words, found.assigned, found.stdin, depth) for found in text.commands]

    def step(
        self, words: tuple[str, ...], assigned: tuple[tuple[str, str], ...], stdin: str | None, depth: int
    ) -> Step:
        self.count += 1
        if self.count > _MOST_STEPS:
            self.doubts.append("it starts too many commands")
            return Step(words, assigned)
        if not words:
            return Step((":",), assigned)
        if not is_known(words[0]) or not words[0]:
            self.doubts.append("which program it starts is known only when it runs")
            return Step(words, assigned)
        if words[0] in _RESERVED or any(sign.isspace() for sign in words[0]):
            self.doubts.append(f"{words[0]} stands where no such word can")
        name = words[0].rpartition("/")[2]
        if name in STRANGE_BUILTINS or (name in ("mapfile", "readarray") and "-C" in words):
            self.doubts.append(f"{name} changes what commands mean")
        if name in _MOVING:
            self.moves.append(_target(words))
        if name in ("export", "declare", "typeset", "readonly", "local"):
            self._exports(words)
        self.doubts += (*surprises.of_words(name, words), *surprises.of_variables(assigned))
        inner, transparent = self.inner(name, words, stdin, depth)
        if not inner and surprises.starts_shell(name, words, self.fed):
            self.doubts.append("a shell gets its commands from its input")
        harmless = all(is_harmless(variable) for variable, _ in assigned)
        step = Step(words, assigned, tuple(inner), transparent and harmless, _opaque(name, words))
        return step if inner else self._strange(step, stdin, depth)

    def _strange(self, step: Step, stdin: str | None, depth: int) -> Step:
        """A program that is not known here: what among its arguments starts other programs, may
        be what it starts."""
        if depth > _DEEPEST or step.name in SHELLS or step.name in WRITERS or step.name == "git" or is_reader(step):
            return step
        for at, word in enumerate(step.words[1:_MOST_WORDS], 1):
            name = word.rpartition("/")[2]
            if (name in CARRIERS or name == "git") and self._hides(name, step.words[at:]):
                return replace(step, inner=(self.step(step.words[at:], (), stdin, depth + 1),))
        return step

    def _hides(self, name: str, words: tuple[str, ...]) -> bool:
        """Whether these words, if they were a command, would start another one. `docker run … sh`
        waits for a person."""
        if name == "git":
            return any(gitcode.code(words[1:])) or any(gitcode.doubts(words[1:]))
        if name in SHELLS:
            return self.fed or any(each.startswith("-") and "c" in each for each in words[1:4])
        return len(words) > 1

    def inner(self, name: str, words: tuple[str, ...], stdin: str | None, depth: int) -> tuple[list[Step], bool]:
        """The commands that this one starts, and whether they are all that it does."""
        if name in SHELLS:
            return self._shell(words, stdin, depth)
        if name == "eval":
            return self._code(" ".join(words[1:]), depth), True
        if name == "trap":
            handler = words[2:] if words[1:2] == ("--",) else words[1:]
            return (self._code(handler[0], depth), True) if len(handler) > 1 else ([], False)
        if name in ("xargs", "parallel"):
            return self._fed(name, words, depth)
        if name in ("find", "gfind"):
            return self._found(words, depth), False
        if name in ("fd", "fdfind"):
            return self._suffix_after(words, {"-x", "-X", "--exec", "--exec-batch"}, depth), False
        if name == "watch":
            return self._watched(words, depth), False
        steps = self._code_options(name, words, depth)
        if name == "git":
            return steps + self._git(words, depth), False
        wrapper = WRAPPERS.get(name) or (WRAPPERS["busybox"] if name.startswith(("ld-linux", "ld-musl")) else None)
        if wrapper is None:
            return steps, False
        if name == "command" and words[1:2] and words[1] in ("-v", "-V"):
            return steps, False
        more, transparent = self._wrapped(name, words, wrapper, stdin, depth)
        return steps + more, transparent and not steps

    def _wrapped(
        self, name: str, words: tuple[str, ...], wrapper: Wrapper, stdin: str | None, depth: int
    ) -> tuple[list[Step], bool]:
        at, assigned, certain = unwrap(words, wrapper)
        if name in ("uv", "poetry", "pipenv"):
            if words[1:2] != ("run",):
                return [], False
            at, certain = 2, not words[2:3] or not words[2].startswith("-")
        if not certain:
            return self._every_suffix(words, at + 1, depth), False
        if at >= len(words):
            return [], False
        step = self.step(words[at:], assigned, stdin, depth + 1)
        return [step], wrapper.transparent and all(is_harmless(variable) for variable, _ in assigned)

    def _every_suffix(self, words: tuple[str, ...], start: int, depth: int) -> list[Step]:
        """Whichever word the command is, it is among them."""
        if depth > _DEEPEST:
            self.doubts.append("it is nested too deeply")
            return []
        starts = [at for at in range(start, min(len(words), start + 12)) if is_known(words[at])]
        return [self.step(words[at:], (), None, depth + 2) for at in starts]

    def _shell(self, words: tuple[str, ...], stdin: str | None, depth: int) -> tuple[list[Step], bool]:
        at, carries_code = 1, False
        while at < len(words) and (words[at].startswith(("-", "+")) or not is_known(words[at])):
            word = words[at]
            if not is_known(word):
                self.doubts.append("what a shell is told to do is known only when it runs")
                return [], False
            carries_code = carries_code or (word.startswith("-") and not word.startswith("--") and "c" in word)
            if word.startswith(("--rcfile", "--init-file")):
                self.doubts.append("a shell carries out a file before it begins")
            if word in ("--rcfile", "--init-file", "-o", "+o", "-O", "+O"):
                at += 1
            at += 1
            if word in ("--", "-"):
                break
        if carries_code:
            return (self._code(words[at], depth), True) if at < len(words) else ([], False)
        if at < len(words) and "-s" not in words[1:at]:
            return [], False  # a script of its own
        if stdin is None:
            self.doubts.append("a shell gets its commands from its input")
            return [], False
        return self._code(stdin, depth), True

    def _code(self, source: str, depth: int) -> list[Step]:
        if not is_known(source):
            self.doubts.append("the text of a command is known only when it runs")
            source = source.replace(HOLE, " ").replace(GLOB, "*")
        return self.script(source, depth + 1)

    def _fed(self, name: str, words: tuple[str, ...], depth: int) -> tuple[list[Step], bool]:
        """xargs: the command gets words that nobody knows yet."""
        valued = {"-I", "-i", "-n", "-P", "-L", "-s", "-d", "-a", "-E", "-J", "-R", "-j", "--max-args", "--max-procs"}
        flags = {"-0", "-r", "-t", "-p", "-x", "-o", "--null", "--no-run-if-empty", "--verbose"}
        replaced, at = ("{}" if name == "parallel" else ""), 1
        bare = True
        while at < len(words) and words[at].startswith("-"):
            word = words[at]
            bare = False
            if word in ("-I", "-J", "--replace"):
                replaced = words[at + 1] if at + 1 < len(words) else ""
            elif word.startswith(("-I", "-J", "--replace=")):
                replaced = word.partition("=")[2] or word[2:]
            known = word in flags or word in valued or word[:2] in valued or (word.startswith("--") and "=" in word)
            if not known and not all(f"-{letter}" in flags for letter in word[1:]):
                return self._every_suffix(words, at + 1, depth), False
            at += 2 if word in valued and word != "-i" else 1
        command = words[at:]
        if not command:
            if name == "parallel":
                self.doubts.append("parallel gets its commands from its input")
            return [], name == "xargs"
        if name == "parallel":
            if any(" " in word for word in command):
                self.doubts.append("parallel hands text to a shell")
            return [*self._code(" ".join(command).replace("{}", HOLE), depth)], False
        if replaced:
            command = tuple(word.replace(replaced, HOLE) for word in command)
        else:
            command = (*command, HOLE)
        return [self.step(command, (), None, depth + 1)], bare

    def _found(self, words: tuple[str, ...], depth: int) -> list[Step]:
        """find: what -exec and its like start, with the found file in the place of {}."""
        steps = []
        at = 1
        place = _find_place(words)
        while at < len(words):
            if words[at] not in ("-exec", "-execdir", "-ok", "-okdir"):
                at += 1
                continue
            end = next((i for i in range(at + 1, len(words)) if words[i] in (";", "+")), len(words))
            command = tuple(place if word == "{}" else word.replace("{}", HOLE) for word in words[at + 1 : end])
            if command:
                steps.append(self.step(command, (), None, depth + 1))
            at = end + 1
        return steps

    def _suffix_after(self, words: tuple[str, ...], options: set[str], depth: int) -> list[Step]:
        for at, word in enumerate(words):
            option, equals, given = word.partition("=")
            if option in options:
                command = (given, *words[at + 1 :]) if equals else words[at + 1 :]
            elif word[:2] in options:
                command = (word[2:], *words[at + 1 :])
            else:
                continue
            return [self.step((*command, HOLE), (), None, depth + 1)] if command else []
        return []

    def _watched(self, words: tuple[str, ...], depth: int) -> list[Step]:
        at = 1
        while at < len(words) and words[at].startswith("-"):
            at += 2 if words[at] in ("-n", "--interval", "-q", "--equexit") else 1
        return self._code(" ".join(words[at:]), depth) if at < len(words) else []

    def _code_options(self, name: str, words: tuple[str, ...], depth: int) -> list[Step]:
        steps: list[Step] = []
        options = CODE_OPTIONS.get(name, frozenset())
        for at, word in enumerate(words):
            option, _, joined = word.partition("=")
            clustered = name in ("su", "script") and word.startswith("-") and word[-1:] == "c" and word[1:2] != "-"
            if ((option in options and not joined) or clustered) and at + 1 < len(words):
                steps += self._code(words[at + 1], depth)
            elif option in options and joined:
                steps += self._code(joined, depth)
            elif len(word) > 2 and word[:2] in options:
                steps += self._code(word[2:], depth)
        return steps

    def _git(self, words: tuple[str, ...], depth: int) -> list[Step]:
        arguments = words[1:]
        self.doubts += gitcode.doubts(arguments)
        steps = [step for text in gitcode.code(arguments) for step in self._code(text, depth)]
        rest = gitcode.without_globals(arguments)
        if rest[:2] == ("bisect", "run") and len(rest) > 2:
            steps.append(self.step(rest[2:], (), None, depth + 1))
        return steps

    def _exports(self, words: tuple[str, ...]) -> None:
        for word in words[1:]:
            name, equals, _ = word.partition("=")
            exported = equals or words[0] == "export" or any(each.startswith("-") and "x" in each for each in words)
            if (exported and is_dangerous(name)) or (not is_known(name) and not name.startswith("-")):
                self.doubts.append("it exports what changes how commands work")


def _target(words: tuple[str, ...]) -> str:
    """Where cd leads; a hole where that is not said."""
    operands = [word for word in words[1:] if not word.startswith("-") or word == "-"]
    if words[0].startswith("popd") or operands[:1] == ["-"]:
        return HOLE
    return operands[0] if operands else "~"


def _find_place(words: tuple[str, ...]) -> str:
    """What {} stands for: a name in the searched folder if there is a test that chooses, the
    folder itself if there is none."""
    place = next((word for word in words[1:] if not word.startswith("-")), ".")
    if place.startswith(("(", "!")) or not is_known(place):
        return HOLE
    tests = {"-name", "-iname", "-path", "-ipath", "-regex", "-iregex", "-newer", "-mtime", "-mmin", "-size", "-empty"}
    chosen = any(word in tests and words[at + 1 : at + 2] not in (("*",), ("**",)) for at, word in enumerate(words))
    negated = "!" in words or "-not" in words or "-o" in words or "-or" in words
    return f"{place.rstrip('/')}/{GLOB}.found" if chosen and not negated else place


def _opaque(name: str, words: tuple[str, ...]) -> str:
    if name in ("sed", "gsed"):
        call = read_call(words[1:])
        return "" if call is not None and edits_only(call) else f"{name} carries out more than edits"
    options = INLINE_CODE.get(name)
    if options is None and name.startswith(("python3.", "python2.")):
        options = INLINE_CODE["python"]
    if options is None:
        return ""
    alone = len(words) == 1
    if not options or alone or any(word.startswith(option) for word in words[1:] for option in options):
        return f"{name} carries out text that is not a shell's"
    return ""
