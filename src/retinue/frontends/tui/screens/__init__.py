"""What lies over the conversation for a while."""
