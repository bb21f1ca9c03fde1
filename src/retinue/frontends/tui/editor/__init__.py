"""Where a person types."""
