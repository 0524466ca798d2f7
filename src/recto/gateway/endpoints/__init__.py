"""Endpoints beside the model requests: model lists, Codex threads, MCP, the page, and paths that are passed on."""
