"""Decisions: pure functions and tables. No I/O; the clock is an argument."""
