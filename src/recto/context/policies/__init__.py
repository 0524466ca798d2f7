"""Relief policies: pure rules, one per file, that decide what to evict or shorten. None of them decides when."""
