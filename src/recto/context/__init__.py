"""The context of a prompt: facts of the conversation, the window, policies that relieve it, and compaction."""
