"""Text for the clipboard of the person's terminal, by OSC 52, which also works over SSH.

No terminal confirms that it took the text, so the messages state only what was sent.
"""

from __future__ import annotations

from typing import Any

from textual.app import App

from retinue.app.text import plural

# Terminals discard longer sequences, some of them without a message.
MAX_COPY_BYTES = 74_000


def copy_text(app: App[Any], text: str) -> str:
    """Send `text` to the clipboard and return a sentence about it."""
    size = len(text.encode("utf-8"))
    if size > MAX_COPY_BYTES:
        return f"Not copied: {size:,} bytes are more than terminals take ({MAX_COPY_BYTES:,}). /export writes a file."
    app.copy_to_clipboard(text)
    return f"Copied {plural(len(text), 'character')} to the clipboard."


def copy_selection(app: App[Any]) -> str:
    """Copy the text selected with the mouse, and return a sentence about it; empty if none is selected."""
    text = app.screen.get_selected_text()
    if not text or not text.strip():
        return ""
    return copy_text(app, text)
