"""The laboratory: replay, tuning and simulation of sessions, with reports and commands. Nothing else imports it."""
