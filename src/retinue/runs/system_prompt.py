"""The system prompt of a run, assembled from settings, agent file, tools, parent and instruction files.

Instruction files (AGENTS.md, CLAUDE.md and what they import) are read from the user's own file, then from the
repository's root down to the working folder, so that the nearest comes last. `@path` on a line outside of code brings
in another file, five deep at most. A file of a project imports only from the project, the user's only from their home:
nobody's AGENTS.md sends a private key to a model. Everything is bounded; what was left out is said.

The agent that answers questions about Retinue also gets Retinue's documentation. In a wheel the pages are package data
(`retinue/docs`), in a checkout the folder `docs`. That agent reads them with its `read`; no other run
reaches the folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.core.events import RunCreated
from retinue.core.files import read_head
from retinue.core.permission import READ_ONLY
from retinue.core.spec import AgentSpec, ToolPolicy
from retinue.core.tool import Tool
from retinue.core.tool_names import TOOL_EFFECTS, canonical, split_entry
from retinue.runs.guard import STARTING
from retinue.runs.offer import policy_text
from retinue.runs.prompt import PromptPart, detect, prompt_parts, reads_instructions
from retinue.settings.places import home, pi_home, repository_root, retinue_home

if TYPE_CHECKING:
    from retinue.core.request import RunRequest
    from retinue.core.spec import PermissionMode
    from retinue.log.query import LogReader
    from retinue.runs.launch import Launch, LaunchPlan
    from retinue.runs.project import Project
    from retinue.runs.run import Run
    from retinue.settings.table import Settings


NAMES = ("AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "AGENTS.local.md", "CLAUDE.local.md")
DEEPEST = 5
LARGEST = 64 * 1024
"""Bytes of all files together."""

_HEAD = """# Instructions of the user and the project
They hold for all your work here; where they differ, the later one holds."""

_IMPORT = re.compile(r"(?:^|(?<=\s))@((?:~/|\.{0,2}/)?[\w./\-~]*[\w\-])")
_FENCE = re.compile(r"^\s*(```|~~~)")
_CODE = re.compile(r"`[^`]*`")


class _Reading(Struct):
    seen: set[str]
    left: int
    texts: list[str]
    notes: list[str]
    files: list[Path]


def project_instructions(cwd: Path, environment: Mapping[str, str], notes: list[str]) -> str:
    """The block for a main agent's prompt; empty where nobody has written anything. `notes` gets
    what was not taken."""
    texts = _read_instructions(cwd, environment, notes).texts
    if not texts:
        return ""
    return "\n\n".join([_HEAD, *texts])


def instruction_files(cwd: Path, environment: Mapping[str, str]) -> list[Path]:
    """Return the files that `project_instructions` takes, without those that they import."""
    return _read_instructions(cwd, environment, []).files


def _read_instructions(cwd: Path, environment: Mapping[str, str], notes: list[str]) -> _Reading:
    reading = _Reading(set(), LARGEST, [], notes, [])
    house = home(environment)
    for path in user_instruction_files(environment):
        within = house if house in path.parents else path.parent
        if _take(reading, path, within, "the user's instructions for all projects"):
            break
    root = repository_root(cwd)
    for folder in _folders(cwd, root):
        for name in NAMES:
            _take(reading, folder / name, root or folder, "instructions of this project")
    return reading


def user_instruction_files(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield where the user's instructions for all projects may be: the first file that exists is read."""
    yield retinue_home(environment) / "AGENTS.md"
    yield home(environment) / ".claude" / "CLAUDE.md"
    yield pi_home(environment) / "AGENTS.md"


def _folders(cwd: Path, root: Path | None) -> list[Path]:
    """From the root down. Without a repository only the nearest folder that has a file, and none
    that someone else could have put there."""
    if root is not None:
        above = [folder for folder in (cwd, *cwd.parents) if folder == root or root in folder.parents]
        return list(reversed(above))
    for folder in (cwd, *cwd.parents):
        if not _own(folder):
            break
        if any((folder / name).is_file() for name in NAMES):
            return [folder]
    return []


def _own(folder: Path) -> bool:
    try:
        found = folder.stat()
    except OSError:
        return False
    return not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o002)


def _take(reading: _Reading, path: Path, within: Path, what: str) -> bool:
    text = _text(reading, path, within, 0)
    if not text.strip():
        return False
    safe = text.strip().replace("</instructions_file", "< /instructions_file")
    reading.texts.append(f'<instructions_file path="{path}" kind="{what}">\n{safe}\n</instructions_file>')
    reading.files.append(path)
    return True


