"""Agent frameworks that Recto plugs into, each by its own conventions; each needs the extra of its name."""
