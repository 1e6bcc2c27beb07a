-- Mail, as SQLite has it: a letter once, with all its recipients; a copy for each recipient follows.

CREATE TABLE letter (
    number BIGINT NOT NULL PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL UNIQUE,
    sender TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C",
    kind TEXT NOT NULL CHECK (kind IN ('direct', 'broadcast', 'group', 'guidance')),
    label TEXT,
    audience TEXT NOT NULL,
    thread TEXT COLLATE "C" NOT NULL,
    reply_to TEXT,
    topic TEXT,
    urgent BIGINT NOT NULL CHECK (urgent IN (0, 1)),
    class TEXT NOT NULL CHECK (class IN ('public', 'internal', 'personal')),
    at_ms BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL,
    recipients TEXT NOT NULL,
    count BIGINT NOT NULL,
    spread BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    mark TEXT NOT NULL,
    body TEXT
);
CREATE UNIQUE INDEX letter_key ON letter (sender, key) WHERE key IS NOT NULL;
CREATE INDEX letter_thread ON letter (thread, number);
CREATE INDEX letter_sender ON letter (sender, number);
CREATE INDEX letter_unspread ON letter (number) WHERE spread < count;
CREATE INDEX letter_at ON letter (at_ms);
CREATE INDEX letter_body ON letter (at_ms) WHERE body IS NOT NULL;
CREATE INDEX letter_expires ON letter (expires_ms) WHERE body IS NOT NULL;

CREATE TABLE copy (
    recipient TEXT COLLATE "C" NOT NULL,
    letter BIGINT NOT NULL,
    urgent BIGINT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('accepted', 'delivered', 'read')),
    at_ms BIGINT NOT NULL,
    delivered_ms BIGINT,
    read_ms BIGINT,
    attempts BIGINT NOT NULL DEFAULT 0,
    expires_ms BIGINT NOT NULL,
    PRIMARY KEY (recipient, letter)
);
CREATE INDEX copy_open ON copy (recipient, urgent, letter) WHERE state <> 'read';

CREATE VIEW agent_log AS
SELECT
    letter.number * 16384 + one.key - 1 AS number,
    letter.number AS letter,
    'agent_communication' AS log_type,
    one.value AS agent_id,
    CASE letter.kind WHEN 'direct' THEN 'Direct message' WHEN 'broadcast' THEN 'Broadcast message'
        WHEN 'group' THEN 'Group message' ELSE 'Guidance' END || ' from agent ' || substr(letter.sender, 1, 8) AS message,
    CAST(json_build_object('sender_id', letter.sender, 'recipient_id', one.value, 'message_type', letter.kind,
        'message_content', substr(coalesce(letter.body, ''), 1, 200),
        'timestamp', to_char(to_timestamp(letter.at_ms / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
        AS TEXT) AS details
FROM letter, json_array_elements_text(CAST(letter.recipients AS json)) WITH ORDINALITY AS one (value, key);
