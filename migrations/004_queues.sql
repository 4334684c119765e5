-- Queues: who holds which job, as of the last checkpoint.

CREATE TABLE queues (
    log_id        INTEGER NOT NULL PRIMARY KEY REFERENCES logs (id) ON DELETE CASCADE,
    cursor        INTEGER NOT NULL,
    dead_lettered INTEGER NOT NULL
) STRICT;

CREATE TABLE leases (
    log_id     INTEGER NOT NULL REFERENCES logs (id) ON DELETE CASCADE,
    seq        INTEGER NOT NULL,
    free_at    INTEGER NOT NULL,
    lease      INTEGER NOT NULL,
    node       TEXT NOT NULL,
    deliveries INTEGER NOT NULL,
    PRIMARY KEY (log_id, seq)
) STRICT, WITHOUT ROWID;

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
