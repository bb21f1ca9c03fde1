"""The tools of a run in a worktree, which are confined to it, and the notice about it in the prompt.

An inherited prompt or task contains paths of the main checkout, and models follow them. The notice at the end of the
system prompt names the right paths; the tools refuse the others.

If there is no sandbox and the user wants a shell anyway, every command is parsed like for permissions. It is refused if
it leaves the worktree by its folder, by a file it writes or by an option of git, or if that is unknown. This prevents
mistakes of agents. It does not confine the programs that a command starts: only a sandbox does, so the default without
one is no shell.

Tools of MCP servers, plugins and programs usually work in the main checkout, where they were started. So a path
argument that is in the main checkout, or relative, is refused. Tools that only read are not checked."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.core.permission import ToolEffect, ToolUse
from retinue.core.tool import Tool, ToolContext, ToolOutput, ToolSpec, failed
from retinue.core.tool_names import TOOL_EFFECTS
from retinue.guard.permissions.call import JudgedCall
from retinue.guard.permissions.locations import RunFolders
from retinue.guard.permissions.match import starts_others
from retinue.guard.permissions.rule import shown
from retinue.guard.permissions.shell_commands import edited_paths
from retinue.runs.prompt import shipped

if TYPE_CHECKING:
    from retinue.guard.permissions.call import JudgedCall
    from retinue.guard.permissions.shell_step import Step
    from retinue.runs.guard import Isolation


_KEPT_GIT_VARIABLES = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_SSL_", "GIT_SSH")


def without_git(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables of a calling git (from a hook or an alias) that would redirect the
    agent's git to the main checkout."""
    clean = {}
    for name, value in environment.items():
        if not name.startswith("GIT_") or name.startswith(_KEPT_GIT_VARIABLES):
            clean[name] = value
    return clean


_STARTED_AT_COMMIT = "the last commit. Uncommitted changes of the main checkout are not in it."
_STARTED_WITH_CHANGES = "the main checkout as it was when you started, uncommitted changes included."


def worktree_notice(top: Path, main: Path, *, from_dirty: bool = False) -> str:
    """Return the notice. `top` is the worktree, `main` the checkout it was made from. `from_dirty`: the worktree
    started with the uncommitted changes of `main`."""
    holds = _STARTED_WITH_CHANGES if from_dirty else _STARTED_AT_COMMIT
    text = shipped("worktree").replace("{{holds}}", holds)
    for name, path in (("top", top), ("main", main)):
        # The name of a folder may contain line breaks, which would end the sentence.
        text = text.replace(f"{{{{{name}}}}}", " ".join(str(path).splitlines()))
    return text


_AUTHOR_VARIABLES = ("GIT_AUTHOR_", "GIT_COMMITTER_")
_REDIRECTING_OPTIONS = ("-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--exec-path")
_HARMLESS_PATHS = ("/tmp", "/var/tmp", "/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty")  # noqa: S108 - names, not files


class PathCheckedTool:
    """A tool that runs only if `find_objections` finds nothing; `advice` tells the model how to correct the call."""

    def __init__(
        self, tool: Tool, find_objections: Callable[[Mapping[str, Any], ToolContext], Iterator[str]], advice: str
    ) -> None:
        self._tool = tool
        self._find_objections = find_objections
        self._advice = advice

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        why = next(self._find_objections(arguments, context), None)
        if why is None:
            return await self._tool.run(call_id, arguments, context)
        return failed(f"Not run: {why}. {self._advice}", ToolEffect(status="failed", denied=why))


def check_shell(tool: Tool, isolation: Isolation) -> PathCheckedTool:
    """Return a shell tool that refuses commands which leave the worktree."""
    advice = f"You work in {isolation.top}; rewrite the command so that it plainly stays there."
    return PathCheckedTool(tool, partial(shell_objections, isolation), advice)


