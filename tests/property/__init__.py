"""State machines against a small oracle."""
