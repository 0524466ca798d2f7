"""The MCP server: recall, notes, checkpoints and reports for any client that speaks the Model Context Protocol."""
