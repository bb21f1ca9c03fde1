"""The system prompt of a run, assembled from settings, agent file, tools, parent and instruction files.

Instruction files (AGENTS.md, CLAUDE.md and their imports) are read in this order: the user's own file, then from the
repository's root down to the working folder, so that the nearest comes last. `@path` on a line outside of code imports
another file, up to five levels deep. Files of a project import only from the project, and the user's file only from the
user's home, so that no AGENTS.md can send a private key to a model. The total size is limited; omissions are noted.

The agent that answers questions about Retinue also gets Retinue's documentation. In a wheel the pages are package data
(`retinue/docs`), in a checkout the folder `docs`. That agent reads them with its tool `read`; no other run can access
the folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.events import RunCreated
from retinue.core.files import read_head
from retinue.core.permission import READ_ONLY
from retinue.core.spec import AgentSpec, ToolPolicy
from retinue.core.tool import Tool
from retinue.core.tool_names import TOOL_EFFECTS, canonical, split_entry
from retinue.runs.guard import STARTING
from retinue.runs.offer import policy_text
from retinue.runs.prompt import PromptPart, describe_environment, prompt_parts, reads_instructions
from retinue.settings.places import home, pi_home, repository_root, retinue_home

if TYPE_CHECKING:
    from retinue.core.request import RunRequest
    from retinue.core.spec import PermissionMode
    from retinue.log.query import LogReader
    from retinue.runs.launch import Launch, LaunchPlan
    from retinue.runs.project import Project
    from retinue.runs.run import Run
    from retinue.settings.table import Settings


INSTRUCTION_FILE_NAMES = ("AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "AGENTS.local.md", "CLAUDE.local.md")
MAX_IMPORT_DEPTH = 5
MAX_INSTRUCTION_BYTES = 64 * 1024
"""The size of all files together."""

_INSTRUCTIONS_HEADING = """# Instructions of the user and the project
They hold for all your work here; where they differ, the later one holds."""

_IMPORT = re.compile(r"(?:^|(?<=\s))@((?:~/|\.{0,2}/)?[\w./\-~]*[\w\-])")
_FENCE = re.compile(r"^\s*(```|~~~)")
_CODE = re.compile(r"`[^`]*`")


class InstructionReader:
    """Reads the instruction files for one folder. Each file is read once, by whatever name it is reached."""

    def __init__(self, notes: list[str]) -> None:
        """`notes` receives a sentence about each file that was not read completely."""
        self.notes = notes
        self.texts: list[str] = []
        self.files: list[Path] = []
        self._read: set[str] = set()
        self._remaining_bytes = MAX_INSTRUCTION_BYTES

    def read_all(self, cwd: Path, environment: Mapping[str, str]) -> None:
        """Read the user's instructions, and those of the project of `cwd`."""
        user_home = home(environment)
        for path in user_instruction_files(environment):
            within = user_home if user_home in path.parents else path.parent
            if self._add(path, within, "the user's instructions for all projects"):
                break
        root = repository_root(cwd)
        for folder in _folders(cwd, root):
            for name in INSTRUCTION_FILE_NAMES:
                self._add(folder / name, root or folder, "instructions of this project")

    def _add(self, path: Path, within: Path, kind: str) -> bool:
        text = self._read_file(path, within, 0)
        if not text.strip():
            return False
        safe = text.strip().replace("</instructions_file", "< /instructions_file")
        self.texts.append(f'<instructions_file path="{path}" kind="{kind}">\n{safe}\n</instructions_file>')
        self.files.append(path)
        return True

    def _read_file(self, path: Path, within: Path, depth: int) -> str:
        """Return the text of a file with the text of its imports; empty if it was read before."""
        real = os.path.realpath(path)
        if real in self._read or not os.path.isfile(real):  # noqa: PTH113 - called for many paths, never raises
            return ""
        if not _is_below(real, os.path.realpath(within)):
            self.notes.append(f"{path} is not read: it leads out of {within}")
            return ""
        self._read.add(real)
        limit = f"instruction files are longer than {MAX_INSTRUCTION_BYTES // 1024} KB together"
        if self._remaining_bytes <= 0:
            self.notes.append(f"{path} is not read: {limit}")
            return ""
        try:
            data = read_head(real, self._remaining_bytes + 1)
        except OSError as error:
            self.notes.append(f"{path} is not read: {error.strerror}")
            return ""
        if len(data) > self._remaining_bytes:
            data = data[: self._remaining_bytes]
            self.notes.append(f"{path} is cut: {limit}")
        self._remaining_bytes -= len(data)
        text = data.decode("utf-8", "replace").lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        return self._with_imports(text, Path(real).parent, within, depth)

    def _with_imports(self, text: str, folder: Path, within: Path, depth: int) -> str:
        if "@" not in text or depth >= MAX_IMPORT_DEPTH:
            return text
        lines: list[str] = []
        fenced = False
        for line in text.split("\n"):
            lines.append(line)
            if _FENCE.match(line):
                fenced = not fenced
            elif not fenced and "@" in line:
                for match in _IMPORT.finditer(_CODE.sub("", line)):
                    target = _target(match[1], folder, within)
                    imported = self._read_file(target, within, depth + 1).strip() if target is not None else ""
                    if imported:
                        lines += [f"[{match[1]}]", imported]
        return "\n".join(lines)


