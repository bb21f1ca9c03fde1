"""The beginning of a GGUF file: enough to say what it is without loading it."""

from __future__ import annotations

import struct
from io import BufferedReader
from pathlib import Path
from typing import Any

from retinue.core.lean import dataclass
from retinue.errors import ConfigurationError

MAGIC = b"GGUF"
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST, _MOST = 1 << 24, 1 << 24
"""Bytes of a text and entries of a list beyond which a header is taken for garbage."""


@dataclass(frozen=True, slots=True)
class Header:
    """`window` is what the model was trained for. `template` writes a conversation as text; one
    that knows `tools` writes them in the words the model was trained on."""

    name: str = ""
    window: int | None = None
    template: str = ""

    @property
    def knows_tools(self) -> bool:
        return "tools" in self.template


def read_header(path: Path) -> Header:
    """Raises ConfigurationError unless `path` is a GGUF file that can be read."""
    try:
        with path.open("rb") as file:
            if file.read(4) != MAGIC:
                raise ConfigurationError(
                    f"{path} is not a GGUF file.",
                    remedy="Name the weights of a model in llama.cpp's format, which end in .gguf.",
                )
            return _read(file)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror or error}.",
            remedy="Give the path of a GGUF file that this user may read.",
        ) from error
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{path} begins like a GGUF file but is damaged: {error}.", remedy="Download or copy it again."
        ) from error


def _read(file: BufferedReader) -> Header:
    version = _number(file, "I")
    if version not in (2, 3):
        raise ValueError(f"version {version} is not known")
    _number(file, "Q")  # how many tensors
    values: dict[str, Any] = {}
    for _ in range(min(_number(file, "Q"), _MOST)):
        key = _text(file)
        value = _value(file, _number(file, "I"))
        if value is not None:
            values[key] = value
    window = values.get(f"{values.get('general.architecture')}.context_length")
    return Header(
        name=str(values.get("general.name") or ""),
        window=window if isinstance(window, int) and window > 0 else None,
        template=str(values.get("tokenizer.chat_template") or ""),
    )


def _value(file: BufferedReader, kind: int) -> Any:
    """Lists are passed over: they are vocabularies."""
    if kind == _STRING:
        return _text(file)
    if kind != _ARRAY:
        if kind not in _NUMBERS:
            raise ValueError(f"a value of unknown type {kind}")
        return _number(file, _NUMBERS[kind])
    inner, count = _number(file, "I"), _number(file, "Q")
    if count > _MOST:
        raise ValueError(f"a list of {count} entries")
    if inner in _NUMBERS:
        file.seek(struct.calcsize(_NUMBERS[inner]) * count, 1)
        return None
    for _ in range(count):
        if inner == _STRING:
            file.seek(_length(file), 1)
        else:
            _value(file, inner)
    return None


def _text(file: BufferedReader) -> str:
    length = _length(file)
    data = file.read(length)
    if len(data) < length:
        raise ValueError("it ends in the middle of its header")
    return data.decode("utf-8", "replace")


def _length(file: BufferedReader) -> int:
    length: int = _number(file, "Q")
    if length > _LONGEST:
        raise ValueError(f"a text of {length} bytes")
    return length


def _number(file: BufferedReader, form: str) -> Any:
    return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))[0]
