"""The keys of model servers and search services: stored, read from the environment, hidden from every child process.

`retinue models add` stores a key in the system's keyring, or else in `keys.json` in RETINUE_HOME, which only its owner
can read. The file records the address of each key, and the key is sent to no other address, whatever a project's
settings name. A key in the environment or in the settings is preferred. The library `keyring` is used if its backend is
a real keyring. A backend that writes plain files is not used, because our file has stricter permissions.

Other processes can read the environment that a process was started with, even after it deleted a variable: `ps eww`,
`/proc/PID/environ`. Therefore the program (`retinue …`) removes the keys from its environment when it starts and, on
Linux, overwrites them in the block that `/proc/PID/environ` shows. Inside another program (`Retinue()`) the
environment belongs to that program and is not changed; child processes get it without the keys. Keys are the
variables of the known providers, RETINUE_DATABASE, and those that the user's own settings name (`apiKeyEnv`).
`sandbox.passEnvironment` passes one on by name.

Tokens of Vertex, Entra and many companies are valid for an hour. Therefore a provider's entry may name a program that
prints the key (`apiKeyHelper`, a list of words, no shell), or an entry of the keyring (`apiKeyKeyring`,
`SERVICE/ACCOUNT`). Such a key is used for five minutes, and requested again if the server refuses it. Only the user's
own settings may name a helper, because the user would not notice one of a project.

**What this does not protect.** The file is not encrypted: other programs of the same user can read it. Agents cannot:
their sandbox hides RETINUE_HOME, and stored keys are redacted like those of the environment. The shell that started
`retinue` keeps its variables, and a program of the same user that may read our memory finds the keys there.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from retinue.core.programs import DEVNULL, prepare, spawn
from retinue.errors import ConfigurationError
from retinue.models.presets import BUILT_IN, PRESETS
from retinue.settings.places import DATABASE_VARIABLE, hide_variable, private_folder, retinue_home

KEYS_FILE = "keys.json"
KEYRING_SERVICE = "retinue"
_MIN_BACKEND_PRIORITY = 1.0
"""The library calls backends of this priority or more real ones."""


class StoredKey(NamedTuple):
    """A stored key: `key` itself, or `keyring` as SERVICE/ACCOUNT. It is sent to the address `origin` only."""

    key: str = ""
    keyring: str = ""
    origin: str = ""

    def __repr__(self) -> str:
        # Never the key.
        return f"StoredKey(keyring={self.keyring!r}, origin={self.origin!r})"


def keys_file(environment: Mapping[str, str]) -> Path:
    return retinue_home(environment) / KEYS_FILE


def stored_keys(environment: Mapping[str, str]) -> dict[str, StoredKey]:
    """Return the stored keys by provider. An entry that cannot be read is left out."""
    # Not needed to take keys from the environment, which every command does first.
    from retinue.settings.foreign import read_object

    keys = {}
    for name, entry in read_object(keys_file(environment)).data.items():
        if isinstance(entry, dict):
            values = {field: str(entry.get(field) or "") for field in StoredKey._fields}
            stored = StoredKey(**values)
            if stored.key or stored.keyring:
                keys[name] = stored
    return keys


def secret_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the stored keys as variables, because secrets are redacted by the names of variables."""
    variables = {}
    for name, stored in stored_keys(environment).items():
        if stored.key:
            variables[f"{name.upper()}_STORED_API_KEY"] = stored.key
    return variables


def store_key(provider: str, key: str, origin: str, environment: Mapping[str, str]) -> str:
    """Store a key, and return the place for people. Raise ConfigurationError if the file cannot be written."""
    if _put_in_keyring(provider, key):
        entry = {"keyring": f"{KEYRING_SERVICE}/{provider}", "origin": origin}
        where = "the system's keyring"
    else:
        entry = {"key": key, "origin": origin}
        where = f"{keys_file(environment)} (readable by you only)"

    def put(data: dict[str, Any]) -> None:
        data[provider] = entry

    _edit(put, environment)
    return where


def remove_key(provider: str, environment: Mapping[str, str]) -> bool:
    """Remove a stored key. Return False if there was none."""
    stored = stored_keys(environment).get(provider)
    if stored is None:
        return False
    if stored.keyring:
        _delete_from_keyring(stored.keyring)

    def drop(data: dict[str, Any]) -> None:
        data.pop(provider, None)

    _edit(drop, environment)
    return True


def _edit(change: Callable[[dict[str, Any]], None], environment: Mapping[str, str]) -> None:
    import json

    from retinue.settings.foreign import EMPTY, read_object
    from retinue.settings.write import locked_folder, replace_file

    path = keys_file(environment)
    try:
        private_folder(path.parent)
        with locked_folder(path.parent):
            file = read_object(path)
            if file.problem not in (None, EMPTY):
                raise ConfigurationError(f"{path} {file.problem}.", remedy="Repair or remove it, and try again.")
            change(file.data)
            if path.exists():
                # The new file gets the mode of the old one, which someone may have widened.
                path.chmod(0o600)
            replace_file(path, json.dumps(file.data, indent=2).encode() + b"\n", new_mode=0o600)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror or error}.",
            remedy="Make its folder writable, or set the provider's variable instead.",
        ) from error


