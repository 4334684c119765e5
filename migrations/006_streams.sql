-- Durable streams: what a start, a reclaim and a listing look for, and what appends carry.

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
