"""Programs confined by the operating system: what they may write, reach, see and use up."""
