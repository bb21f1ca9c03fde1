"""The built-in tools of agents: confinement, bounded output, and the tool filter."""
