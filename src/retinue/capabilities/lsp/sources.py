"""Files as language servers get them: regular, in the workspace, as text, and not too large."""

from __future__ import annotations

import os

from retinue.capabilities.lsp.errors import bad_input
from retinue.capabilities.lsp.session import Source
from retinue.tools.files import open_regular, spot
from retinue.tools.paths import Confined

MOST_BYTES = 2 * 1024 * 1024


def read_source(place: Confined) -> Source:
    """Raises LspError (INVALID_INPUT), or ToolError for what is no regular file."""
    try:
        with spot(place) as where:
            descriptor = open_regular(where, place)
    except (FileNotFoundError, NotADirectoryError):
        raise bad_input(f"{place.shown} does not exist.") from None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise bad_input(f"{place.shown} is larger than {MOST_BYTES // 2**20} MiB, too large for a language server.")
    text = data.decode("utf-8-sig", "replace")
    return Source(place.path, text, (found.st_mtime_ns, found.st_size))
