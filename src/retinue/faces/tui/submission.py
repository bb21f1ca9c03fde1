"""What becomes of what a person sends from the prompt, by its first sign.

/name words   a command of the app, or a command's file or skill, which goes to the main agent
!command      runs in the project's folder with the person's own rights; the model reads it with the next words
#note         goes into an instruction file, which the person chooses
other words   go to the main agent, or to the agent that `@name` addresses
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retinue.core.files import read_text
from retinue.faces.tui.editor.prompt import Prompt
from retinue.faces.tui.frame import COMMANDS
from retinue.runs.person_prompt import explain_unknown, parse_call
from retinue.runs.system_prompt import user_instruction_files

# The app, which is not named here: it imports this module.
App = Any


def submit(app: App, text: str) -> None:
    """Do what the person means by `text`."""
    called = parse_call(text)
    if called is not None and called[0] in COMMANDS:
        app.run_command(*called)
    elif called is not None:
        _call(app, text, called[0])
    elif text.startswith("!") and text[1:].strip():
        app.shell.start(text[1:].strip())
    elif text.startswith("#") and "\n" not in text and text.strip("# "):
        app.run_worker(add_note(app, text.lstrip("#").strip()), group="note")
    else:
        app.say(text)


def _call(app: App, text: str, name: str) -> None:
    problem = explain_unknown(name, app.project.prompt_commands(), COMMANDS)
    if problem is None:
        app.say(text)
    else:
        app.tell(f"{problem} See /help.", "warning")


async def ask_to_run(app: App, command: str, about: str) -> bool:
    """Ask whether a command line of a command's file may run. From a worker only."""
    choices = [("no", "n", "No, do not send it"), ("yes", "y", "Run it this once")]
    chosen: str | None = await app.open_screen("confirm", f"Run `{command}`?", choices, about)
    return chosen == "yes"


async def add_note(app: App, note: str) -> None:
    """Ask which instruction file gets the note, and add it there as a line of a list."""
    files = note_files(app.project.cwd, app.project.environment)
    choices = [(str(number), str(number), words) for number, (_, words) in enumerate(files, 1)]
    chosen = await app.open_screen("confirm", "Which file gets this note?", choices, note)
    if chosen is None:
        app.query_one(Prompt).put(f"#{note}")
        return
    path = files[int(chosen) - 1][0]
    try:
        append_note(path, note)
    except OSError as error:
        app.tell(f"The note was not saved: {path}: {error.strerror or error}.", "error")
        app.query_one(Prompt).put(f"#{note}")
        return
    app.tell(f"Noted in {path}. Agents that start from now on read it.")


def note_files(cwd: Path, environment: Mapping[str, str]) -> list[tuple[Path, str]]:
    """Return the files that a note can go into, the one of the project first, each with words for the list."""
    shared = cwd / "AGENTS.md"
    if not shared.exists() and (cwd / "CLAUDE.md").exists():
        shared = cwd / "CLAUDE.md"
    local = cwd / shared.name.replace(".md", ".local.md")
    # Of the user's files only the first that exists is read.
    candidates = list(user_instruction_files(environment))
    own = next((path for path in candidates if path.exists()), candidates[0])
    return [
        (shared, f"{shared.name}: of this project, for all who work on it"),
        (local, f"{local.name}: of this project, for you alone (keep it out of git)"),
        (own, f"{own}: yours, for all projects"),
    ]


def append_note(path: Path, note: str) -> None:
    """Add a line to a file, which is made if there is none."""
    before = read_text(path) if path.exists() else ""
    gap = "" if not before or before.endswith("\n") else "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{before}{gap}- {note}\n", encoding="utf-8")
