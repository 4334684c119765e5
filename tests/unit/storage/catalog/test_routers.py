"""Routers in the catalog."""

from __future__ import annotations

from topicsd.storage.catalog import (
    CatalogWriter,
    CreateLog,
    DropLog,
    DropRouter,
    RouterRecord,
    SaveRouter,
    SaveRoutes,
)


def _log(number: int) -> CreateLog:
    return CreateLog(number, number, f"log{number}", "topic", 1, '{"type":"log"}', 5)


def _router(number: int, source: int, dest: int, **changes: int) -> RouterRecord:
    config = '{"guarantee":"exactly_once","filter":["x",true]}'
    record = RouterRecord(number, f"r{number}", source, dest, config, 3, 3, 0, 1_000)
    return record._replace(**changes)


def test_routers_are_saved_moved_and_dropped(writer: CatalogWriter) -> None:
    """A second save replaces; cursors move; ids are not used again."""
    writer.commit([_log(1), _log(2), SaveRouter(_router(1, 1, 2)), SaveRouter(_router(2, 2, 1))])
    writer.commit([SaveRouter(_router(1, 2, 1)), SaveRoutes([(2, 9, 6), (7, 1, 1)])])
    assert writer.list_routers() == [
        _router(1, 2, 1),
        _router(2, 2, 1, cursor=9, forwarded_total=6),
    ]
    writer.commit([DropRouter(2), DropRouter(7)])
    assert writer.list_routers() == [_router(1, 2, 1)]
    assert writer.next_router_id() == 3


def test_a_dropped_log_takes_its_routers(writer: CatalogWriter) -> None:
    """From it and to it."""
    writer.commit([_log(1), _log(2), _log(3)])
    writer.commit([SaveRouter(_router(1, 1, 2)), SaveRouter(_router(2, 2, 3))])
    writer.commit([SaveRouter(_router(3, 1, 3)), DropLog(2)])
    assert [router.id for router in writer.list_routers()] == [3]


def test_people_see_names_and_lag(writer: CatalogWriter) -> None:
    """v_routers."""
    writer.commit([_log(1), _log(2), SaveRouter(_router(1, 1, 2))])
    assert writer._rows("SELECT * FROM v_routers") == [
        ("r1", "log1", "log2", "exactly_once", "x*", 0, 3, 0, "1970-01-01T00:00:01.000Z")
    ]
