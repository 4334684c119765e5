-- Routers: what is forwarded from one log to another, and how far that got.

CREATE TABLE routers (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    name            TEXT NOT NULL COLLATE BINARY UNIQUE,
    source_id       INTEGER NOT NULL REFERENCES logs (id) ON DELETE CASCADE,
    dest_id         INTEGER NOT NULL REFERENCES logs (id) ON DELETE CASCADE,
    config          TEXT NOT NULL CHECK (json_valid(config)),
    start_seq       INTEGER NOT NULL,
    cursor          INTEGER NOT NULL,
    forwarded_total INTEGER NOT NULL,
    created_ts      INTEGER NOT NULL
) STRICT;

CREATE INDEX routers_by_source ON routers (source_id);

CREATE INDEX routers_by_dest ON routers (dest_id);

CREATE VIEW v_routers AS
SELECT
    routers.name,
    sources.name AS source,
    dests.name AS dest,
    json_extract(routers.config, '$.guarantee') AS guarantee,
    (routers.config ->> '$.filter[0]') || iif(routers.config ->> '$.filter[1]', '*', '') AS filter,
    routers.forwarded_total,
    routers.cursor,
    max(sources.head_seq - routers.cursor, 0) AS lag,
    strftime('%Y-%m-%dT%H:%M:%fZ', routers.created_ts / 1000.0, 'unixepoch') AS created
FROM routers
JOIN logs AS sources ON sources.id = routers.source_id
JOIN logs AS dests ON dests.id = routers.dest_id
ORDER BY routers.name;
