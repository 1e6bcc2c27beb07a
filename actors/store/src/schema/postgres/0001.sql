-- The store's tables, as SQLite has them. What orders or finds rows is compared by bytes (COLLATE "C"), as there.
-- Released files are never edited: a change is the next file. Times are Unix milliseconds (`_ms`).

CREATE TABLE meta (name TEXT COLLATE "C" NOT NULL PRIMARY KEY, value TEXT NOT NULL);

-- Who wrote here: one row a process name. The epoch grows at each opening.
CREATE TABLE writer (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL,
    run TEXT NOT NULL,
    since_ms BIGINT NOT NULL,
    closed BIGINT NOT NULL DEFAULT 0
);

-- Counters without gaps: 'r/STREAM', 'task', 'i/RECIPIENT', 'a/CHAIN'.
CREATE TABLE stream (name TEXT COLLATE "C" NOT NULL PRIMARY KEY, last BIGINT NOT NULL);

CREATE TABLE record (
    stream TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    key TEXT COLLATE "C",
    at_ms BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (stream, number)
);
CREATE UNIQUE INDEX record_key ON record (stream, key) WHERE key IS NOT NULL;
CREATE INDEX record_at ON record (at_ms);

CREATE TABLE task (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL UNIQUE,
    scope TEXT COLLATE "C" NOT NULL,
    owner TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C",
    request_mark TEXT NOT NULL,
    parent TEXT COLLATE "C",
    agent TEXT NOT NULL,
    message TEXT NOT NULL,
    class TEXT NOT NULL CHECK (class IN ('public', 'internal', 'personal', 'clinical')),
    on_restart TEXT NOT NULL CHECK (on_restart IN ('resume', 'fail')),
    state TEXT NOT NULL CHECK (state IN ('submitted', 'working', 'input_required', 'auth_required', 'completed', 'failed',
        'canceled', 'rejected')),
    waiting BIGINT NOT NULL DEFAULT 0 CHECK (waiting >= 0),
    children_open BIGINT NOT NULL DEFAULT 0 CHECK (children_open >= 0),
    cancel BIGINT NOT NULL DEFAULT 0,
    lease_by TEXT COLLATE "C",
    lease_epoch BIGINT NOT NULL DEFAULT 0,
    lease_until_ms BIGINT,
    created_ms BIGINT NOT NULL,
    updated_ms BIGINT NOT NULL,
    deadline_ms BIGINT,
    expires_ms BIGINT NOT NULL,
    last_event BIGINT NOT NULL DEFAULT 0,
    bytes BIGINT NOT NULL DEFAULT 0,
    body TEXT NOT NULL
);
CREATE UNIQUE INDEX task_key ON task (scope, owner, key) WHERE key IS NOT NULL;
CREATE INDEX task_owner ON task (scope, owner, number);
CREATE INDEX task_parent ON task (parent) WHERE parent IS NOT NULL;
CREATE INDEX task_expires ON task (expires_ms);
CREATE INDEX task_updated ON task (updated_ms);
CREATE INDEX task_lease ON task (lease_by) WHERE lease_by IS NOT NULL;
CREATE INDEX task_ready ON task (scope, number)
    WHERE state IN ('submitted', 'working', 'input_required', 'auth_required') AND waiting = 0 AND children_open = 0;

CREATE FUNCTION task_is_final() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    RAISE EXCEPTION 'callboard: no state follows a terminal one' USING ERRCODE = 'integrity_constraint_violation';
END
$body$;
CREATE TRIGGER task_is_final BEFORE UPDATE OF state ON task FOR EACH ROW
    WHEN (OLD.state IN ('completed', 'failed', 'canceled', 'rejected') AND NEW.state <> OLD.state)
    EXECUTE FUNCTION task_is_final();
CREATE FUNCTION task_parent_waits() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    RAISE EXCEPTION 'callboard: a parent completes after its children' USING ERRCODE = 'integrity_constraint_violation';
END
$body$;
CREATE TRIGGER task_parent_waits BEFORE UPDATE OF state ON task FOR EACH ROW
    WHEN (NEW.state = 'completed' AND OLD.state <> 'completed' AND NEW.children_open > 0)
    EXECUTE FUNCTION task_parent_waits();

CREATE TABLE task_need (task TEXT COLLATE "C" NOT NULL, needs TEXT COLLATE "C" NOT NULL, PRIMARY KEY (task, needs));
CREATE INDEX task_need_needs ON task_need (needs);

CREATE TABLE task_event (
    task TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('submitted', 'working', 'input_required', 'auth_required', 'completed', 'failed',
        'canceled', 'rejected')),
    is_end BIGINT NOT NULL DEFAULT 0 CHECK (is_end IN (0, 1)),
    body TEXT NOT NULL,
    PRIMARY KEY (task, number)
);
CREATE UNIQUE INDEX task_ends_once ON task_event (task) WHERE is_end = 1;
CREATE FUNCTION task_event_stays() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    RAISE EXCEPTION 'callboard: an event is never changed' USING ERRCODE = 'integrity_constraint_violation';
END
$body$;
CREATE TRIGGER task_event_stays BEFORE UPDATE ON task_event FOR EACH ROW
    EXECUTE FUNCTION task_event_stays();

CREATE TABLE inbox (
    recipient TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    key TEXT COLLATE "C",
    sender TEXT NOT NULL,
    kind TEXT NOT NULL,
    topic TEXT,
    reply_to BIGINT,
    class TEXT NOT NULL CHECK (class IN ('public', 'internal', 'personal')),
    state TEXT NOT NULL CHECK (state IN ('accepted', 'delivered', 'read')),
    at_ms BIGINT NOT NULL,
    due_ms BIGINT NOT NULL,
    delivered_ms BIGINT,
    read_ms BIGINT,
    attempts BIGINT NOT NULL DEFAULT 0,
    expires_ms BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    mark TEXT NOT NULL,
    body TEXT,
    PRIMARY KEY (recipient, number)
);
CREATE UNIQUE INDEX inbox_key ON inbox (recipient, key) WHERE key IS NOT NULL;
CREATE INDEX inbox_due ON inbox (recipient, number) WHERE state = 'accepted';
CREATE INDEX inbox_unread ON inbox (recipient, expires_ms) WHERE state <> 'read';
CREATE INDEX inbox_at ON inbox (at_ms);

CREATE TABLE note (
    space TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (space, key)
);

CREATE TABLE audit (
    chain TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    event TEXT NOT NULL,
    agent TEXT,
    principal TEXT,
    call_id TEXT,
    class TEXT NOT NULL CHECK (class IN ('public', 'internal', 'personal', 'clinical')),
    line TEXT NOT NULL,
    hash BYTEA NOT NULL,
    PRIMARY KEY (chain, number)
);
CREATE INDEX audit_at ON audit (at_ms);
CREATE FUNCTION audit_stays() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    RAISE EXCEPTION 'callboard: an audit entry is never changed' USING ERRCODE = 'integrity_constraint_violation';
END
$body$;
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit FOR EACH ROW
    EXECUTE FUNCTION audit_stays();

CREATE TABLE audit_checkpoint (
    chain TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    hash BYTEA NOT NULL,
    key_id TEXT NOT NULL,
    signature BYTEA NOT NULL,
    PRIMARY KEY (chain, number)
);
