"""The screens that open over the conversation."""
