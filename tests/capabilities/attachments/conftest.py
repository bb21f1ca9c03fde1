"""A project of its own for every test, as the tests of the whole program have it."""

from tests.program.conftest import project, serve

__all__ = ["project", "serve"]
