"""Durable memory of an agent: proposals, approvals, pages and consolidation."""
