"""The terminal screens: `recto tui`. They draw what the gateway's inspection API answers, and compute nothing."""