def _keyring() -> Any:
    """Return the library if its backend is a real keyring, else None."""
    try:
        library = importlib.import_module("keyring")
        if library.get_keyring().priority >= _MIN_BACKEND_PRIORITY:
            return library
    except Exception:  # noqa: BLE001 - not installed, or a backend that fails in its own way
        return None
    return None


def _put_in_keyring(provider: str, key: str) -> bool:
    library = _keyring()
    if library is None:
        return False
    try:
        library.set_password(KEYRING_SERVICE, provider, key)
        # Some backends accept a key and do not store it.
        return bool(library.get_password(KEYRING_SERVICE, provider) == key)
    except Exception:  # noqa: BLE001 - every backend of the library raises its own
        return False


def _delete_from_keyring(entry: str) -> None:
    service, _, account = entry.partition("/")
    library = _keyring()
    if library is None:
        raise ConfigurationError(
            f"The key is in the keyring as '{entry}', and the keyring cannot be reached.",
            remedy="Install the library `keyring`, unlock the keyring, and try again.",
        )
    try:
        library.delete_password(service, account)
    except Exception as error:  # noqa: BLE001 - every backend of the library raises its own
        raise ConfigurationError(
            f"The keyring entry '{entry}' cannot be removed: {' '.join(str(error).split())[:200]}.",
            remedy=f"Unlock the keyring and try again, or remove it with: keyring del {service} {account}",
        ) from None


SEARCH_KEYS = ("BRAVE_SEARCH_API_KEY", "TAVILY_API_KEY", "EXA_API_KEY")
VARIABLE_REFERENCE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")

_key_names = {*SEARCH_KEYS, DATABASE_VARIABLE}
for _preset in (*BUILT_IN.values(), *PRESETS.values()):
    _key_names.update(_preset.keys)
_taken_keys: dict[str, str] = {}
_takes_keys = False


def take_keys() -> None:
    """Move the keys of the known providers from this process's environment into memory, and from
    now on those that settings name. Only for the program itself."""
    global _takes_keys
    _takes_keys = True
    _take(_key_names)
    if DATABASE_VARIABLE in _taken_keys:
        hide_variable(_taken_keys[DATABASE_VARIABLE])


def environment() -> Mapping[str, str]:
    """Return the environment of this process with the keys. It must not be passed to a child process."""
    if _takes_keys:
        return {**os.environ, **_taken_keys}
    return os.environ


def learn_keys(providers: Mapping[str, Mapping[str, Any]]) -> None:
    """Remember the variables with keys that entries of the user's own settings name."""
    new: set[str] = set()
    for entry in providers.values():
        new.update(named_variables(entry))
    new -= _key_names
    _key_names.update(new)
    if _takes_keys:
        _take(new)


def named_variables(entry: Mapping[str, Any]) -> list[str]:
    """Return the variables that a provider's entry names."""
    named = []
    if entry.get("apiKeyEnv"):
        named.append(str(entry["apiKeyEnv"]))
    headers = entry.get("headers")
    values = list(headers.values()) if isinstance(headers, Mapping) else []
    for text in (entry.get("apiKey"), *values):
        if isinstance(text, str):
            named += [a or b for a, b in VARIABLE_REFERENCE.findall(text)]
    return named


def without_keys(environment: Mapping[str, str], passed: Collection[str] = ()) -> dict[str, str]:
    """Return an environment without keys for a program that we start. Keys in `passed` stay, by the user's choice."""
    variables = {}
    for name, value in environment.items():
        if name not in _key_names or name in passed:
            variables[name] = value
    return variables


class KeysInEnvironment:
    """Puts the keys back into the environment for a moment, for a library that reads them there."""

    def __enter__(self) -> None:
        os.environ.update(_taken_keys)

    def __exit__(self, *_: object) -> None:
        for name in _taken_keys:
            os.environ.pop(name, None)


def _take(names: set[str]) -> None:
    there = names & os.environ.keys()
    if not there:
        return
    for name in there:
        _taken_keys[name] = os.environ[name]
    if sys.platform == "linux":
        # If the kernel does not show this block to us, it does not show it to others either.
        with suppress(OSError, ValueError):
            _overwrite_start_block({os.fsencode(name) for name in there})
    for name in there:
        del os.environ[name]


