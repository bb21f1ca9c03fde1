"""What a run knows when it starts: its system prompt and its first message."""