def shell_objections(isolation: Isolation, arguments: Mapping[str, Any], context: ToolContext) -> Iterator[str]:
    """Yield the reasons why a command may not run; none if it visibly stays in the worktree."""
    folders = RunFolders.of(context.root, [str(isolation.top)], context.environment.get("HOME", ""))
    call = JudgedCall(ToolUse("bash", arguments), folders)
    text = " ".join(map(str, arguments.values()))
    if str(isolation.main) in text:
        yield f"it names the main checkout {isolation.main}, of which {isolation.top} is your copy"
    for doubt in call.script.doubts:
        yield f"it cannot be analysed ({doubt})"
    for base in call.bases:
        if not folders.inside(base):
            yield "it changes into a folder outside of the worktree, or into one that is computed"
    for path, writes in call.touched:
        # A file outside of every checkout does no harm to one.
        harmless = any(_inside(path, folder) for folder in _HARMLESS_PATHS) and ".." not in Path(path).parts
        if writes and not harmless and not _stays_inside(path, call):
            yield f"it may write to {shown(path)}, which is not in the worktree"
    for step in call.script.all_steps():
        yield from _git_objections(step, call)
        if starts_others(step):
            yield f"it is unknown what {step.name} will start"
        elif step.opaque and edited_paths(step) is None and not _names_author(step):
            yield f"it is unknown what it will do ({step.opaque})"


def _names_author(step: Step) -> bool:
    """Return whether a call of git sets only variables for the author."""
    names = [name for name, _ in step.assigned]
    return step.name == "git" and bool(names) and all(name.startswith(_AUTHOR_VARIABLES) for name in names)


def _stays_inside(path: str, call: JudgedCall) -> bool:
    # A command may change its folder, so the path must be inside from each of its folders.
    return all(call.folders.inside(path, base) for base in call.bases)


def _git_objections(step: Step, call: JudgedCall) -> Iterator[str]:
    for name, value in step.assigned:
        if name.startswith("GIT_") and not name.startswith(_AUTHOR_VARIABLES):
            yield f"it sets {name}={value}, which leads git elsewhere"
    words = step.words[1:]
    if step.name in ("export", "declare", "env", "typeset") and any(word.startswith("GIT_") for word in words):
        yield "it sets variables of git, which lead it elsewhere"
    if step.name != "git":
        return
    for number, word in enumerate(words):
        option, _, value = word.partition("=")
        # `-C FOLDER` as well as `--git-dir=FOLDER`.
        if option in _REDIRECTING_OPTIONS and not _stays_inside(value or next(iter(words[number + 1 :]), ""), call):
            yield f"`git {option}` leads out of the worktree"
    if "core.worktree" in " ".join(words):
        yield "it moves git's work tree"


_HARMLESS_EFFECTS = frozenset({"read", "ask", "spawn"})
_PATH_ARGUMENT = re.compile(r"(?i)(?:^|_)(?:path|paths|file|files|filename|filepath|dir|directory|folder|cwd|root)s?$")
MAX_ARGUMENT_DEPTH = 6


def check_foreign_tools(tools: tuple[Tool, ...], isolation: Isolation) -> tuple[Tool, ...]:
    """Return the tools; those that are not Retinue's check their path arguments."""
    advice = f"You work in {isolation.top}: give absolute paths in there."
    check = partial(objections, isolation)
    checked: list[Tool] = []
    for tool in tools:
        foreign = (
            tool.spec.name not in TOOL_EFFECTS and not tool.spec.effects <= _HARMLESS_EFFECTS and not tool.spec.ends_run
        )
        checked.append(PathCheckedTool(tool, check, advice) if foreign else tool)
    return tuple(checked)


def objections(isolation: Isolation, arguments: Mapping[str, Any], context: ToolContext) -> Iterator[str]:
    """Yield the reasons why the call could reach the main checkout."""
    top, main = os.path.realpath(isolation.top), os.path.realpath(isolation.main)
    for name, text in _text_arguments("", arguments, 0):
        if str(isolation.main) in text or main in text:
            # The path of the worktree may contain that of the main checkout as a part.
            where = os.path.realpath(text) if text.startswith("/") else text
            if not _inside(where, top):
                yield f"{name or 'an argument'} names the main checkout {isolation.main}"
        elif _PATH_ARGUMENT.search(name):
            path = text.removeprefix("file://")
            if not path.startswith("/"):
                yield f"{name} is a relative path, which the tool would resolve in the main checkout"
            elif _inside(os.path.realpath(path), main) and not _inside(os.path.realpath(path), top):
                yield f"{name} leads into the main checkout {isolation.main}"


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _text_arguments(name: str, value: object, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif depth > MAX_ARGUMENT_DEPTH:
        return
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _text_arguments(str(key), inner, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _text_arguments(name, inner, depth + 1)
