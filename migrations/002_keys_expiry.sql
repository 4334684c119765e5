-- Idempotency keys carry the time when their window ends, so that forgetting them looks at
-- expired keys only, whichever log they belong to and however quiet that log is.

ALTER TABLE idempotency ADD COLUMN expires_ts INTEGER NOT NULL DEFAULT 0;

-- Windows may be larger than any time; keys of such logs stay.
UPDATE idempotency
SET expires_ts = (
    SELECT CAST(min(
        idempotency.ts + CAST(json_extract(logs.config, '$.idempotency_window_ms') AS REAL),
        9.2e18
    ) AS INTEGER)
    FROM logs
    WHERE logs.id = idempotency.log_id
);

DROP INDEX idempotency_by_ts;

CREATE INDEX idempotency_by_expiry ON idempotency (expires_ts);