def _overwrite_start_block(names: set[bytes]) -> None:
    """Clear the values in the environment that `/proc/PID/environ` shows to other processes."""
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - at every start
        numbers = file.read().rpartition(b")")[2].split()
    # env_start and env_end in proc(5).
    start, end = int(numbers[47]), int(numbers[48])
    with open("/proc/self/mem", "r+b", buffering=0) as memory:  # noqa: PTH123
        memory.seek(start)
        at = start
        for entry in memory.read(end - start).split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name in names and value:
                memory.seek(at + len(name) + 1)
                memory.write(bytes(len(value)))
            at += len(entry) + 1


KEY_SECONDS = 300.0
MAX_HELPER_SECONDS = 30.0
_MAX_KEY_BYTES = 64 * 1024


class KeyHelper(NamedTuple):
    """A source of keys: the program `argv`, or the entry `keyring` of the keyring."""

    argv: tuple[str, ...] = ()
    keyring: str = ""

    @property
    def name(self) -> str:
        if self.argv:
            return f"the key helper `{self.argv[0]}`"
        return f"the keyring entry '{self.keyring}'"

    @property
    def command(self) -> str:
        """The command with which a person can print the key."""
        if self.argv:
            return shlex.join(self.argv)
        return f"keyring get {self.keyring.replace('/', ' ', 1)}"


class KeyHelperError(Exception):
    """A helper returned no key. The text states the reason and contains no secret."""


_helper_keys: dict[KeyHelper, tuple[float, str]] = {}
"""The last key of each helper, and when it was returned."""
_running: dict[KeyHelper, asyncio.Future[str]] = {}


async def helped_key(helper: KeyHelper) -> str:
    """Return the key of a helper, at most five minutes old. Concurrent runs share one call of the program. Raise
    KeyHelperError."""
    at, key = _helper_keys.get(helper, (0.0, ""))
    if key and time.monotonic() - at < KEY_SECONDS:
        return key
    running = _running.get(helper)
    if running is None or running.get_loop() is not asyncio.get_running_loop():
        running = _running[helper] = asyncio.ensure_future(_ask(helper))
        running.add_done_callback(lambda done: _keep_key(helper, done))
    return await asyncio.shield(running)


def forget_key(helper: KeyHelper) -> None:
    """Forget a key that a server has refused. The next request gets a new one."""
    _helper_keys.pop(helper, None)


def _keep_key(helper: KeyHelper, done: asyncio.Future[str]) -> None:
    _running.pop(helper, None)
    if not done.cancelled() and done.exception() is None:
        _helper_keys[helper] = (time.monotonic(), done.result())


async def _ask(helper: KeyHelper) -> str:
    if helper.argv:
        key = await _run_helper(helper.argv, helper.name)
    else:
        key = await _read_keyring(helper)
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise KeyHelperError(f"{helper.name} printed no key: one word of plain characters is expected")
    return key


async def _run_helper(argv: tuple[str, ...], name: str) -> str:
    """Return the output of a program, without line ends."""
    try:
        # Only the user's own settings name a helper.
        program = prepare(argv, clearance="person", environment=without_keys(os.environ))
        process = await spawn(program, stdin=DEVNULL)
    except (OSError, ValueError) as error:
        raise KeyHelperError(f"{name} cannot be started: {getattr(error, 'strerror', None) or error}") from None
    try:
        async with asyncio.timeout(MAX_HELPER_SECONDS):
            out, complaint = await process.communicate()
    except TimeoutError:
        raise KeyHelperError(f"{name} gave no key in {MAX_HELPER_SECONDS:g} seconds") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        why = " ".join(complaint.decode("utf-8", "replace").split())[:300]
        raise KeyHelperError(f"{name} ended with {process.returncode}" + (f": {why}" if why else ""))
    return out[:_MAX_KEY_BYTES].decode("utf-8", "replace").strip()


async def _read_keyring(helper: KeyHelper) -> str:
    """Return the key in the keyring, by the library `keyring` if it is installed, else by a program of the system."""
    service, _, account = helper.keyring.partition("/")
    try:
        library = importlib.import_module("keyring")
    except ImportError:
        return await _run_helper(_keyring_program(service, account), helper.name)
    try:
        password = await asyncio.to_thread(library.get_password, service, account)
    except Exception as error:  # noqa: BLE001 - every backend of the library raises its own
        why = " ".join(str(error).split()).partition(". ")[0][:200]
        reason = f"{type(error).__name__}: {why}" if why else type(error).__name__
        raise KeyHelperError(f"{helper.name} cannot be read ({reason})") from None
    if not isinstance(password, str):
        raise KeyHelperError(f"{helper.name} is not there; store it with: keyring set {service} {account}")
    return password.strip()


def _keyring_program(service: str, account: str) -> tuple[str, ...]:
    if sys.platform == "darwin":
        return ("security", "find-generic-password", "-s", service, "-a", account, "-w")
    return ("secret-tool", "lookup", "service", service, "username", account)
