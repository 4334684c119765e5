"""Nouns of the product: errors, names, settings, records, commands. No I/O, no asyncio."""
