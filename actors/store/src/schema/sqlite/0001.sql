-- The store's tables. Released files are never edited: a change is the next file. Times are Unix milliseconds (`_ms`).
PRAGMA application_id = 0x636c6264;
PRAGMA user_version = 1;

CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

-- Who wrote here: one row a process name. The epoch grows at each opening.
CREATE TABLE writer (
    name TEXT NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL,
    run TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    closed INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- Counters without gaps: 'r/STREAM', 'task', 'i/RECIPIENT', 'a/CHAIN'.
CREATE TABLE stream (name TEXT NOT NULL PRIMARY KEY, last INTEGER NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE record (
    stream TEXT NOT NULL,
    number INTEGER NOT NULL,
    key TEXT,
    at_ms INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (stream, number)
) STRICT;
CREATE UNIQUE INDEX record_key ON record (stream, key) WHERE key IS NOT NULL;
CREATE INDEX record_at ON record (at_ms);

CREATE TABLE task (
    id TEXT NOT NULL PRIMARY KEY,
    number INTEGER NOT NULL UNIQUE,
    scope TEXT NOT NULL,
    owner TEXT NOT NULL,
    key TEXT,
    request_mark TEXT NOT NULL,
    parent TEXT,
    agent TEXT NOT NULL,
    message TEXT NOT NULL,
    class TEXT NOT NULL CHECK (class IN ('public', 'internal', 'personal', 'clinical')),
    on_restart TEXT NOT NULL CHECK (on_restart IN ('resume', 'fail')),
    state TEXT NOT NULL CHECK (state IN ('submitted', 'working', 'input_required', 'auth_required', 'completed', 'failed',
        'canceled', 'rejected')),
    waiting INTEGER NOT NULL DEFAULT 0 CHECK (waiting >= 0),
    children_open INTEGER NOT NULL DEFAULT 0 CHECK (children_open >= 0),
    cancel INTEGER NOT NULL DEFAULT 0,
    lease_by TEXT,
    lease_epoch INTEGER NOT NULL DEFAULT 0,
    lease_until_ms INTEGER,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    deadline_ms INTEGER,
    expires_ms INTEGER NOT NULL,
    last_event INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    body TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX task_key ON task (scope, owner, key) WHERE key IS NOT NULL;
CREATE INDEX task_owner ON task (scope, owner, number);
CREATE INDEX task_parent ON task (parent) WHERE parent IS NOT NULL;
CREATE INDEX task_expires ON task (expires_ms);
CREATE INDEX task_updated ON task (updated_ms);
CREATE INDEX task_lease ON task (lease_by) WHERE lease_by IS NOT NULL;
CREATE INDEX task_ready ON task (scope, number)
    WHERE state IN ('submitted', 'working', 'input_required', 'auth_required') AND waiting = 0 AND children_open = 0;

CREATE TRIGGER task_is_final BEFORE UPDATE OF state ON task
    WHEN OLD.state IN ('completed', 'failed', 'canceled', 'rejected') AND NEW.state <> OLD.state
BEGIN
    SELECT RAISE(ABORT, 'callboard: no state follows a terminal one');
END;
CREATE TRIGGER task_parent_waits BEFORE UPDATE OF state ON task
    WHEN NEW.state = 'completed' AND OLD.state <> 'completed' AND NEW.children_open > 0
BEGIN
    SELECT RAISE(ABORT, 'callboard: a parent completes after its children');
END;

CREATE TABLE task_need (task TEXT NOT NULL, needs TEXT NOT NULL, PRIMARY KEY (task, needs)) STRICT, WITHOUT ROWID;
CREATE INDEX task_need_needs ON task_need (needs);

CREATE TABLE task_event (
    task TEXT NOT NULL,
    number INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('submitted', 'working', 'input_required', 'auth_required', 'completed', 'failed',
        'canceled', 'rejected')),
    is_end INTEGER NOT NULL DEFAULT 0 CHECK (is_end IN (0, 1)),
    body TEXT NOT NULL,
    PRIMARY KEY (task, number)
) STRICT;
CREATE UNIQUE INDEX task_ends_once ON task_event (task) WHERE is_end = 1;
CREATE TRIGGER task_event_stays BEFORE UPDATE ON task_event
BEGIN
    SELECT RAISE(ABORT, 'callboard: an event is never changed');
END;

CREATE TABLE inbox (
    recipient TEXT NOT NULL,
    number INTEGER NOT NULL,
    key TEXT,
    sender TEXT NOT NULL,
    kind TEXT NOT NULL,
    topic TEXT,
    reply_to INTEGER,
    class TEXT NOT NULL CHECK (class IN ('public', 'internal', 'personal')),
    state TEXT NOT NULL CHECK (state IN ('accepted', 'delivered', 'read')),
    at_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    delivered_ms INTEGER,
    read_ms INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    expires_ms INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    mark TEXT NOT NULL,
    body TEXT,
    PRIMARY KEY (recipient, number)
) STRICT;
CREATE UNIQUE INDEX inbox_key ON inbox (recipient, key) WHERE key IS NOT NULL;
CREATE INDEX inbox_due ON inbox (recipient, number) WHERE state = 'accepted';
CREATE INDEX inbox_unread ON inbox (recipient, expires_ms) WHERE state <> 'read';
CREATE INDEX inbox_at ON inbox (at_ms);

CREATE TABLE note (
    space TEXT NOT NULL,
    key TEXT NOT NULL,
    version INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (space, key)
) STRICT;

CREATE TABLE audit (
    chain TEXT NOT NULL,
    number INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    event TEXT NOT NULL,
    agent TEXT,
    principal TEXT,
    call_id TEXT,
    class TEXT NOT NULL CHECK (class IN ('public', 'internal', 'personal', 'clinical')),
    line TEXT NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (chain, number)
) STRICT;
CREATE INDEX audit_at ON audit (at_ms);
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'callboard: an audit entry is never changed');
END;

CREATE TABLE audit_checkpoint (
    chain TEXT NOT NULL,
    number INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    hash BLOB NOT NULL,
    key_id TEXT NOT NULL,
    signature BLOB NOT NULL,
    PRIMARY KEY (chain, number)
) STRICT;