def project_instructions(cwd: Path, environment: Mapping[str, str], notes: list[str]) -> str:
    """Return the section of a main agent's prompt with the instruction files; empty if there are none. `notes` receives
    a sentence about each file that was not read completely."""
    reader = InstructionReader(notes)
    reader.read_all(cwd, environment)
    return "\n\n".join([_INSTRUCTIONS_HEADING, *reader.texts]) if reader.texts else ""


def instruction_files(cwd: Path, environment: Mapping[str, str]) -> list[Path]:
    """Return the files that `project_instructions` reads, without their imports."""
    reader = InstructionReader([])
    reader.read_all(cwd, environment)
    return reader.files


def user_instruction_files(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the possible paths of the user's instructions for all projects. The first existing file is read."""
    yield retinue_home(environment) / "AGENTS.md"
    yield home(environment) / ".claude" / "CLAUDE.md"
    yield pi_home(environment) / "AGENTS.md"


def _folders(cwd: Path, root: Path | None) -> list[Path]:
    """Return the folders from the repository's root down to `cwd`. Without a repository, return only the nearest folder
    with a file, unless another user could have written it."""
    if root is not None:
        folders = [folder for folder in (cwd, *cwd.parents) if folder == root or root in folder.parents]
        return list(reversed(folders))
    for folder in (cwd, *cwd.parents):
        if not _is_own(folder):
            break
        if any((folder / name).is_file() for name in INSTRUCTION_FILE_NAMES):
            return [folder]
    return []


def _is_own(folder: Path) -> bool:
    try:
        status = folder.stat()
    except OSError:
        return False
    return not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o002)


def _target(written: str, folder: Path, within: Path) -> Path | None:
    """Return the file that an `@word` names; None for most words, which are names of people or packages."""
    path = Path(written.removeprefix("~/")) if written.startswith("~/") else Path(written)
    base = within if written.startswith("~/") else folder
    try:
        full = base / path
        return full if full.is_file() else None
    except (OSError, ValueError):
        return None


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


GUIDE = "retinue-guide"
_PACKAGE = Path(__file__).parent.parent


def is_guide(spec: AgentSpec) -> bool:
    """Return whether it is the built-in agent with that name, and not a file that replaces it."""
    return spec.name == GUIDE and spec.source == "builtin"


@cache
def documentation_folder() -> Path | None:
    """Return the real path of the folder with the pages; None if they are not installed."""
    for folder in (_PACKAGE / "docs", _PACKAGE.parent.parent / "docs"):
        if (folder / "commands.md").is_file():
            return Path(os.path.realpath(folder))
    return None


