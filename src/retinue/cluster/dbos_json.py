"""DBOS without pickle: its values in the database are JSON, and a pickled one is refused.

DBOS stores the arguments and results of workflows. It unpickles every row that names `py_pickle` as its format,
whatever serializer the application has. Unpickling runs code, so everyone who may write to the database could run code
in every worker. `load_dbos` replaces that serializer before DBOS is used, and tests the refusal once.
"""

from __future__ import annotations

import base64
import logging
from typing import Any, NoReturn

import msgspec

from retinue.cluster.cause_log import CauseLog
from retinue.core.format import replace_unprintable
from retinue.core.install import install_command
from retinue.errors import MissingExtraError, StateError

MAX_VALUE_CHARACTERS = 1 << 20
"""The longest value that is read. An attempt has about 500 characters."""
_PICKLED_PROBE = base64.b64encode(b"N.").decode()
"""`None`, pickled, which is harmless."""


class RefusedValueError(ValueError):
    """A value of a DBOS table that is refused: it is pickled, too large, or not JSON."""


def serialize(_: Any, data: Any) -> str:
    """Return a value as JSON. An exception becomes its text, because nobody reads it back."""
    return msgspec.json.encode(data, enc_hook=str).decode()


def deserialize(_: Any, serialized_data: str) -> Any:
    """Decode a JSON value. Raise RefusedValueError."""
    if len(serialized_data) > MAX_VALUE_CHARACTERS:
        raise RefusedValueError(f"a value of {len(serialized_data)} characters is not read")
    try:
        return msgspec.json.decode(serialized_data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RefusedValueError(f"a value is not JSON: {error}") from None


def _refuse(_: Any, serialized_data: str) -> NoReturn:
    raise RefusedValueError("a pickled value is not read: it could start programs")


def load_dbos() -> Any:
    """Return the library with unpickling disabled. Raise MissingExtraError if it is not installed, and StateError if
    its version still unpickles."""
    try:
        import dbos
        from dbos import _serialization as serialization
    except ImportError as error:
        raise MissingExtraError("cluster", "A cluster of workers") from error
    if not hasattr(serialization, "pickle"):
        # Disabled before.
        return dbos
    pickle_serializer = serialization.DefaultSerializer
    # DBOS writes the failure of a row in the row's own format. Written as JSON, the row is not tried again.
    pickle_serializer.serialize, pickle_serializer.deserialize = serialize, _refuse
    del serialization.pickle
    _check_refusal(serialization)
    return dbos


def _check_refusal(serialization: Any) -> None:
    """Raise StateError unless every function of DBOS that reads a value refuses a pickled one."""
    for read in (
        serialization.deserialize_value,
        serialization.deserialize_args,
        serialization.deserialize_exception,
    ):
        try:
            read(_PICKLED_PROBE, "py_pickle", serialization.DBOSDefaultSerializer)
        except RefusedValueError:
            continue
        raise StateError(
            f"This version of DBOS unpickles values of the database ({read.__name__}).",
            remedy=f"Install the version that Retinue asks for: {install_command('cluster')}",
        )


def json_serializer() -> Any:
    """Return the serializer of our own rows."""
    from dbos import Serializer

    members = {"serialize": serialize, "deserialize": deserialize, "name": lambda _: "retinue_json"}
    return type("JsonSerializer", (Serializer,), members)()


def report_dbos(causes: CauseLog) -> None:
    """Send the messages of DBOS to `causes`, one line each, in place of its own tracebacks."""
    logger = logging.getLogger("dbos")
    logger.handlers[:] = [_DbosHandler(causes)]
    logger.propagate = False
    logger.setLevel(logging.WARNING)


class _DbosHandler(logging.Handler):
    def __init__(self, causes: CauseLog) -> None:
        super().__init__()
        self._causes = causes

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        # Messages contain workflow ids. The source line identifies the cause.
        cause = f"dbos {record.pathname}:{record.lineno} {type(error).__name__}"
        text = " ".join(filter(None, (record.getMessage(), str(error or ""))))
        self._causes.report(cause, f"The queue of runs: {replace_unprintable(text, '?')}")
