"""The recall index: word and vector lanes over a store's `recto.recall.protocols.RecallIndex`.

A **lane** is one kind of index of a session, named by its content and its format: `words/<lexicon>`
or `vectors/<embedder>`. Lanes are independent: each covers its own ranges of entries and can be deleted and
rebuilt alone. The store sees a lane as rows of opaque bytes. A covered entry that can be searched has a **fresh row**;
once there are many, they are packed into the **sealed rows** of a **block**, and a fresh row disappears with the same
transaction that adds its block. A block is spread over several **parts**, so that a search reads only the parts it
needs; the part -1 is the **directory** of all blocks. Each seal changes the **generation** of the lane.

A block never changes and has a random number of its own. So a cached block cannot be stale, whoever else writes: either
the directory still lists it, or nothing asks for it.
"""
