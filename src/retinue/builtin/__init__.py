"""Agents and prompts that come with Retinue, as plain Markdown files."""
