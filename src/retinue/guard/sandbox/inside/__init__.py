"""The code that runs in a confined process before its program: on its own, outside the package."""
