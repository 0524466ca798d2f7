"""`python -m recto` is the command `recto`."""

from recto_ai import main

main()
