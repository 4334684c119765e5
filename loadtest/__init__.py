"""Load and speed measurements of the running product; never imported by it."""
