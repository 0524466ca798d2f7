"""The command line: draws what the engine returns, computes nothing."""
