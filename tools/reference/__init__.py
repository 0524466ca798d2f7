"""The reference: pages made of the code itself, so that they cannot say anything else than it does."""
