"""Run the program without paying for its start: a process that has imported it forks for each call.

Hundreds of tests run `retinue` two or three times each, and importing it takes most of the time of a short run. A call
through here is still a process of its own, with its own environment, folder, input and output; only the imports are
shared. A test about the start itself, about signals or about a terminal starts the real program instead.

The server is started once by each process of pytest, and ends with it. `COVERAGE_PROCESS_START` in the environment
starts every call as a new interpreter, because coverage is switched on while an interpreter starts.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import select
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

ROOT = Path(__file__).parent.parent
# The terminal app is started by tests as a real program, and the fakes are no part of it.
LEFT_OUT = ("retinue.__main__", "retinue.frontends.tui", "retinue.testing", "retinue.guard.sandbox.inside")
TIMEOUT = 120

_lock = threading.Lock()
_address: str | None = None


def run_program(
    arguments: tuple[str, ...], cwd: Path, environment: Mapping[str, str], input: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `retinue` with these arguments and this environment alone, and return what it wrote."""
    if "COVERAGE_PROCESS_START" in environment or not hasattr(os, "pidfd_open"):
        return _start_interpreter(arguments, cwd, environment, input)
    call = {"arguments": arguments, "cwd": str(cwd), "environment": dict(environment)}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(TIMEOUT)
            connection.connect(_server_address())
            with _standard_input(input) as stdin:
                files = [stdin.fileno(), out.fileno(), err.fileno()]
                socket.send_fds(connection, [json.dumps(call).encode()], files)
            code = int(connection.recv(100))
        return subprocess.CompletedProcess(arguments, code, _text(out), _text(err))


def _standard_input(given: str | None) -> BinaryIO:
    """Return the reading end of what the program is given: a pipe, as from a shell, or nothing at all."""
    if given is None:
        return open(os.devnull, "rb")
    assert len(given) < 10_000, "a pipe holds no more while nobody reads it"
    reading, writing = os.pipe()
    with open(writing, "wb") as pipe:
        pipe.write(given.encode())
    return open(reading, "rb")


def _start_interpreter(
    arguments: tuple[str, ...], cwd: Path, environment: Mapping[str, str], input: str | None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "retinue", *arguments]
    with _standard_input(input) as stdin:
        return subprocess.run(
            command, cwd=cwd, env=environment, stdin=stdin, capture_output=True, text=True, timeout=TIMEOUT
        )


def _text(file: Any) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n")


def _server_address() -> str:
    global _address
    with _lock:
        if _address is None:
            folder = tempfile.TemporaryDirectory(prefix="retinue-fork-")
            _address = f"{folder.name}/socket"
            # Nothing of the test's environment: settings that are read while modules are imported are the usual ones.
            environment = {"PATH": os.environ["PATH"], "HOME": folder.name}
            if "PYTHONPATH" in os.environ:  # which program is tested
                environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
            server = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", _address],
                env=environment,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            assert server.stdout is not None
            server.stdout.readline()  # it says when it listens
            atexit.register(_end_server, server, folder)
    return _address


def _end_server(server: subprocess.Popen[bytes], folder: tempfile.TemporaryDirectory[str]) -> None:
    assert server.stdin is not None
    server.stdin.close()
    server.wait(10)
    folder.cleanup()


def serve(address: str) -> None:
    """Import the program, and fork for each call until standard input is closed."""
    import retinue

    for module in pkgutil.walk_packages(retinue.__path__, "retinue."):
        if not module.name.startswith(LEFT_OUT):
            import_module(module.name)
    # The calls share the memory of what was imported until one of them looks for garbage in it.
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen(64)
    print("ready", flush=True)
    calls: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(0, select.POLLIN | select.POLLHUP)
    while True:
        for number, _ in poll.poll():
            if number == 0:
                return
            if number == listener.fileno():
                connection, _ = listener.accept()
                child = _fork_for(connection, listener)
                watched = os.pidfd_open(child)
                calls[watched] = (child, connection)
                poll.register(watched, select.POLLIN)
                continue
            poll.unregister(number)
            child, connection = calls.pop(number)
            _, status = os.waitpid(child, 0)
            os.close(number)
            with connection:
                connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def _fork_for(connection: socket.socket, listener: socket.socket) -> int:
    message, files, _, _ = socket.recv_fds(connection, 1_000_000, 3)
    child = os.fork()
    if child:
        for file in files:
            os.close(file)
        return child
    listener.close()
    connection.close()
    for target, file in enumerate(files):
        os.dup2(file, target)
        os.close(file)
    _become(**json.loads(message))


def _become(arguments: list[str], cwd: str, environment: dict[str, str]) -> NoReturn:
    """Run the program in this process, and end it as Python would."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = cwd  # as `python -m` has it
    sys.argv = ["retinue", *arguments]
    from retinue.__main__ import main

    try:
        code: Any = main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    # What Python does when it ends, without taking a thousand modules apart: that costs more than a short command.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    serve(sys.argv[1])
