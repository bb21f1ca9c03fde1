"""Pages are followed in a project of the tests of the program."""

from tests.program.conftest import project, serve

__all__ = ["project", "serve"]
