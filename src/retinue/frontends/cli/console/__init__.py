"""The terminal of a command: reading and printing for all commands."""
