"""Keys that `retinue models add` keeps for the user: in the system's keyring, else in a file only its owner can read.

`keys.json` in RETINUE_HOME says for each provider where its key is and for which address it was given: it is sent
nowhere else, whatever a project's settings name. A key in the environment or in the settings comes first. The keyring
is used by the library `keyring`, where it is installed and its backend is a real keyring; backends that write
plain files are not, because ours has the better permissions.

**What it does not protect.** The file is not encrypted: programs of the same user can read it. Agents cannot:
their walls hide RETINUE_HOME, and stored keys are redacted like those of the environment.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from retinue.errors import ConfigurationError
from retinue.settings.foreign import EMPTY, read_object
from retinue.settings.places import private_folder, retinue_home

FILE = "keys.json"
SERVICE = "retinue"
_RECOMMENDED = 1.0
"""The priority from which on the library calls a backend a real one."""


class StoredKey(NamedTuple):
    """`key` is set, or `keyring` as SERVICE/ACCOUNT. `origin` is the only place it is sent to."""

    key: str = ""
    keyring: str = ""
    origin: str = ""

    def __repr__(self) -> str:
        # Never the key.
        return f"StoredKey(keyring={self.keyring!r}, origin={self.origin!r})"


def keys_file(environment: Mapping[str, str]) -> Path:
    return retinue_home(environment) / FILE


def stored_keys(environment: Mapping[str, str]) -> dict[str, StoredKey]:
    """Return what is stored, by provider. An entry that cannot be read is left out."""
    found = {}
    for name, entry in read_object(keys_file(environment)).data.items():
        if isinstance(entry, dict):
            values = {field: str(entry.get(field) or "") for field in StoredKey._fields}
            stored = StoredKey(**values)
            if stored.key or stored.keyring:
                found[name] = stored
    return found


def secret_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the stored keys as variables, for the part that hides secrets by the names of variables."""
    found = {}
    for name, stored in stored_keys(environment).items():
        if stored.key:
            found[f"{name.upper()}_STORED_API_KEY"] = stored.key
    return found


def store_key(provider: str, key: str, origin: str, environment: Mapping[str, str]) -> str:
    """Keep a key, and return where, in words. Raise ConfigurationError where nothing can be written."""
    if _put_in_keyring(provider, key):
        entry = {"keyring": f"{SERVICE}/{provider}", "origin": origin}
        where = "the system's keyring"
    else:
        entry = {"key": key, "origin": origin}
        where = f"{keys_file(environment)} (readable by you only)"

    def put(data: dict[str, Any]) -> None:
        data[provider] = entry

    _edit(put, environment)
    return where


def remove_key(provider: str, environment: Mapping[str, str]) -> bool:
    """Forget a key that was stored. Return False when there was none."""
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
                # Someone may have widened it; the new file takes over the mode of the old one.
                path.chmod(0o600)
            replace_file(path, json.dumps(file.data, indent=2).encode() + b"\n", new_mode=0o600)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror or error}.",
            remedy="Make its folder writable, or set the provider's variable instead.",
        ) from error


def _keyring() -> Any:
    """Return the library when it has a backend worth using, else None."""
    try:
        library = importlib.import_module("keyring")
        if library.get_keyring().priority >= _RECOMMENDED:
            return library
    except Exception:  # noqa: BLE001 - not installed, or a backend that fails in its own way
        return None
    return None


def _put_in_keyring(provider: str, key: str) -> bool:
    library = _keyring()
    if library is None:
        return False
    try:
        library.set_password(SERVICE, provider, key)
        # Some backends accept everything and keep nothing.
        return bool(library.get_password(SERVICE, provider) == key)
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
