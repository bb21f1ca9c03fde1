"""Faces that serve other programs are tested with the projects and models of `tests/program`."""

from tests.program.conftest import project, serve

__all__ = ["project", "serve"]