def _text(reading: _Reading, path: Path, within: Path, depth: int) -> str:
    """The text of a file with its imports in place. A file is taken once, by any name."""
    real = os.path.realpath(path)
    if real in reading.seen or not os.path.isfile(real):  # noqa: PTH113 - asked for each place, never raises
        return ""
    if not _below(real, os.path.realpath(within)):
        reading.notes.append(f"{path} is not read: it leads out of {within}")
        return ""
    reading.seen.add(real)
    if reading.left <= 0:
        reading.notes.append(f"{path} is not read: instruction files are longer than {LARGEST // 1024} KB together")
        return ""
    try:
        data = read_head(real, reading.left + 1)
    except OSError as error:
        reading.notes.append(f"{path} is not read: {error.strerror}")
        return ""
    if len(data) > reading.left:
        data = data[: reading.left]
        reading.notes.append(f"{path} is cut: instruction files are longer than {LARGEST // 1024} KB together")
    reading.left -= len(data)
    text = data.decode("utf-8", "replace").lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return _with_imports(reading, text, Path(real).parent, within, depth)


def _with_imports(reading: _Reading, text: str, folder: Path, within: Path, depth: int) -> str:
    if "@" not in text or depth >= DEEPEST:
        return text
    lines: list[str] = []
    fenced = False
    for line in text.split("\n"):
        lines.append(line)
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and "@" in line:
            for found in _IMPORT.finditer(_CODE.sub("", line)):
                target = _target(found[1], folder, within)
                inner = _text(reading, target, within, depth + 1) if target is not None else ""
                if inner.strip():
                    lines += [f"[{found[1]}]", inner.strip()]
    return "\n".join(lines)


def _target(written: str, folder: Path, within: Path) -> Path | None:
    """The file an `@word` means, if there is one: most are names of people or packages."""
    path = Path(written.removeprefix("~/")) if written.startswith("~/") else Path(written)
    base = within if written.startswith("~/") else folder
    try:
        full = base / path
        return full if full.is_file() else None
    except (OSError, ValueError):
        return None


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


GUIDE = "retinue-guide"
_PACKAGE = Path(__file__).parent.parent


def is_guide(spec: AgentSpec) -> bool:
    """Whether it is our own agent of that name, and no file that replaced it."""
    return spec.name == GUIDE and spec.source == "builtin"


@cache
def documentation_folder() -> Path | None:
    """The real path of the folder with the pages; None where they were left out."""
    for folder in (_PACKAGE / "docs", _PACKAGE.parent.parent / "docs"):
        if (folder / "commands.md").is_file():
            return Path(os.path.realpath(folder))
    return None


def in_documentation(path: str) -> Path | None:
    """The folder of the documentation, if the resolved `path` is a page in it."""
    folder = documentation_folder()
    inside = folder is not None and path.startswith(f"{folder}{os.sep}") and path.endswith(".md")
    return folder if inside else None


@cache
def documentation_block() -> str:
    """What the guide is told: where the pages are, and what each is about."""
    folder = documentation_folder()
    if folder is None:
        return "# Documentation\n\nThe pages of Retinue's documentation are not installed here; say so."
    lines = [f"- {page}: {_title(page)}" for page in sorted(folder.glob("*.md"))]
    told = f"Retinue's documentation is in {folder}. Read the page that fits with its full path before you answer:"
    return "\n".join(["# Documentation", "", told, *lines])


def _title(page: Path) -> str:
    """Its first heading, and the headings below it."""
    heads = [line for line in page.read_text("utf-8").splitlines() if line.startswith(("# ", "## "))]
    title = heads[0].removeprefix("# ") if heads else page.stem
    below = [head.removeprefix("## ") for head in heads[1:7]]
    return f"{title} ({'; '.join(below)})" if below else title


def assemble(plan: LaunchPlan) -> tuple[PromptPart, ...]:
    """Return the parts of the system prompt: what capabilities put into the plan, and what every run is told.
    Reads files and makes none; what could not be used is noted."""
    request, project, spec, parent = plan.request, plan.project, plan.spec, plan.above
    place = ("environment", request.cwd)
    environment = project.round.get(place) or project.round.keep(place, detect(request.cwd))
    if is_guide(spec):
        plan.tell("skills", documentation_block())
    if plan.settings.instructions_enabled and reads_instructions(spec, request.depth, parent):
        instructions, not_taken = _instructions(request.cwd, project)
        plan.notes += not_taken
        plan.tell("instructions", instructions)
    if request.depth == 0 and plan.settings.inject_delegation_policy and STARTING & plan.tools.keys():
        plan.tell("delegation", policy_text(project, request))
    plan.tell("mode", _mode_line(plan.mode, project, plan.tools))
    bridge = "" if STARTING & plan.tools.keys() else _NO_AGENTS
    return prompt_parts(spec, environment, parent=parent, depth=request.depth, extras=plan.extras, bridge=bridge)


def _instructions(cwd: Path, project: Project) -> tuple[str, list[str]]:
    """The instruction files for runs in `cwd`, and what was not taken of them. Read once for runs
    that start together."""

    def read() -> tuple[str, list[str]]:
        notes: list[str] = []
        return project_instructions(cwd, project.environment, notes), notes

    return project.round.once(("instructions", cwd), read)


_NO_AGENTS = "\n- You have no tool to start agents: what is said above about delegation is not for you."
_NOBODY = (
    "nobody is there who could answer. Go on as you think best and say what you assumed; if you cannot, end with "
    "the question as your answer."
)
_UNATTENDED: frozenset[PermissionMode] = frozenset({"default", "acceptEdits", "plan"})


