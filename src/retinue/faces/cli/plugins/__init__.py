"""Commands on plugins."""
