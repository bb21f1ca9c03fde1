"""The display state of the app, computed from events without a terminal: cards of runs, and lines of text."""
