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

-- Seqs lost involuntarily, both ends included: what a crash took (lost), or a seq that stands
-- for what a router's source lost before it was copied (source_trim).
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

-- What a queue knows beside its log.
CREATE TABLE queues (
    log_id        INTEGER NOT NULL PRIMARY KEY REFERENCES logs (id) ON DELETE CASCADE,
    cursor        INTEGER NOT NULL,      -- jobs from here on were never delivered
    dead_lettered INTEGER NOT NULL       -- jobs moved to the dead-letter topic so far
) STRICT;

-- Jobs that were delivered, or put off, and are not done.
CREATE TABLE leases (
    log_id     INTEGER NOT NULL REFERENCES logs (id) ON DELETE CASCADE,
    seq        INTEGER NOT NULL,
    free_at    INTEGER NOT NULL,         -- claimable from this time on
    lease      INTEGER NOT NULL,         -- 0: nobody holds it
    node       TEXT NOT NULL,
    deliveries INTEGER NOT NULL,
    PRIMARY KEY (log_id, seq)
) STRICT, WITHOUT ROWID;

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

-- One row a router: records of its source are copied to its destination.
CREATE TABLE routers (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    name            TEXT NOT NULL COLLATE BINARY UNIQUE,
    source_id       INTEGER NOT NULL REFERENCES logs (id) ON DELETE CASCADE,
    dest_id         INTEGER NOT NULL REFERENCES logs (id) ON DELETE CASCADE,
    config          TEXT NOT NULL CHECK (json_valid(config)),
    start_seq       INTEGER NOT NULL,    -- source seqs up to here were there before the router
    cursor          INTEGER NOT NULL,    -- source seqs up to here are copied, or need not be
    forwarded_total INTEGER NOT NULL,    -- copies that it ever made
    created_ts      INTEGER NOT NULL
) STRICT;

-- A log that goes takes its routers with it.
CREATE INDEX routers_by_source ON routers (source_id);

CREATE INDEX routers_by_dest ON routers (dest_id);

-- For people: routers as of the last checkpoint; lag is in seqs of the source.
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

-- For people: queues as of the last checkpoint, with leases that ran out since counted as ready.
CREATE VIEW v_queues AS
SELECT
    logs.name,
    logs.count - coalesce(known.in_flight, 0) - coalesce(known.delayed, 0) AS ready,
    coalesce(known.in_flight, 0) AS in_flight,
    coalesce(known.delayed, 0) AS delayed,
    coalesce(queues.dead_lettered, 0) AS dead_lettered,
    logs.count AS jobs,
    logs.head_seq,
    json_extract(logs.config, '$.lease_ms') AS lease_ms,
    json_extract(logs.config, '$.max_deliveries') AS max_deliveries,
    json_extract(logs.config, '$.dead_letter') AS dead_letter,
    strftime('%Y-%m-%dT%H:%M:%fZ', nullif(last_write_ts, 0) / 1000.0, 'unixepoch') AS last_write,
    logs.id
FROM logs
LEFT JOIN queues ON queues.log_id = logs.id
LEFT JOIN (
    SELECT log_id, sum(lease <> 0) AS in_flight, sum(lease = 0) AS delayed
    FROM leases
    WHERE free_at > CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)
    GROUP BY log_id
) AS known ON known.log_id = logs.id
WHERE json_extract(logs.config, '$.type') = 'queue'
ORDER BY logs.name;

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

-- Durable streams.

CREATE INDEX logs_by_kind ON logs (kind, name);

CREATE TABLE streams (
    log_id     INTEGER NOT NULL PRIMARY KEY REFERENCES logs (id) ON DELETE CASCADE,
    -- The log it was forked from; that one is kept as long as this one.
    source_id  INTEGER REFERENCES logs (id),
    ttl_ms     INTEGER,
    expires_ts INTEGER,
    -- Deleted, and kept for its forks.
    gone       INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX streams_by_source ON streams (source_id) WHERE source_id IS NOT NULL;

CREATE INDEX streams_mortal ON streams (log_id) WHERE ttl_ms IS NOT NULL OR expires_ts IS NOT NULL;

CREATE TABLE stream_states (
    log_id   INTEGER NOT NULL PRIMARY KEY REFERENCES logs (id) ON DELETE CASCADE,
    closed   INTEGER NOT NULL,
    last_seq TEXT,
    -- The producer that closed it: a JSON array of id, epoch and seq.
    closer   TEXT
) STRICT;

CREATE TABLE producers (
    log_id   INTEGER NOT NULL REFERENCES logs (id) ON DELETE CASCADE,
    producer TEXT NOT NULL COLLATE BINARY,
    epoch    INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    PRIMARY KEY (log_id, producer)
) STRICT, WITHOUT ROWID;

CREATE VIEW v_streams AS
SELECT
    logs.name,
    logs.config ->> '$.stream.content_type' AS content_type,
    coalesce(stream_states.closed, 0) AS closed,
    streams.gone AS deleted,
    logs.head_seq AS entries,
    logs.earliest_seq,
    logs.bytes,
    streams.ttl_ms,
    strftime('%Y-%m-%dT%H:%M:%fZ', streams.expires_ts / 1000.0, 'unixepoch') AS expires,
    sources.name AS forked_from,
    logs.config ->> '$.stream.fork.seq' AS forked_at,
    (SELECT count(*) FROM producers WHERE producers.log_id = logs.id) AS producers,
    strftime('%Y-%m-%dT%H:%M:%fZ', logs.created_ts / 1000.0, 'unixepoch') AS created,
    logs.epoch,
    logs.id
FROM logs
JOIN streams ON streams.log_id = logs.id
LEFT JOIN stream_states ON stream_states.log_id = logs.id
LEFT JOIN logs AS sources ON sources.id = streams.source_id
ORDER BY logs.name;

-- Subscriptions of the Durable Streams protocol: who is to be woken, and how far each one got.

CREATE TABLE subscriptions (
    id           TEXT NOT NULL PRIMARY KEY COLLATE BINARY,
    config       TEXT NOT NULL,
    config_hash  TEXT NOT NULL,
    created_ts   INTEGER NOT NULL,
    -- idle, waking (a webhook or wake event is out) or live (somebody holds the lease).
    phase        TEXT NOT NULL,
    generation   INTEGER NOT NULL,
    wake_id      TEXT NOT NULL,
    holder       TEXT NOT NULL,
    token_hash   TEXT NOT NULL,
    lease_until  INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    next_retry_ts INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE subscription_links (
    subscription TEXT NOT NULL REFERENCES subscriptions (id) ON DELETE CASCADE,
    path         TEXT NOT NULL COLLATE BINARY,
    link_type    TEXT NOT NULL,
    -- The position up to which it is acknowledged; 0 and 0 for the start.
    epoch        INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    PRIMARY KEY (subscription, path)
) STRICT, WITHOUT ROWID;
