"""The prompt in which the person types."""
