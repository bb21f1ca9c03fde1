"""Search services behind one protocol."""
