"""Files that ship with the package: the catalog's migrations.

`topicsd/migrations` is a link to the repository's `migrations/`, so one path serves a
checkout, an editable install and a wheel, which holds copies.
"""

from __future__ import annotations

from importlib import resources


def migration_files() -> list[tuple[str, str]]:
    """Return (name, SQL) of every migration in the order they apply."""
    home = resources.files("topicsd") / "migrations"
    scripts = [item for item in home.iterdir() if item.name.endswith(".sql")]
    return sorted((item.name, item.read_text("utf-8")) for item in scripts)
