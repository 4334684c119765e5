"""Files inside the package: found in a checkout, ordered for the catalog."""

from __future__ import annotations

from tests.law.source import ROOT
from topicsd.model.resources import migration_files


def test_migrations_are_those_of_the_repository_in_order() -> None:
    """The package sees migrations/*.sql, sorted by name."""
    expected = [(path.name, path.read_text()) for path in sorted(ROOT.glob("migrations/*.sql"))]
    assert expected
    assert expected == migration_files()
