"""Provider JSON to messages and back, pure. Bytes that were not touched go out as they came in."""
