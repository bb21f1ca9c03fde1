"""The terminal of a command: what is read from it and shown on it, for all commands."""
