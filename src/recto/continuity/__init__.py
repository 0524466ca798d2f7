"""What outlives a window: checkpoints of a task, and durable memory of an agent."""
