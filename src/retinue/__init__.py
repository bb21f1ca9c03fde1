"""Retinue: Claude-Code-style sub-agents for Python, on any model."""

__version__ = "0.1.0"
