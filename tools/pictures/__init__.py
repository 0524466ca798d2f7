"""The drawings of the documentation, one file for each: from runs of the engine where they show numbers."""
