"""Programs in a box of the operating system: what they may write, reach, see and use up."""
