"""The agent's hands: built-in tools, confinement, bounded output, and the tool filter."""
