-- The catalog (<data>/catalog.sqlite) as all migrations leave it. For reading: the program
-- applies migrations/*.sql, and a test compares the two.
--
-- Times are milliseconds since 1970, UTC. 0 stands for "none" in every state column of logs.
-- The state is that of the last checkpoint; the write-ahead log holds what came after it.

-- Which migrations were applied, with the checksum of their text.
CREATE TABLE migrations (
    name       TEXT NOT NULL PRIMARY KEY,
    checksum   TEXT NOT NULL,            -- xxh3_128, hex
    applied_ts INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row a log: a topic or a stream. Ids are never used again, rows and names may be.
CREATE TABLE logs (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    row           INTEGER NOT NULL UNIQUE,               -- its row on the board
    name          TEXT NOT NULL COLLATE BINARY UNIQUE,
    kind          TEXT NOT NULL CHECK (kind IN ('topic', 'stream')),
    epoch         INTEGER NOT NULL,                      -- larger after each recreation
    config        TEXT NOT NULL CHECK (json_valid(config)),
    created_ts    INTEGER NOT NULL,
    head_seq      INTEGER NOT NULL DEFAULT 0,            -- last seq handed out and visible
    next_seq      INTEGER NOT NULL DEFAULT 0,            -- the seq of the next record
    earliest_seq  INTEGER NOT NULL DEFAULT 0,            -- first seq that can be read
    cap_floor     INTEGER NOT NULL DEFAULT 0,            -- below it a cap took live records
    ttl_floor     INTEGER NOT NULL DEFAULT 0,            -- below it records expired
    lost_floor    INTEGER NOT NULL DEFAULT 0,            -- below it a restart emptied the topic
    delete_below  INTEGER NOT NULL DEFAULT 0,            -- below it a client deleted them
    count         INTEGER NOT NULL DEFAULT 0,            -- live records
    bytes         INTEGER NOT NULL DEFAULT 0,            -- their payload bytes, data plus meta
    last_write_ts INTEGER NOT NULL DEFAULT 0,
    last_read_ts  INTEGER NOT NULL DEFAULT 0,
    active_base   INTEGER NOT NULL DEFAULT 0,            -- first seq of the active segment
    active_rows   INTEGER NOT NULL DEFAULT 0,            -- its rows
    active_end    INTEGER NOT NULL DEFAULT 0,            -- bytes used in its .dat region
    location      INTEGER NOT NULL DEFAULT 0             -- where it is stored; opaque
) STRICT;

-- What a start must empty: topics whose records live in memory only.
CREATE INDEX logs_ephemeral ON logs (id)
WHERE json_extract(config, '$.durability') = 'ephemeral';

-- The segment files of a log.
CREATE TABLE segments (
    log_id        INTEGER NOT NULL REFERENCES logs (id) ON DELETE CASCADE,
    base_seq      INTEGER NOT NULL,      -- its first seq
    rows          INTEGER NOT NULL,
    bytes         INTEGER NOT NULL,      -- of the .dat file
    payload_bytes INTEGER NOT NULL,      -- of live records
    live_rows     INTEGER NOT NULL,
    first_ts      INTEGER NOT NULL,
    last_ts       INTEGER NOT NULL,
    sealed_ts     INTEGER NOT NULL,
    checksum      TEXT NOT NULL,         -- xxh3_64, hex
    state         TEXT NOT NULL,
    PRIMARY KEY (log_id, base_seq)
) STRICT, WITHOUT ROWID;

-- Seqs lost involuntarily, both ends included: what a crash took.
CREATE TABLE gaps (
    log_id     INTEGER NOT NULL REFERENCES logs (id) ON DELETE CASCADE,
    from_seq   INTEGER NOT NULL,
    to_seq     INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    noticed_ts INTEGER NOT NULL,
    PRIMARY KEY (log_id, from_seq)
) STRICT, WITHOUT ROWID;

-- Idempotency keys of writes, and the seqs that the first write of each got.
CREATE TABLE idempotency (
    log_id     INTEGER NOT NULL REFERENCES logs (id) ON DELETE CASCADE,
    key        TEXT NOT NULL COLLATE BINARY,
    first_seq  INTEGER NOT NULL,
    last_seq   INTEGER NOT NULL,
    ts         INTEGER NOT NULL,
    expires_ts INTEGER NOT NULL DEFAULT 0,               -- end of the window it was written in
    PRIMARY KEY (log_id, key)
) STRICT, WITHOUT ROWID;

-- A checkpoint forgets expired keys, the oldest first and a bounded number of them.
CREATE INDEX idempotency_by_expiry ON idempotency (expires_ts);

-- Single values: instance id, clean shutdown marker, boot id, the largest epoch of a
-- dropped log (epoch_floor), and so on.
CREATE TABLE meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Corrupt bytes that recovery set aside.
CREATE TABLE quarantine (
    file       TEXT NOT NULL,
    position   INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    noticed_ts INTEGER NOT NULL,
    PRIMARY KEY (file, position)
) STRICT, WITHOUT ROWID;

-- One row a watch session: what it follows and how far it got.
CREATE TABLE watch_sessions (
    wid            TEXT NOT NULL COLLATE BINARY PRIMARY KEY,
    key            TEXT NOT NULL,        -- id of the creating key, '' without auth
    spec           TEXT NOT NULL,        -- the subscription, JSON
    cursors        TEXT NOT NULL CHECK (json_valid(cursors)),   -- {topic: [epoch, seq]}
    openings       TEXT NOT NULL CHECK (json_valid(openings)),  -- [[generation, cursors]], last 4
    generation     INTEGER NOT NULL,     -- streams that it ever had
    open           INTEGER NOT NULL CHECK (open IN (0, 1, 2)),
                                         -- 0 given back with its cursors, 1 has a stream,
                                         -- 2 lost its stream, which may have sent more
    created_ts     INTEGER NOT NULL,
    last_access_ts INTEGER NOT NULL
) STRICT;

-- Sessions without a stream expire.
CREATE INDEX watch_sessions_by_access ON watch_sessions (last_access_ts) WHERE open <> 1;

-- What a start finds still open was interrupted.
CREATE INDEX watch_sessions_open ON watch_sessions (wid) WHERE open = 1;

-- For people: watch sessions; an open one's cursors are a few seconds old.
CREATE VIEW v_watches AS
SELECT
    wid,
    nullif(key, '') AS key,
    CASE open WHEN 0 THEN 'idle' WHEN 1 THEN 'open' ELSE 'interrupted' END AS state,
    generation,
    (SELECT count(*) FROM json_each(cursors)) AS topics,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_ts / 1000.0, 'unixepoch') AS created,
    strftime('%Y-%m-%dT%H:%M:%fZ', last_access_ts / 1000.0, 'unixepoch') AS last_access,
    cursors,
    spec
FROM watch_sessions
ORDER BY created_ts, wid;

-- For people: topics as of the last checkpoint.
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

-- For people: segments with the names of their topics.
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
