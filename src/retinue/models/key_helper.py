"""Keys that a program or the system's keyring gives when they are needed.

Tokens of Vertex, Entra and many companies live for an hour, so they cannot stand in a variable.
A provider's entry names a program (`apiKeyHelper`, its words as a list, no shell) that prints the
key, or an entry of the keyring (`apiKeyKeyring`, `SERVICE/ACCOUNT`). What it gave is used for five
minutes; a key that the server refuses is asked for once more. Only the user's own settings may name
one: a program that a project names would start without anyone knowing.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import shlex
import sys
import time
from typing import NamedTuple

from retinue.models.keys import without_keys

KEEP_SECONDS = 300.0
LONGEST_SECONDS = 30.0
_MOST_BYTES = 64 * 1024


class KeyHelper(NamedTuple):
    """Where a key comes from. `argv` or `keyring` is set."""

    argv: tuple[str, ...] = ()
    keyring: str = ""

    @property
    def name(self) -> str:
        return f"the key helper `{self.argv[0]}`" if self.argv else f"the keyring entry '{self.keyring}'"

    @property
    def command(self) -> str:
        """What a person types to see the same."""
        return shlex.join(self.argv) if self.argv else f"keyring get {self.keyring.replace('/', ' ', 1)}"


class KeyHelperError(Exception):
    """It gave no key. The text says why and holds no secret."""


_given: dict[KeyHelper, tuple[float, str]] = {}
_running: dict[KeyHelper, asyncio.Future[str]] = {}


async def helped_key(helper: KeyHelper) -> str:
    """Return the key, at most five minutes old. Many runs that ask at once start one program.
    Raises KeyHelperError."""
    at, key = _given.get(helper, (0.0, ""))
    if key and time.monotonic() - at < KEEP_SECONDS:
        return key
    running = _running.get(helper)
    if running is None or running.get_loop() is not asyncio.get_running_loop():
        running = _running[helper] = asyncio.ensure_future(_ask(helper))
        running.add_done_callback(lambda done: _finished(helper, done))
    return await asyncio.shield(running)


def forget_key(helper: KeyHelper) -> None:
    """A server has refused the key: the next request gets a new one."""
    _given.pop(helper, None)


def _finished(helper: KeyHelper, done: asyncio.Future[str]) -> None:
    _running.pop(helper, None)
    if not done.cancelled() and done.exception() is None:
        _given[helper] = (time.monotonic(), done.result())


async def _ask(helper: KeyHelper) -> str:
    if helper.argv:
        key = await _printed(helper.argv, helper.name)
    else:
        key = await _stored(helper)
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise KeyHelperError(f"{helper.name} printed no key: one word of plain characters is expected")
    return key


async def _printed(argv: tuple[str, ...], name: str) -> str:
    """What a program prints, without the lines' ends."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=without_keys(os.environ),
        )
    except (OSError, ValueError) as error:
        raise KeyHelperError(f"{name} cannot be started: {getattr(error, 'strerror', None) or error}") from None
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            out, said = await process.communicate()
    except TimeoutError:
        raise KeyHelperError(f"{name} gave no key in {LONGEST_SECONDS:g} seconds") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        why = " ".join(said.decode("utf-8", "replace").split())[:300]
        raise KeyHelperError(f"{name} ended with {process.returncode}" + (f": {why}" if why else ""))
    return out[:_MOST_BYTES].decode("utf-8", "replace").strip()


async def _stored(helper: KeyHelper) -> str:
    """The library `keyring` where it is installed, else the system's own program."""
    service, _, account = helper.keyring.partition("/")
    try:
        library = importlib.import_module("keyring")
    except ImportError:
        return await _printed(_keyring_program(service, account), helper.name)
    try:
        found = await asyncio.to_thread(library.get_password, service, account)
    except Exception as error:  # noqa: BLE001 - every backend of the library raises its own
        why = " ".join(str(error).split()).partition(". ")[0][:200]
        said = f"{type(error).__name__}: {why}" if why else type(error).__name__
        raise KeyHelperError(f"{helper.name} cannot be read ({said})") from None
    if not isinstance(found, str):
        raise KeyHelperError(f"{helper.name} is not there; store it with: keyring set {service} {account}")
    return found.strip()


def _keyring_program(service: str, account: str) -> tuple[str, ...]:
    if sys.platform == "darwin":
        return ("security", "find-generic-password", "-s", service, "-a", account, "-w")
    return ("secret-tool", "lookup", "service", service, "username", account)
