"""What stays on the screen beside the conversation."""
