"""Private items: what they are, where they are read from, how they are shared out, and how they become tokens."""
