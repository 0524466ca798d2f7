"""The inspection and admin API: what is stored, what the model saw and did not see, and the changes people may make."""
