"""The results that every door returns: one model for each, with its JSON form and JSON Schema."""