def in_documentation(path: str) -> Path | None:
    """Return the folder of the documentation if the resolved `path` is one of its pages; None otherwise."""
    folder = documentation_folder()
    inside = folder is not None and path.startswith(f"{folder}{os.sep}") and path.endswith(".md")
    return folder if inside else None


@cache
def documentation_block() -> str:
    """Return the section of the guide's prompt that lists the pages with their titles."""
    folder = documentation_folder()
    if folder is None:
        return "# Documentation\n\nThe pages of Retinue's documentation are not installed here; say so."
    lines = [f"- {page}: {_title(page)}" for page in sorted(folder.glob("*.md"))]
    order = f"Retinue's documentation is in {folder}. Read the page that fits with its full path before you answer:"
    return "\n".join(["# Documentation", "", order, *lines])


def _title(page: Path) -> str:
    """Return the first heading of a page, and the headings of the next level."""
    headings = [line for line in page.read_text("utf-8").splitlines() if line.startswith(("# ", "## "))]
    title = headings[0].removeprefix("# ") if headings else page.stem
    below = [heading.removeprefix("## ") for heading in headings[1:7]]
    return f"{title} ({'; '.join(below)})" if below else title


def assemble(plan: LaunchPlan) -> tuple[PromptPart, ...]:
    """Return the parts of the system prompt: the sections of capabilities, and those of every run. Files are only read;
    unusable ones are noted in the plan."""
    request, project, spec, parent = plan.request, plan.project, plan.spec, plan.above
    environment = project.round.once(("environment", request.cwd), lambda: describe_environment(request.cwd))
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
    return prompt_parts(spec, environment, parent=parent, depth=request.depth, sections=plan.sections, bridge=bridge)


def _instructions(cwd: Path, project: Project) -> tuple[str, list[str]]:
    """Return the instructions for runs in `cwd`, and notes about files that were not read completely. Runs that start
    together read them once."""

    def read() -> tuple[str, list[str]]:
        notes: list[str] = []
        return project_instructions(cwd, project.environment, notes), notes

    return project.round.once(("instructions", cwd), read)


_NO_AGENTS = "\n- You have no tool to start agents: the rules above about delegation are not for you."
_NOBODY_ANSWERS = (
    "nobody is there to answer. Continue as you think best and state what you assumed; if you cannot, end with the "
    "question as your answer."
)
_ASKING_MODES: frozenset[PermissionMode] = frozenset({"default", "acceptEdits", "plan"})


def _mode_line(mode: PermissionMode, project: Project, tools: Mapping[str, Tool]) -> str:
    """Return what the model must know about its permission mode in advance."""
    lines = []
    if mode == "plan" and "exit_plan" in tools:
        lines.append(
            "Plan mode: you only read until a plan of yours is approved. Study what you need, then hand it in with "
            "exit_plan."
        )
    elif mode == "plan":
        lines.append("Plan mode: you only read. Study what you need, then end with the plan as your answer.")
    if mode in _ASKING_MODES and not project.can_ask:
        lines.append(
            "Nobody can approve anything here: calls that need approval are denied. State what you could not do."
        )
    return "\n".join(lines)


def prompt_above(request: RunRequest, project: Project, parent: Run | None) -> str | None:
    """Return the parent's prompt for a run's own prompt: without instruction files if the agent omits them."""
    if parent is None:
        return None
    spec, above = request.spec, parent.launch
    system = above.system
    if above.inherited and above.request.spec.name == spec.name:
        # For a twin of a twin, remove what would be repeated.
        system = system[: above.inherited]
    if not spec.omit_instructions or spec.prompt_mode != "append":
        return system
    instructions, _ = _instructions(above.request.cwd, project)
    return system.replace(instructions, "") if instructions else system


