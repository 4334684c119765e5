"""Between HTTP workers and the one engine: commands down, replies and wakeups up."""