def _mode_line(mode: PermissionMode, project: Project, tools: Mapping[str, Tool]) -> str:
    """What the run must know of its mode before it meets a refusal."""
    lines = []
    if mode == "plan" and "exit_plan" in tools:
        lines.append(
            "Plan mode: you only read until a plan of yours is approved. Study what you need, then hand it in with "
            "exit_plan."
        )
    elif mode == "plan":
        lines.append("Plan mode: you only read. Study what you need, then end with the plan as your answer.")
    if mode in _UNATTENDED and not project.can_ask:
        lines.append(
            "Nobody can approve anything here: what does not run unasked is denied. Say what you could not do."
        )
    return "\n".join(lines)


def prompt_above(request: RunRequest, project: Project, parent: Run | None) -> str | None:
    """The prompt of the run that starts this one, as far as this one may know it: an agent that
    omits the files with instructions does not get them through its parent either."""
    if parent is None:
        return None
    spec, above = request.spec, parent.launch
    system = above.system
    if above.inherited and above.request.spec.name == spec.name:
        # A twin of a twin: nothing is said twice.
        system = system[: above.inherited]
    if not spec.omit_instructions or spec.prompt_mode != "append":
        return system
    told, _ = _instructions(above.request.cwd, project)
    return system.replace(told, "") if told else system


def inherited(parts: tuple[PromptPart, ...], parent: Run | None) -> int:
    """How many characters of the prompt are the beginning of the parent's."""
    if parent is None or not parts or parts[0].name != "parent" or not parent.launch.system.startswith(parts[0].text):
        return 0
    return len(parts[0].text)


def kept(launch: Launch) -> Mapping[str, object]:
    """The prompt for the log: of a twin without what is its parent's, which the log has there."""
    return {"inherits": launch.inherited, "text": launch.system[launch.inherited :]}


def restored(reader: LogReader, created: RunCreated | None, parent_id: str | None) -> str | None:
    """The prompt that a run had, byte by byte, so that what it goes on with extends what a
    provider has seen. None for a run whose log does not tell."""
    found = created.options.system if created is not None else None
    if not isinstance(found, Mapping) or not isinstance(found.get("text"), str):
        return None
    text: str = found["text"]
    if not found.get("inherits"):
        return text
    if parent_id is None:
        return None
    first = next((event for event in reader.events(parent_id, limit=1)), None)
    above = first.body if first is not None and isinstance(first.body, RunCreated) else None
    base = restored(reader, above, first.parent_id if first is not None else None)
    if base is None:
        return None
    # Logs before 0.2 say only that it does: all of it.
    inherits = found["inherits"]
    return (base if inherits is True else base[:inherits]) + text


_STARTING = ("Agent", "subagent", "dispatch_agent", "get_subagent_result", "steer_subagent")
_SWITCHES = {
    **dict.fromkeys(("web_search", "fetch_content", "get_search_content"), "web_enabled"),
    **dict.fromkeys(_STARTING, "subagents_enabled"),
    "lsp": "lsp_enabled",
    "convert_content": "convert_enabled",
}
"""The settings that take tools from every run."""


def _switched_off(run: Run, settings: Settings, name: str) -> str:
    """Return which setting or limit takes a tool from a run, whatever its file says; empty for none."""
    switch = _SWITCHES.get(name, "")
    if switch and not getattr(settings, switch):
        return f"the setting {getattr(type(settings), switch).name} is false."
    if name in _STARTING and run.depth >= settings.max_subagent_depth:
        return f"agents may be nested {settings.max_subagent_depth} deep at most, and you are at that depth."
    return ""


def _is_given(policy: ToolPolicy, name: str) -> bool:
    """Return whether the file of an agent gives it a tool."""
    if name not in TOOL_EFFECTS:
        # What a plugin or a server would bring is nothing that a file gives by leaving its tools open.
        return False
    allow = ("*",) if policy.allow is None else policy.allow
    denied = {tool for entry in policy.deny if "(" not in entry for tool in canonical(entry)}
    return name not in denied and any(entry == "*" or name in canonical(split_entry(entry)[0]) for entry in allow)


def why_absent(run: Run, name: str) -> str:
    """Why a run has not got a tool that exists, for its model; empty where its file decided it."""
    from retinue.tools.tool_search import ToolSearchTool

    project = run.project
    if any(isinstance(tool, ToolSearchTool) and tool.holds(name) for tool in run.tools):
        return f"it must be loaded first: call tool_search with the query select:{name}."
    if name in project.unavailable:
        return project.unavailable[name]
    if name in ("ask_parent", "ask_user") and not project.can_ask:
        return _NOBODY
    switched_off = _switched_off(run, project.settings.settings, name)
    if switched_off:
        return switched_off
    if not run.readonly or TOOL_EFFECTS.get(name, READ_ONLY) <= READ_ONLY:
        return "this session does not offer it." if _is_given(run.launch.request.spec.tools, name) else ""
    if run.mode == "plan":
        return "this run is in plan mode and changes nothing."
    return "this run is read-only."
