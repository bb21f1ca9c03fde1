"""`retinue`, the terminal app, and `retinue attach`.

The app works in a child process, while the process that the shell started only waits. So the app
can leave the terminal and continue its agents while the shell gets its prompt back. If the app
crashes or is killed, the waiting process restores the terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from retinue.app.conversation import farewell
from retinue.app.lookup import newest_run, project_of
from retinue.app.output import RESET_TERMINAL, send_control
from retinue.app.retinue import Retinue
from retinue.core.delegation import LIVE
from retinue.core.run_state import RunState
from retinue.core.spec import PermissionMode
from retinue.errors import StateError, UsageError
from retinue.frontends.cli.console.questions import ask_for_trust
from retinue.frontends.cli.main import at_terminal, guarded_run
from retinue.frontends.cli.project import add_cwd, folder, locate, project, say
from retinue.frontends.cli.run import add_newest, add_session_flags, add_trust, newest_conversation, read_session_flags

if TYPE_CHECKING:
    from retinue.app.retinue import Retinue

LET_GO_BYTE = b"k"


class Host:
    """The app's side of the connection to the waiting process."""

    def __init__(self, channel: int) -> None:
        self._channel = channel

    def watch(self, gone: Callable[[], None]) -> None:
        """Call `gone` when the waiting process has died, so that nobody is at the terminal."""
        import asyncio

        loop = asyncio.get_running_loop()

        def look() -> None:
            if not os.read(self._channel, 1):
                loop.remove_reader(self._channel)
                gone()

        loop.add_reader(self._channel, look)

    def let_go(self) -> None:
        """Return the terminal to the shell. Further output of this process is lost."""
        import asyncio

        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().remove_reader(self._channel)
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
        os.write(self._channel, LET_GO_BYTE)
        os.close(self._channel)


def hosted(work: Callable[[Host | None], int]) -> int:
    """Run `work` in a child process and return its exit code, or 0 as soon as it has left the terminal. Without fork,
    run it here with None as its host."""
    if not hasattr(os, "fork"):
        return work(None)
    import socket

    before = _terminal()
    ours, theirs = socket.socketpair()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    child = os.fork()
    if child == 0:
        ours.close()
        os._exit(_child(work, Host(theirs.detach())))
    theirs.close()
    return _wait(child, ours.detach(), before)


def _child(work: Callable[[Host | None], int], host: Host) -> int:
    try:
        code = guarded_run(lambda: work(host))
    except BaseException:  # noqa: BLE001 - this process ends here, whatever it was
        import traceback

        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code


def _wait(child: int, channel: int, before: Any) -> int:
    # Ctrl-C reaches both processes. Only the app handles it, and this process must outlive the app.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: _pass_on(child, received))
    watch = _ChildWatch(child)
    signal.signal(signal.SIGCHLD, lambda *_: watch.look())
    while True:
        try:
            signal_byte = os.read(channel, 1)
            break
        except InterruptedError:
            continue
    if signal_byte == LET_GO_BYTE:
        return 0
    with contextlib.suppress(ChildProcessError):
        # Fails if its end was noticed already.
        watch.status = os.waitpid(child, 0)[1]
    status = watch.status
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        _restore(before)
        name = signal.Signals(-code).name
        print(f"retinue: the app was ended by {name}; continue with: retinue --continue", file=sys.stderr)
        return 128 - code
    return code


