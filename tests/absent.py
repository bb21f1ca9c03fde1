"""What happens to a test whose tool is not there."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def give_up(reason: str) -> NoReturn:
    """Skip the test; in CI fail it, because nobody would see there that it was not run."""
    if "CI" in os.environ:
        pytest.fail(reason)
    pytest.skip(reason)
