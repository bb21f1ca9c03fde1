"""What the tools that start and handle other agents share: texts, frames, bounds, descriptions."""
