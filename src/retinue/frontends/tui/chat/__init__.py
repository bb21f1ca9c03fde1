"""The transcript of a conversation, drawn event by event."""
