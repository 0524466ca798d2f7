"""Values of a context window: units, budgets, pressure, plans and the state they act on."""
