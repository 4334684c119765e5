-- The first catalog: logs with their checkpointed state, segments, gaps, idempotency keys.
-- Times are milliseconds since 1970, UTC. 0 stands for "none" in every state column.

CREATE TABLE logs (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    row           INTEGER NOT NULL UNIQUE,
    name          TEXT NOT NULL COLLATE BINARY UNIQUE,
    kind          TEXT NOT NULL CHECK (kind IN ('topic', 'stream')),
    epoch         INTEGER NOT NULL,
    config        TEXT NOT NULL CHECK (json_valid(config)),
    created_ts    INTEGER NOT NULL,
    head_seq      INTEGER NOT NULL DEFAULT 0,
    next_seq      INTEGER NOT NULL DEFAULT 0,
    earliest_seq  INTEGER NOT NULL DEFAULT 0,
    cap_floor     INTEGER NOT NULL DEFAULT 0,
    ttl_floor     INTEGER NOT NULL DEFAULT 0,
    lost_floor    INTEGER NOT NULL DEFAULT 0,
    delete_below  INTEGER NOT NULL DEFAULT 0,
    count         INTEGER NOT NULL DEFAULT 0,
    bytes         INTEGER NOT NULL DEFAULT 0,
    last_write_ts INTEGER NOT NULL DEFAULT 0,
    last_read_ts  INTEGER NOT NULL DEFAULT 0,
    active_base   INTEGER NOT NULL DEFAULT 0,
    active_rows   INTEGER NOT NULL DEFAULT 0,
    active_end    INTEGER NOT NULL DEFAULT 0,
    location      INTEGER NOT NULL DEFAULT 0
) STRICT;

-- What a start must empty: topics whose records live in memory only.
CREATE INDEX logs_ephemeral ON logs (id)
WHERE json_extract(config, '$.durability') = 'ephemeral';

CREATE TABLE segments (
    log_id        INTEGER NOT NULL REFERENCES logs (id) ON DELETE CASCADE,
    base_seq      INTEGER NOT NULL,
    rows          INTEGER NOT NULL,
    bytes         INTEGER NOT NULL,
    payload_bytes INTEGER NOT NULL,
    live_rows     INTEGER NOT NULL,
    first_ts      INTEGER NOT NULL,
    last_ts       INTEGER NOT NULL,
    sealed_ts     INTEGER NOT NULL,
    checksum      TEXT NOT NULL,
    state         TEXT NOT NULL,
    PRIMARY KEY (log_id, base_seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE gaps (
    log_id     INTEGER NOT NULL REFERENCES logs (id) ON DELETE CASCADE,
    from_seq   INTEGER NOT NULL,
    to_seq     INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    noticed_ts INTEGER NOT NULL,
    PRIMARY KEY (log_id, from_seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (
    log_id    INTEGER NOT NULL REFERENCES logs (id) ON DELETE CASCADE,
    key       TEXT NOT NULL COLLATE BINARY,
    first_seq INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL,
    ts        INTEGER NOT NULL,
    PRIMARY KEY (log_id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_by_ts ON idempotency (log_id, ts);

CREATE TABLE meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE quarantine (
    file       TEXT NOT NULL,
    position   INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    noticed_ts INTEGER NOT NULL,
    PRIMARY KEY (file, position)
) STRICT, WITHOUT ROWID;

CREATE VIEW v_topics AS
SELECT
    name,
    json_extract(config, '$.type') AS type,
    json_extract(config, '$.durability') AS durability,
    head_seq,
    earliest_seq,
    count,
    bytes,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_ts / 1000.0, 'unixepoch') AS created,
    strftime('%Y-%m-%dT%H:%M:%fZ', nullif(last_write_ts, 0) / 1000.0, 'unixepoch') AS last_write,
    strftime('%Y-%m-%dT%H:%M:%fZ', nullif(last_read_ts, 0) / 1000.0, 'unixepoch') AS last_read,
    json_extract(config, '$.ttl_ms') AS ttl_ms,
    json_extract(config, '$.cap_records') AS cap_records,
    json_extract(config, '$.cap_bytes') AS cap_bytes,
    epoch,
    id
FROM logs
WHERE kind = 'topic'
ORDER BY name;

CREATE VIEW v_segments AS
SELECT
    logs.name AS topic,
    segments.base_seq,
    segments.base_seq + segments.rows - 1 AS last_seq,
    segments.rows,
    segments.live_rows,
    segments.bytes,
    segments.payload_bytes,
    segments.state,
    strftime('%Y-%m-%dT%H:%M:%fZ', nullif(first_ts, 0) / 1000.0, 'unixepoch') AS first_record,
    strftime('%Y-%m-%dT%H:%M:%fZ', nullif(last_ts, 0) / 1000.0, 'unixepoch') AS last_record,
    strftime('%Y-%m-%dT%H:%M:%fZ', nullif(sealed_ts, 0) / 1000.0, 'unixepoch') AS sealed,
    segments.checksum,
    segments.log_id
FROM segments
JOIN logs ON logs.id = segments.log_id
ORDER BY logs.name, segments.base_seq;
