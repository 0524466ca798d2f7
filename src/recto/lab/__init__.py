"""Experiments on recorded and simulated sessions: replay, tuning and their reports. The product imports none of it."""
