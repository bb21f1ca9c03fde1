"""Agents that start at a time: when, which slot is whose, and what came of it."""
