"""Health of a session: metrics of each turn, trends, alerts, and what eviction cost."""
