"""What should leave or shrink: pure rules, one to a file. None of them says when."""
