"""The laboratory's commands: replay, tune, simulate, bench and fidelity."""
