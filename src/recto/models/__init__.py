"""Models that Recto runs or calls: chat models and embedders, locally or over HTTP, and their weights."""
