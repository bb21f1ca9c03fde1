"""What the app shows, computed from events without a terminal: cards of runs, and lines of text."""