class _ChildWatch:
    """Follows the app into a stop: Ctrl+Z stops the app after it has restored the terminal, then this process, so that
    the shell gets its prompt back. `fg` continues both."""

    def __init__(self, child: int) -> None:
        self._child = child
        self.status = 0

    def look(self) -> None:
        with contextlib.suppress(ChildProcessError):
            pid, status = os.waitpid(self._child, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                os.kill(os.getpid(), signal.SIGSTOP)
            elif pid:
                self.status = status


def _pass_on(child: int, received: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, received)


def _terminal() -> Any:
    try:
        import termios

        return termios.tcgetattr(0)
    except (ImportError, OSError, ValueError):
        return None
    except Exception as error:
        # `termios.error` is no OSError, and cannot be named where termios cannot be imported.
        if type(error).__name__ != "error":
            raise
        return None


def _restore(before: Any) -> None:
    with contextlib.suppress(OSError):
        send_control(sys.stderr, RESET_TERMINAL)
    if before is not None:
        import termios

        with contextlib.suppress(termios.error):
            termios.tcsetattr(0, termios.TCSADRAIN, before)


def configure_app(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", metavar="PROMPT", nargs="?", help="the first message")
    add_newest(parser)
    parser.add_argument(
        "-r",
        "--resume",
        metavar="ID",
        nargs="?",
        const="",
        help="continue an earlier conversation; without ID choose from a list",
    )
    parser.add_argument("--agent", metavar="NAME", help="talk to this agent instead of the main one")
    parser.add_argument("--model", metavar="M", help="provider/model or a part of its name: retinue models list")
    parser.add_argument("--thinking", metavar="LEVEL", help="off, minimal, low, medium, high, xhigh or max")
    parser.add_argument("--permission-mode", choices=get_args(PermissionMode), help="as for retinue run")
    add_cwd(parser, "work in this folder instead of the current one")
    parser.add_argument("--agents", metavar="JSON", help="more agents, as Claude Code's --agents takes them")
    add_trust(parser)
    add_session_flags(parser)


def execute_app(args: argparse.Namespace) -> int:
    """The terminal app: talk to the main agent, watch its agents, and step in.

        retinue
        retinue "Why does the login test fail?"
        retinue --continue                    (the newest conversation of this project)
        retinue --resume                      (choose one from a list)
        retinue --resume 3f2a9c1d
        retinue --agent reviewer --model anthropic/claude-sonnet-4-5

    Inside, F1 shows the keys and /help the commands.
    """
    _check_terminal("retinue -p 'What to do'")
    if args.newest and args.resume is not None:
        raise UsageError("--continue and --resume exclude each other.", remedy="--continue is the newest conversation.")
    cwd = folder(args.cwd)
    # Before the app takes the screen.
    trust = args.trust or ask_for_trust(cwd)
    return hosted(lambda host: asyncio.run(_talk(args, cwd, trust, host)))


async def _talk(args: argparse.Namespace, cwd: Path, trust: bool, host: Host | None) -> int:
    async with Retinue(
        cwd, model=args.model, agents=args.agents, permission_mode=args.permission_mode, trust=trust
    ) as retinue:
        retinue.set_options(read_session_flags(args))
        options: dict[str, Any] = {"agent": args.agent, "first_model": True}
        if args.append_system_prompt:
            options["append_system_prompt"] = args.append_system_prompt
        if args.thinking:
            options["thinking"] = args.thinking
        if args.prompt:
            options["first_words"] = args.prompt
        if args.newest or args.resume is not None:
            options |= _find_conversation(retinue, args.resume)
        return await show(retinue, host, args.cwd, **options)


def _find_conversation(retinue: Retinue, run_id: str | None) -> dict[str, Any]:
    """Return the app's options to continue a conversation: `run_id` is None for the newest one, empty to let the person
    choose. Raise StateError if there is none."""
    if run_id:
        return {"resume": retinue.supervisor.project.log.reader.run(run_id).id}
    newest = newest_conversation(retinue)
    if run_id is None or sum(row.depth == 0 for row in retinue.runs) == 1:
        return {"resume": newest}
    return {"choose": True}


def _check_terminal(without: str) -> None:
    """Raise UsageError if the app cannot be shown. `without` is a command that needs no terminal."""
    if not at_terminal():
        raise UsageError("The terminal app needs a terminal.", remedy=f"Without one: {without}")
    if os.environ.get("TERM") == "dumb":
        raise UsageError(
            "This terminal cannot show the app, because it cannot move the cursor (TERM=dumb).",
            remedy=f"Without the app: {without}",
        )


async def show(retinue: Retinue, host: Host | None, elsewhere: str | None = None, **options: Any) -> int:
    """Show the app until the person leaves it. Runs that should continue do so here, without the terminal. `elsewhere`
    is the folder of the project if it differs from the shell's."""
    from retinue.frontends.tui import run_app

    how_left, main_id = await run_app(retinue, host=host, **options)
    if main_id is not None:
        await retinue.supervisor.project.log.flush()
        await _say_farewell(retinue, main_id, elsewhere)
    if how_left == "keep" and host is not None:
        live = sum(node.live for node in retinue.supervisor.members.values())
        what = "1 run goes" if live == 1 else f"{live} runs go"
        say(f"retinue: {what} on in process {os.getpid()}; their questions wait in the inbox.")
        say("  Watch: retinue attach. Stop: retinue runs stop --all")
        # A person may answer later, so questions are not denied.
        retinue.supervisor.project.inbox_service.attended += 1
        host.let_go()
        await retinue.wait_all()
    return 0


async def _say_farewell(retinue: Retinue, main_id: str, elsewhere: str | None) -> None:
    """Print the last exchange on the ordinary screen, and how to continue the conversation."""
    width = shutil.get_terminal_size().columns
    for line in await retinue.supervisor.project.log.read(partial(farewell, run_id=main_id, width=width)):
        say(line)
    where = f" --cwd {shlex.quote(elsewhere)}" if elsewhere else ""
    say(f"\nResume with: retinue --resume {main_id[:8]}{where}")


def configure_attach(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", nargs="?", help="id of a run, a prefix of it, or @name")
    add_cwd(parser)


def execute_attach(args: argparse.Namespace) -> int:
    """Watch runs of another process in the terminal app, and step in.

        retinue attach                 the newest run of this project that is at work
        retinue attach 3f2a9c1d        this one, of any project

    Your messages are sent to the run; `@name words` goes to one of its agents. /stop stops it.
    Leaving the app does not affect the run. Its questions can be answered in the inbox (F2).
    """
    state, row = _find_run(args)
    _check_terminal(f"retinue runs tail {row.id[:8]}")
    return hosted(lambda host: asyncio.run(_watch(project_of(state, row), row, host)))


async def _watch(cwd: Path, row: RunState, host: Host | None) -> int:
    options = {"resume": row.root_id}
    if row.id != row.root_id:
        options["viewed"] = row.id
    elsewhere = None if cwd == Path.cwd() else str(cwd)
    async with Retinue(cwd) as retinue:
        return await show(retinue, host, elsewhere, **options)


def _find_run(args: argparse.Namespace) -> tuple[Path, RunState]:
    """Return the state folder and the named run, or the newest live one. Raise StateError if there is none."""
    if args.run is not None:
        return locate(args)
    row = newest_run(folder(args.cwd), states=LIVE, main=True)
    if row is None:
        raise StateError(
            "Nothing is at work in this project.", remedy="See: retinue runs list; continue: retinue --continue"
        )
    return project(args), row
