"""Commands of the laboratory: replay, tune, simulate, bench and fidelity."""