def inherited(parts: tuple[PromptPart, ...], parent: Run | None) -> int:
    """Return how many characters at the start of the prompt are the start of the parent's."""
    if parent is None or not parts or parts[0].name != "parent" or not parent.launch.system.startswith(parts[0].text):
        return 0
    return len(parts[0].text)


def recorded_prompt(launch: Launch) -> Mapping[str, object]:
    """Return the prompt for the log, without the part that is recorded with the parent."""
    return {"inherits": launch.inherited, "text": launch.system[launch.inherited :]}


def restored_prompt(reader: LogReader, created: RunCreated | None, parent_id: str | None) -> str | None:
    """Return the exact prompt that a run had, so that its next request extends the provider's cache. None if the log
    does not have it."""
    recorded = created.options.system if created is not None else None
    if not isinstance(recorded, Mapping) or not isinstance(recorded.get("text"), str):
        return None
    text: str = recorded["text"]
    if not recorded.get("inherits"):
        return text
    if parent_id is None:
        return None
    first = next((event for event in reader.events(parent_id, limit=1)), None)
    parent = first.body if first is not None and isinstance(first.body, RunCreated) else None
    base = restored_prompt(reader, parent, first.parent_id if first is not None else None)
    if base is None:
        return None
    # Logs before 0.2 have only True, which means all of it.
    inherits = recorded["inherits"]
    return (base if inherits is True else base[:inherits]) + text


_DELEGATION_TOOLS = ("Agent", "subagent", "dispatch_agent", "get_subagent_result", "steer_subagent")
_TOOL_SETTINGS = {
    **dict.fromkeys(("web_search", "fetch_content", "get_search_content"), "web_enabled"),
    **dict.fromkeys(_DELEGATION_TOOLS, "subagents_enabled"),
    "lsp": "lsp_enabled",
    "convert_content": "convert_enabled",
}
"""The settings that can disable tools for all runs."""


def _explain_disabled(run: Run, settings: Settings, name: str) -> str:
    """Return the setting or limit that disables a tool for a run, whatever its file says; empty for none."""
    setting = _TOOL_SETTINGS.get(name, "")
    if setting and not getattr(settings, setting):
        return f"the setting {getattr(type(settings), setting).name} is false."
    if name in _DELEGATION_TOOLS and run.depth >= settings.max_subagent_depth:
        return f"agents may be nested {settings.max_subagent_depth} deep at most, and you are at that depth."
    return ""


def _is_allowed_by_file(policy: ToolPolicy, name: str) -> bool:
    """Return whether the file of an agent allows it a tool."""
    if name not in TOOL_EFFECTS:
        # A file without a list of tools does not allow tools of plugins and servers.
        return False
    allow = ("*",) if policy.allow is None else policy.allow
    denied = {tool for entry in policy.deny if "(" not in entry for tool in canonical(entry)}
    return name not in denied and any(entry == "*" or name in canonical(split_entry(entry)[0]) for entry in allow)


def why_absent(run: Run, name: str) -> str:
    """Return why a run does not have an existing tool, in words for its model; empty if its file decides it."""
    from retinue.tools.tool_search import ToolSearchTool

    project = run.project
    if any(isinstance(tool, ToolSearchTool) and tool.holds(name) for tool in run.tools):
        return f"it must be loaded first: call tool_search with the query select:{name}."
    if name in project.unavailable:
        return project.unavailable[name]
    if name in ("ask_parent", "ask_user") and not project.can_ask:
        return _NOBODY_ANSWERS
    disabled = _explain_disabled(run, project.settings.settings, name)
    if disabled:
        return disabled
    if not run.readonly or TOOL_EFFECTS.get(name, READ_ONLY) <= READ_ONLY:
        return "this session does not offer it." if _is_allowed_by_file(run.launch.request.spec.tools, name) else ""
    if run.mode == "plan":
        return "this run is in plan mode and changes nothing."
    return "this run is read-only."
