"""Tools that start and manage other agents."""
