"""The recall index: words, vectors and uses, each a lane over a `recto.recall.protocols.RecallIndex`.

A lane seals its fresh rows into blocks. A block never changes and has a random number of its own, so what is kept in
memory of it cannot be stale, whoever else writes: either the block is still in the directory, or it is not asked for.
"""
