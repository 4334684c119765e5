-- Watch sessions: what each follows and how far it got.

CREATE TABLE watch_sessions (
    wid            TEXT NOT NULL COLLATE BINARY PRIMARY KEY,
    key            TEXT NOT NULL,
    spec           TEXT NOT NULL,
    cursors        TEXT NOT NULL CHECK (json_valid(cursors)),
    openings       TEXT NOT NULL CHECK (json_valid(openings)),
    generation     INTEGER NOT NULL,
    open           INTEGER NOT NULL CHECK (open IN (0, 1, 2)),
    created_ts     INTEGER NOT NULL,
    last_access_ts INTEGER NOT NULL
) STRICT;

CREATE INDEX watch_sessions_by_access ON watch_sessions (last_access_ts) WHERE open <> 1;

CREATE INDEX watch_sessions_open ON watch_sessions (wid) WHERE open = 1;

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
