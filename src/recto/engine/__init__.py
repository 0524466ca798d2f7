"""The order of work: a message comes in, is counted, stored, read back, verified."""
