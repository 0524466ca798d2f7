"""Measures Recto. `make bench` prints tables and writes `build/bench.json`."""
