"""MCP servers: found, started once, shared by runs, and gone when nobody needs them."""
