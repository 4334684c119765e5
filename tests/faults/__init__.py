"""File systems that fail, and an engine driven over them."""
