"""Handles text that the person sends from the prompt. Its first character decides where it goes.

/name words   a command of the app, or a command's file or skill, which goes to the main agent
!command      runs in the project's folder with the person's own rights; the model reads it with the next words
#note         goes into an instruction file, which the person chooses
other words   go to the main agent, or to the agent that `@name` addresses
"""

from __future__ import annotations

from retinue.app.instructions import append_note, note_files
from retinue.frontends.tui.editor.prompt import Prompt
from retinue.frontends.tui.frame import COMMANDS, Frame


def submit(app: Frame, text: str) -> None:
    """Run or send `text`, by its first character."""
    line = app.retinue.read_line(text, COMMANDS)
    match line.kind:
        case "command":
            app.run_command(line.name, line.text)
        case "unknown":
            app.tell(f"{line.text} See /help.", "warning")
        case "shell":
            app.shell.start(line.text)
        case "note":
            app.run_worker(add_note(app, line.text), group="note")
        case _:
            app.say(text)


async def ask_to_run(app: Frame, command: str, about: str) -> bool:
    """Ask whether a command line of a command file may run. Call this from a worker only."""
    choices = [("no", "n", "No, do not send it"), ("yes", "y", "Run it this once")]
    chosen: str | None = await app.open_screen("confirm", f"Run `{command}`?", choices, about)
    return chosen == "yes"


async def add_note(app: Frame, note: str) -> None:
    """Ask which instruction file gets the note, and add it there as a list item."""
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
