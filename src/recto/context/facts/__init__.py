"""What a conversation states: constraints, decisions, files, errors and open tasks, extracted by rule."""
