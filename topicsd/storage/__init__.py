"""Bytes: files, frames, the write-ahead log, segments, the board and the catalog."""
