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
