-- Mail: a letter once, with all its recipients; a copy for each recipient follows.
PRAGMA user_version = 2;

CREATE TABLE letter (
    number INTEGER NOT NULL PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    sender TEXT NOT NULL,
    key TEXT,
    kind TEXT NOT NULL CHECK (kind IN ('direct', 'broadcast', 'group', 'guidance')),
    label TEXT,
    audience TEXT NOT NULL,
    thread TEXT NOT NULL,
    reply_to TEXT,
    topic TEXT,
    urgent INTEGER NOT NULL CHECK (urgent IN (0, 1)),
    class TEXT NOT NULL CHECK (class IN ('public', 'internal', 'personal')),
    at_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    recipients TEXT NOT NULL,
    count INTEGER NOT NULL,
    spread INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    mark TEXT NOT NULL,
    body TEXT
) STRICT;
CREATE UNIQUE INDEX letter_key ON letter (sender, key) WHERE key IS NOT NULL;
CREATE INDEX letter_thread ON letter (thread, number);
CREATE INDEX letter_sender ON letter (sender, number);
CREATE INDEX letter_unspread ON letter (number) WHERE spread < count;
CREATE INDEX letter_at ON letter (at_ms);
CREATE INDEX letter_body ON letter (at_ms) WHERE body IS NOT NULL;
CREATE INDEX letter_expires ON letter (expires_ms) WHERE body IS NOT NULL;

-- No further index: each costs a broadcast a page a recipient.
CREATE TABLE copy (
    recipient TEXT NOT NULL,
    letter INTEGER NOT NULL,
    urgent INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('accepted', 'delivered', 'read')),
    at_ms INTEGER NOT NULL,
    delivered_ms INTEGER,
    read_ms INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    expires_ms INTEGER NOT NULL,
    PRIMARY KEY (recipient, letter)
) STRICT, WITHOUT ROWID;
CREATE INDEX copy_open ON copy (recipient, urgent, letter) WHERE state <> 'read';

-- A row a letter and recipient; its number grows with both, for no letter has more recipients than 16,384.
CREATE VIEW agent_log AS
SELECT
    letter.number * 16384 + one.key AS number,
    letter.number AS letter,
    'agent_communication' AS log_type,
    one.value AS agent_id,
    CASE letter.kind WHEN 'direct' THEN 'Direct message' WHEN 'broadcast' THEN 'Broadcast message'
        WHEN 'group' THEN 'Group message' ELSE 'Guidance' END || ' from agent ' || substr(letter.sender, 1, 8) AS message,
    json_object('sender_id', letter.sender, 'recipient_id', one.value, 'message_type', letter.kind,
        'message_content', substr(coalesce(letter.body, ''), 1, 200),
        'timestamp', strftime('%Y-%m-%dT%H:%M:%fZ', letter.at_ms / 1000.0, 'unixepoch')) AS details
FROM letter, json_each(letter.recipients) AS one;
