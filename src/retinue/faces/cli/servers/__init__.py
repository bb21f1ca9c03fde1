"""`retinue servers`: the MCP servers that agents may use, and whether they work."""
