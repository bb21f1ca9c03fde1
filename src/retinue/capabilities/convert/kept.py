"""Converted documents of a run, so that paging through one converts it once."""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from pathlib import Path

from msgspec import to_builtins

from retinue.capabilities.convert.attach import Converted
from retinue.capabilities.convert.document import About


def place(outputs: Path, key: str) -> Path:
    return outputs / f"converted-{key[:32]}.json"


def recall(path: Path) -> tuple[About, Converted] | None:
    try:
        about, converted = json.loads(path.read_bytes())
        return About(**{**about, "hosts": tuple(about["hosts"])}), Converted(**converted)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def keep(path: Path, about: About, converted: Converted) -> None:
    """Whole or not at all. Without a place to keep it, the next page converts it again."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(to_builtins([about, converted]), file, ensure_ascii=False)
        new.replace(path)
