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

-- Inboxes are gone: what they were for, letters do.
DROP TABLE inbox;
DELETE FROM stream WHERE substr(name, 1, 2) = 'i/';

INSERT INTO public.audit SELECT * FROM json_populate_record(NULL::public.audit, '{"chain":"node","number":1,"at_ms":1795417764818,"event":"run.started","agent":null,"principal":null,"call_id":null,"class":"internal","line":"{\"at_ms\":1795417764818,\"chain\":\"node\",\"class\":\"internal\",\"event\":\"run.started\",\"more\":{\"key\":\"3bdf1e620fe2b54b\",\"unsigned\":0,\"worker\":\"node#1\"},\"number\":1,\"run\":\"052cc60d-8c75-40f1-80a8-a7ca21335b75\",\"v\":1}","hash":"\\xaa0a3088920e2bab3b9dfe9ad05503dc687d1670b96c646be3c367a93ca97f74"}');
INSERT INTO public.audit SELECT * FROM json_populate_record(NULL::public.audit, '{"chain":"node","number":10,"at_ms":1795417767908,"event":"agent_communication","agent":"2 agents","principal":null,"call_id":null,"class":"internal","line":"{\"agent\":\"2 agents\",\"at_ms\":1795417767908,\"body\":{\"bytes\":17,\"hash\":\"sha256:8e454e9a0bc5199c0880d4cc1e7a6a8770272e8b58678c2d162d9b3d9d009f87\"},\"chain\":\"node\",\"class\":\"internal\",\"event\":\"agent_communication\",\"more\":{\"kind\":\"guidance\",\"names\":[\"bob\",\"eve\"],\"number\":4,\"recipients\":2,\"recipients_sha256\":\"ce99c9ca08ff08a60ce29f5c3fef5aac222032bb53a5d9f43f6007b10da8d489\"},\"number\":10,\"outcome\":\"accepted\",\"peer\":\"ann\",\"run\":\"052cc60d-8c75-40f1-80a8-a7ca21335b75\",\"v\":1}","hash":"\\xab4c47000884538b4adeaeabafd9f67734dd6fc61ec5fdd5c3fdc641e31d1977"}');
INSERT INTO public.audit SELECT * FROM json_populate_record(NULL::public.audit, '{"chain":"node","number":11,"at_ms":1795417768788,"event":"message","agent":"clinic","principal":"anonymous","call_id":"01890a5d-ac96-774b-bcce-b302099a8057","class":"clinical","line":"{\"agent\":\"clinic\",\"at_ms\":1795417768788,\"body\":{\"bytes\":9,\"hash\":\"hmac-sha256:0dff214f2d3f24269624ecfe84bff47f42efcc285bc09597231a810d7ddc1d65\"},\"call\":\"01890a5d-ac96-774b-bcce-b302099a8057\",\"chain\":\"node\",\"class\":\"clinical\",\"event\":\"message\",\"message\":\"ask\",\"more\":{\"flag\":true,\"list\":[\"a\"],\"number\":1,\"text\":\"t\"},\"number\":11,\"outcome\":\"ok\",\"peer\":\"10.0.0.1\",\"principal\":{\"id\":\"anonymous\",\"kind\":\"anonymous\"},\"run\":\"052cc60d-8c75-40f1-80a8-a7ca21335b75\",\"v\":1}","hash":"\\xfab3040aabfc5139361e2d7046bf8c62ea532700aa0e9055d34ec0593a984f13"}');
INSERT INTO public.audit SELECT * FROM json_populate_record(NULL::public.audit, '{"chain":"node","number":12,"at_ms":1795417768834,"event":"run.ended","agent":null,"principal":null,"call_id":null,"class":"internal","line":"{\"at_ms\":1795417768834,\"chain\":\"node\",\"class\":\"internal\",\"event\":\"run.ended\",\"number\":12,\"run\":\"052cc60d-8c75-40f1-80a8-a7ca21335b75\",\"v\":1}","hash":"\\xda97b04a8133b4bcdd600d0c79f978e072aefd2b1eb4e03e8d9c8a4f4f631e61"}');
INSERT INTO public.audit SELECT * FROM json_populate_record(NULL::public.audit, '{"chain":"node","number":13,"at_ms":1795417769194,"event":"run.started","agent":null,"principal":null,"call_id":null,"class":"internal","line":"{\"at_ms\":1795417769194,\"chain\":\"node\",\"class\":\"internal\",\"event\":\"run.started\",\"more\":{\"key\":\"3bdf1e620fe2b54b\",\"unsigned\":0,\"worker\":\"node#2\"},\"number\":13,\"run\":\"c1282099-5013-441d-8930-f78faef24b2b\",\"v\":1}","hash":"\\xace870c5c961308e701497569f7c18b0f25615018a6ac7d48d91d7f878b85f62"}');
INSERT INTO public.audit SELECT * FROM json_populate_record(NULL::public.audit, '{"chain":"node","number":14,"at_ms":1795417769992,"event":"run.ended","agent":null,"principal":null,"call_id":null,"class":"internal","line":"{\"at_ms\":1795417769992,\"chain\":\"node\",\"class\":\"internal\",\"event\":\"run.ended\",\"number\":14,\"run\":\"c1282099-5013-441d-8930-f78faef24b2b\",\"v\":1}","hash":"\\xaa80babb15fc2a0b9c2e0143abe3b4bc099d3c59cb32ac5d40e3c8766d978277"}');
INSERT INTO public.audit SELECT * FROM json_populate_record(NULL::public.audit, '{"chain":"node","number":2,"at_ms":1795417765536,"event":"task","agent":"clinic","principal":"ann","call_id":null,"class":"personal","line":"{\"agent\":\"clinic\",\"at_ms\":1795417765536,\"chain\":\"node\",\"class\":\"personal\",\"event\":\"task\",\"message\":\"ask\",\"more\":{\"events\":9,\"owner\":\"api_key:ann\",\"scope\":\"agent\",\"task\":\"completed\"},\"number\":2,\"outcome\":\"completed\",\"principal\":{\"id\":\"ann\",\"kind\":\"api_key\"},\"run\":\"052cc60d-8c75-40f1-80a8-a7ca21335b75\",\"v\":1}","hash":"\\xce7d7e3b105841af91ccd22bda689abe47ca582913d4eb83da515f33daeeae2a"}');
INSERT INTO public.audit SELECT * FROM json_populate_record(NULL::public.audit, '{"chain":"node","number":3,"at_ms":1795417765950,"event":"task","agent":"clinic","principal":"ann","call_id":null,"class":"personal","line":"{\"agent\":\"clinic\",\"at_ms\":1795417765950,\"chain\":\"node\",\"class\":\"personal\",\"event\":\"task\",\"message\":\"ask\",\"more\":{\"events\":3,\"owner\":\"api_key:ann\",\"scope\":\"agent\",\"task\":\"failed\"},\"number\":3,\"outcome\":\"failed\",\"principal\":{\"id\":\"ann\",\"kind\":\"api_key\"},\"run\":\"052cc60d-8c75-40f1-80a8-a7ca21335b75\",\"v\":1}","hash":"\\x62603ad8fc2237228b65ec8e6416faf237a82bbcedfb0fb3f8bd5a89d1ff2032"}');
INSERT INTO public.audit SELECT * FROM json_populate_record(NULL::public.audit, '{"chain":"node","number":4,"at_ms":1795417766386,"event":"task","agent":"clinic","principal":"ann","call_id":null,"class":"personal","line":"{\"agent\":\"clinic\",\"at_ms\":1795417766386,\"chain\":\"node\",\"class\":\"personal\",\"event\":\"task\",\"message\":\"ask\",\"more\":{\"events\":2,\"owner\":\"api_key:ann\",\"scope\":\"agent\",\"task\":\"rejected\"},\"number\":4,\"outcome\":\"rejected\",\"principal\":{\"id\":\"ann\",\"kind\":\"api_key\"},\"run\":\"052cc60d-8c75-40f1-80a8-a7ca21335b75\",\"v\":1}","hash":"\\xca8e0aebb406af47151afe84afd6af044c52cdd5bfd7a9265927e4f384dfde6a"}');
INSERT INTO public.audit SELECT * FROM json_populate_record(NULL::public.audit, '{"chain":"node","number":5,"at_ms":1795417766649,"event":"task","agent":"clinic","principal":"ann","call_id":null,"class":"personal","line":"{\"agent\":\"clinic\",\"at_ms\":1795417766649,\"chain\":\"node\",\"class\":\"personal\",\"event\":\"task\",\"message\":\"ask\",\"more\":{\"events\":2,\"owner\":\"api_key:ann\",\"scope\":\"agent\",\"task\":\"cancelled\"},\"number\":5,\"outcome\":\"canceled\",\"principal\":{\"id\":\"ann\",\"kind\":\"api_key\"},\"run\":\"052cc60d-8c75-40f1-80a8-a7ca21335b75\",\"v\":1}","hash":"\\x861932dc8dcfd8f1b902127bf0e84c82d63ec04ad1db038583ce89dffe9b74f1"}');
INSERT INTO public.audit SELECT * FROM json_populate_record(NULL::public.audit, '{"chain":"node","number":6,"at_ms":1795417767354,"event":"task","agent":"clinic","principal":"ann","call_id":null,"class":"clinical","line":"{\"agent\":\"clinic\",\"at_ms\":1795417767354,\"chain\":\"node\",\"class\":\"clinical\",\"event\":\"task\",\"message\":\"ask\",\"more\":{\"events\":2,\"owner\":\"api_key:ann\",\"scope\":\"agent\",\"task\":\"clinical\"},\"number\":6,\"outcome\":\"completed\",\"principal\":{\"id\":\"ann\",\"kind\":\"api_key\"},\"run\":\"052cc60d-8c75-40f1-80a8-a7ca21335b75\",\"v\":1}","hash":"\\xbc50ab8b5c082db9a31d88f441962334dbf0a848206b533e00c1d8d8d12c8e0b"}');
INSERT INTO public.audit SELECT * FROM json_populate_record(NULL::public.audit, '{"chain":"node","number":7,"at_ms":1795417767494,"event":"agent_communication","agent":"2 agents","principal":null,"call_id":null,"class":"internal","line":"{\"agent\":\"2 agents\",\"at_ms\":1795417767494,\"body\":{\"bytes\":15,\"hash\":\"sha256:b9ae6de138a22881f80c2bcffdea2642cff11e6d932ce6623b94befb44f5bd88\"},\"chain\":\"node\",\"class\":\"internal\",\"event\":\"agent_communication\",\"more\":{\"kind\":\"direct\",\"names\":[\"bob\",\"eve\"],\"number\":1,\"recipients\":2,\"recipients_sha256\":\"ce99c9ca08ff08a60ce29f5c3fef5aac222032bb53a5d9f43f6007b10da8d489\"},\"number\":7,\"outcome\":\"accepted\",\"peer\":\"ann\",\"run\":\"052cc60d-8c75-40f1-80a8-a7ca21335b75\",\"v\":1}","hash":"\\xe32d334cbcf3ad9487fdf95cd3c2b17ddca629386624f7af3aefb042f6984669"}');
INSERT INTO public.audit SELECT * FROM json_populate_record(NULL::public.audit, '{"chain":"node","number":8,"at_ms":1795417767690,"event":"agent_communication","agent":"2 agents","principal":null,"call_id":null,"class":"internal","line":"{\"agent\":\"2 agents\",\"at_ms\":1795417767690,\"body\":{\"bytes\":18,\"hash\":\"sha256:ec7ca3c849bc90c0dbdd3066ed2e2663a974b08a7bfe8260c5eec92188ca23ed\"},\"chain\":\"node\",\"class\":\"internal\",\"event\":\"agent_communication\",\"more\":{\"kind\":\"broadcast\",\"names\":[\"bob\",\"eve\"],\"number\":2,\"recipients\":2,\"recipients_sha256\":\"ce99c9ca08ff08a60ce29f5c3fef5aac222032bb53a5d9f43f6007b10da8d489\"},\"number\":8,\"outcome\":\"accepted\",\"peer\":\"ann\",\"run\":\"052cc60d-8c75-40f1-80a8-a7ca21335b75\",\"v\":1}","hash":"\\x5e80fd1d72fc105277eea15bf1c64ace677a366fb11494af2af6859af910f844"}');
INSERT INTO public.audit SELECT * FROM json_populate_record(NULL::public.audit, '{"chain":"node","number":9,"at_ms":1795417767875,"event":"agent_communication","agent":"2 agents","principal":null,"call_id":null,"class":"internal","line":"{\"agent\":\"2 agents\",\"at_ms\":1795417767875,\"body\":{\"bytes\":14,\"hash\":\"sha256:678908edcce4ccd097a1694cddcb4dd5789004af58b1347189bbe0e241a6d14e\"},\"chain\":\"node\",\"class\":\"internal\",\"event\":\"agent_communication\",\"more\":{\"kind\":\"group\",\"names\":[\"bob\",\"eve\"],\"number\":3,\"recipients\":2,\"recipients_sha256\":\"ce99c9ca08ff08a60ce29f5c3fef5aac222032bb53a5d9f43f6007b10da8d489\"},\"number\":9,\"outcome\":\"accepted\",\"peer\":\"ann\",\"run\":\"052cc60d-8c75-40f1-80a8-a7ca21335b75\",\"v\":1}","hash":"\\x151099b9f3b52516f13e86c40015043cb83886de590857d60b9416eaaa6865f3"}');
INSERT INTO public.audit_checkpoint SELECT * FROM json_populate_record(NULL::public.audit_checkpoint, '{"chain":"node","number":1,"at_ms":1795417764819,"hash":"\\xaa0a3088920e2bab3b9dfe9ad05503dc687d1670b96c646be3c367a93ca97f74","key_id":"3bdf1e620fe2b54b","signature":"\\xe791467c79ff7821b01364621b6ed7ee0de781c1e5ec8f2ec9984404c362df8d04a81bc761aef65417adc2808932314ee32629e78dfa9cd132ea32d0fe58910e"}');
INSERT INTO public.audit_checkpoint SELECT * FROM json_populate_record(NULL::public.audit_checkpoint, '{"chain":"node","number":12,"at_ms":1795417768834,"hash":"\\xda97b04a8133b4bcdd600d0c79f978e072aefd2b1eb4e03e8d9c8a4f4f631e61","key_id":"3bdf1e620fe2b54b","signature":"\\x3262b684a6679bc271370895f14c2cd2fd28de532b3be4a6e18d123ee7a3ba9c3caad78ca0dada1f167bc9c9b7b9e000e4f375a3ef945a20740e40d2d0775e08"}');
INSERT INTO public.audit_checkpoint SELECT * FROM json_populate_record(NULL::public.audit_checkpoint, '{"chain":"node","number":13,"at_ms":1795417769194,"hash":"\\xace870c5c961308e701497569f7c18b0f25615018a6ac7d48d91d7f878b85f62","key_id":"3bdf1e620fe2b54b","signature":"\\x28b75f5a66c957e4aeb2e67b0f5866f0d546718a283b26fa8eaa058a1bbf94fd596ed5ce116e097b7910d0ae0b12e0cc05309bda7723d09a776dbd2b48d2320a"}');
INSERT INTO public.audit_checkpoint SELECT * FROM json_populate_record(NULL::public.audit_checkpoint, '{"chain":"node","number":14,"at_ms":1795417770002,"hash":"\\xaa80babb15fc2a0b9c2e0143abe3b4bc099d3c59cb32ac5d40e3c8766d978277","key_id":"3bdf1e620fe2b54b","signature":"\\xc6167db4516e81e717c51627ba3fc9e844a4957b5db59b844ea71c1b506d804d1370e10b82a8f6a86910459e1a16767209b491d091e22a74a224508275d6520c"}');
INSERT INTO public.copy SELECT * FROM json_populate_record(NULL::public.copy, '{"recipient":"bob","letter":1,"urgent":0,"state":"delivered","at_ms":1795417767494,"delivered_ms":1795417768078,"read_ms":null,"attempts":0,"expires_ms":4102444800000}');
INSERT INTO public.copy SELECT * FROM json_populate_record(NULL::public.copy, '{"recipient":"bob","letter":2,"urgent":0,"state":"read","at_ms":1795417767690,"delivered_ms":1795417768114,"read_ms":1795417768114,"attempts":0,"expires_ms":4102444800000}');
INSERT INTO public.copy SELECT * FROM json_populate_record(NULL::public.copy, '{"recipient":"bob","letter":3,"urgent":1,"state":"accepted","at_ms":1795417767875,"delivered_ms":null,"read_ms":null,"attempts":0,"expires_ms":4102444800000}');
INSERT INTO public.copy SELECT * FROM json_populate_record(NULL::public.copy, '{"recipient":"bob","letter":4,"urgent":0,"state":"accepted","at_ms":1795417767908,"delivered_ms":null,"read_ms":null,"attempts":0,"expires_ms":4102444800000}');
INSERT INTO public.copy SELECT * FROM json_populate_record(NULL::public.copy, '{"recipient":"eve","letter":1,"urgent":0,"state":"accepted","at_ms":1795417767494,"delivered_ms":null,"read_ms":null,"attempts":1,"expires_ms":4102444800000}');
INSERT INTO public.copy SELECT * FROM json_populate_record(NULL::public.copy, '{"recipient":"eve","letter":2,"urgent":0,"state":"delivered","at_ms":1795417767690,"delivered_ms":1795417768078,"read_ms":null,"attempts":0,"expires_ms":4102444800000}');
INSERT INTO public.copy SELECT * FROM json_populate_record(NULL::public.copy, '{"recipient":"eve","letter":3,"urgent":1,"state":"accepted","at_ms":1795417767875,"delivered_ms":null,"read_ms":null,"attempts":0,"expires_ms":4102444800000}');
INSERT INTO public.copy SELECT * FROM json_populate_record(NULL::public.copy, '{"recipient":"eve","letter":4,"urgent":0,"state":"accepted","at_ms":1795417767908,"delivered_ms":null,"read_ms":null,"attempts":0,"expires_ms":4102444800000}');
INSERT INTO public.letter SELECT * FROM json_populate_record(NULL::public.letter, '{"number":1,"id":"01890a5d-ac96-774b-bcce-b302099a8050","sender":"ann","key":"key of 0","kind":"direct","label":null,"audience":"list","thread":"t","reply_to":"r","topic":"rota","urgent":0,"class":"internal","at_ms":1795417767494,"expires_ms":4102444800000,"recipients":"[\"bob\",\"eve\"]","count":2,"spread":2,"bytes":15,"mark":"sha256:b9ae6de138a22881f80c2bcffdea2642cff11e6d932ce6623b94befb44f5bd88","body":"hello as direct"}');
INSERT INTO public.letter SELECT * FROM json_populate_record(NULL::public.letter, '{"number":2,"id":"01890a5d-ac96-774b-bcce-b302099a8051","sender":"ann","key":"key of 1","kind":"broadcast","label":null,"audience":"list","thread":"t","reply_to":"r","topic":"rota","urgent":0,"class":"internal","at_ms":1795417767690,"expires_ms":4102444800000,"recipients":"[\"bob\",\"eve\"]","count":2,"spread":2,"bytes":18,"mark":"sha256:ec7ca3c849bc90c0dbdd3066ed2e2663a974b08a7bfe8260c5eec92188ca23ed","body":"hello as broadcast"}');
INSERT INTO public.letter SELECT * FROM json_populate_record(NULL::public.letter, '{"number":3,"id":"01890a5d-ac96-774b-bcce-b302099a8052","sender":"ann","key":"key of 2","kind":"group","label":null,"audience":"list","thread":"t","reply_to":"r","topic":"rota","urgent":1,"class":"internal","at_ms":1795417767875,"expires_ms":4102444800000,"recipients":"[\"bob\",\"eve\"]","count":2,"spread":2,"bytes":14,"mark":"sha256:678908edcce4ccd097a1694cddcb4dd5789004af58b1347189bbe0e241a6d14e","body":"hello as group"}');
INSERT INTO public.letter SELECT * FROM json_populate_record(NULL::public.letter, '{"number":4,"id":"01890a5d-ac96-774b-bcce-b302099a8053","sender":"ann","key":"key of 3","kind":"guidance","label":"STUCK","audience":"list","thread":"t","reply_to":"r","topic":"rota","urgent":0,"class":"internal","at_ms":1795417767908,"expires_ms":4102444800000,"recipients":"[\"bob\",\"eve\"]","count":2,"spread":2,"bytes":17,"mark":"sha256:8e454e9a0bc5199c0880d4cc1e7a6a8770272e8b58678c2d162d9b3d9d009f87","body":"hello as guidance"}');
INSERT INTO public.meta SELECT * FROM json_populate_record(NULL::public.meta, '{"name":"schema","value":"3"}');
INSERT INTO public.note SELECT * FROM json_populate_record(NULL::public.note, '{"space":"directory","key":"a","version":2,"at_ms":1795417768736,"body":"{\"name\":\"Anna\"}"}');
INSERT INTO public.record SELECT * FROM json_populate_record(NULL::public.record, '{"stream":"effects/a","number":1,"key":"k","at_ms":1795417768458,"body":"{\"done\":true}"}');
INSERT INTO public.record SELECT * FROM json_populate_record(NULL::public.record, '{"stream":"effects/a","number":2,"key":null,"at_ms":1795417768520,"body":"[1.5,null]"}');
INSERT INTO public.record SELECT * FROM json_populate_record(NULL::public.record, '{"stream":"mail/events","number":1,"key":null,"at_ms":1795417767494,"body":"{\"event\":\"posted\",\"letter\":1}"}');
INSERT INTO public.record SELECT * FROM json_populate_record(NULL::public.record, '{"stream":"mail/events","number":2,"key":null,"at_ms":1795417767690,"body":"{\"event\":\"posted\",\"letter\":2}"}');
INSERT INTO public.record SELECT * FROM json_populate_record(NULL::public.record, '{"stream":"mail/events","number":3,"key":null,"at_ms":1795417767875,"body":"{\"event\":\"posted\",\"letter\":3}"}');
INSERT INTO public.record SELECT * FROM json_populate_record(NULL::public.record, '{"stream":"mail/events","number":4,"key":null,"at_ms":1795417767908,"body":"{\"event\":\"posted\",\"letter\":4}"}');
INSERT INTO public.record SELECT * FROM json_populate_record(NULL::public.record, '{"stream":"mail/events","number":5,"key":null,"at_ms":1795417768078,"body":"{\"event\":\"marked\",\"letter\":1,\"id\":\"01890a5d-ac96-774b-bcce-b302099a8050\",\"sender\":\"ann\",\"state\":\"delivered\",\"recipients\":[\"bob\"]}"}');
INSERT INTO public.record SELECT * FROM json_populate_record(NULL::public.record, '{"stream":"mail/events","number":6,"key":null,"at_ms":1795417768078,"body":"{\"event\":\"marked\",\"letter\":2,\"id\":\"01890a5d-ac96-774b-bcce-b302099a8051\",\"sender\":\"ann\",\"state\":\"delivered\",\"recipients\":[\"eve\"]}"}');
INSERT INTO public.record SELECT * FROM json_populate_record(NULL::public.record, '{"stream":"mail/events","number":7,"key":null,"at_ms":1795417768114,"body":"{\"event\":\"marked\",\"letter\":2,\"id\":\"01890a5d-ac96-774b-bcce-b302099a8051\",\"sender\":\"ann\",\"state\":\"read\",\"recipients\":[\"bob\"]}"}');
INSERT INTO public.record SELECT * FROM json_populate_record(NULL::public.record, '{"stream":"mail/events","number":8,"key":null,"at_ms":1795417768276,"body":"{\"event\":\"joined\",\"agent\":\"bob\",\"way\":\"webhook\"}"}');
INSERT INTO public.record SELECT * FROM json_populate_record(NULL::public.record, '{"stream":"mail/events","number":9,"key":null,"at_ms":1795417768310,"body":"{\"event\":\"left\",\"agent\":\"bob\",\"why\":\"idle\"}"}');
INSERT INTO public.stream SELECT * FROM json_populate_record(NULL::public.stream, '{"name":"a/node","last":14}');
INSERT INTO public.stream SELECT * FROM json_populate_record(NULL::public.stream, '{"name":"letter","last":4}');
INSERT INTO public.stream SELECT * FROM json_populate_record(NULL::public.stream, '{"name":"r/effects/a","last":2}');
INSERT INTO public.stream SELECT * FROM json_populate_record(NULL::public.stream, '{"name":"r/mail/events","last":9}');
INSERT INTO public.stream SELECT * FROM json_populate_record(NULL::public.stream, '{"name":"task","last":12}');
INSERT INTO public.task SELECT * FROM json_populate_record(NULL::public.task, '{"id":"cancelled","number":4,"scope":"agent","owner":"api_key:ann","key":"key of cancelled","request_mark":"sha256:73c56cd074d7d5911e77bb93bb67b0031f41eedc98b7ff9130eb901b3037aa7f","parent":null,"agent":"clinic","message":"ask","class":"personal","on_restart":"fail","state":"canceled","waiting":0,"children_open":0,"cancel":0,"lease_by":null,"lease_epoch":1,"lease_until_ms":null,"created_ms":1795417766503,"updated_ms":1795417766649,"deadline_ms":4102444800000,"expires_ms":4102444800000,"last_event":2,"bytes":185,"body":"{\"principal\":{\"id\":\"ann\",\"kind\":\"api_key\",\"scopes\":[\"agents:ask\"],\"purpose\":\"treatment\"},\"request\":{\"text\":\"what is due?\"},\"extra\":{\"shape\":\"tool_result\"},\"said\":\"cancelled by request\"}"}');
INSERT INTO public.task SELECT * FROM json_populate_record(NULL::public.task, '{"id":"clinical","number":9,"scope":"agent","owner":"api_key:ann","key":"key of clinical","request_mark":"hmac-sha256:a7e826f2344e312439e8de0a893fb1f429e162deea91bd325cebc2a572584d39","parent":null,"agent":"clinic","message":"ask","class":"clinical","on_restart":"fail","state":"completed","waiting":0,"children_open":0,"cancel":0,"lease_by":null,"lease_epoch":1,"lease_until_ms":null,"created_ms":1795417767222,"updated_ms":1795417767354,"deadline_ms":4102444800000,"expires_ms":4102444800000,"last_event":2,"bytes":170,"body":"{\"principal\":{\"id\":\"ann\",\"kind\":\"api_key\",\"scopes\":[\"agents:ask\"],\"purpose\":\"treatment\"},\"extra\":{\"shape\":\"tool_result\"},\"outcome\":{\"kind\":\"not_kept\"},\"held_by\":\"node#1\"}"}');
INSERT INTO public.task SELECT * FROM json_populate_record(NULL::public.task, '{"id":"completed","number":1,"scope":"agent","owner":"api_key:ann","key":"key of completed","request_mark":"sha256:73c56cd074d7d5911e77bb93bb67b0031f41eedc98b7ff9130eb901b3037aa7f","parent":null,"agent":"clinic","message":"ask","class":"personal","on_restart":"fail","state":"completed","waiting":0,"children_open":0,"cancel":0,"lease_by":null,"lease_epoch":1,"lease_until_ms":null,"created_ms":1795417765189,"updated_ms":1795417765536,"deadline_ms":4102444800000,"expires_ms":4102444800000,"last_event":9,"bytes":234,"body":"{\"principal\":{\"id\":\"ann\",\"kind\":\"api_key\",\"scopes\":[\"agents:ask\"],\"purpose\":\"treatment\"},\"request\":{\"text\":\"what is due?\"},\"extra\":{\"shape\":\"tool_result\"},\"outcome\":{\"kind\":\"reply\",\"body\":{\"content\":[]}},\"artifacts\":[{\"name\":\"plan\"}]}"}');
INSERT INTO public.task SELECT * FROM json_populate_record(NULL::public.task, '{"id":"failed","number":2,"scope":"agent","owner":"api_key:ann","key":"key of failed","request_mark":"sha256:73c56cd074d7d5911e77bb93bb67b0031f41eedc98b7ff9130eb901b3037aa7f","parent":null,"agent":"clinic","message":"ask","class":"personal","on_restart":"fail","state":"failed","waiting":0,"children_open":0,"cancel":0,"lease_by":null,"lease_epoch":1,"lease_until_ms":null,"created_ms":1795417765647,"updated_ms":1795417765950,"deadline_ms":4102444800000,"expires_ms":4102444800000,"last_event":3,"bytes":277,"body":"{\"principal\":{\"id\":\"ann\",\"kind\":\"api_key\",\"scopes\":[\"agents:ask\"],\"purpose\":\"treatment\"},\"request\":{\"text\":\"what is due?\"},\"extra\":{\"shape\":\"tool_result\"},\"said\":\"not shown\",\"outcome\":{\"kind\":\"failed\",\"body\":{\"kind\":\"blocked\",\"message\":\"not shown\",\"data\":{\"rule\":\"identity\"}}}}"}');
INSERT INTO public.task SELECT * FROM json_populate_record(NULL::public.task, '{"id":"first","number":11,"scope":"agent","owner":"api_key:ann","key":"key of first","request_mark":"sha256:73c56cd074d7d5911e77bb93bb67b0031f41eedc98b7ff9130eb901b3037aa7f","parent":"whole","agent":"clinic","message":"ask","class":"personal","on_restart":"fail","state":"submitted","waiting":0,"children_open":0,"cancel":0,"lease_by":null,"lease_epoch":0,"lease_until_ms":null,"created_ms":1795417767422,"updated_ms":1795417767422,"deadline_ms":4102444800000,"expires_ms":4102444800000,"last_event":0,"bytes":155,"body":"{\"principal\":{\"id\":\"ann\",\"kind\":\"api_key\",\"scopes\":[\"agents:ask\"],\"purpose\":\"treatment\"},\"request\":{\"text\":\"what is due?\"},\"extra\":{\"shape\":\"tool_result\"}}"}');
INSERT INTO public.task SELECT * FROM json_populate_record(NULL::public.task, '{"id":"interrupted","number":8,"scope":"agent","owner":"api_key:ann","key":"key of interrupted","request_mark":"sha256:73c56cd074d7d5911e77bb93bb67b0031f41eedc98b7ff9130eb901b3037aa7f","parent":null,"agent":"clinic","message":"ask","class":"personal","on_restart":"fail","state":"working","waiting":0,"children_open":0,"cancel":0,"lease_by":"node#1","lease_epoch":1,"lease_until_ms":0,"created_ms":1795417767138,"updated_ms":1795417767138,"deadline_ms":4102444800000,"expires_ms":4102444800000,"last_event":1,"bytes":155,"body":"{\"principal\":{\"id\":\"ann\",\"kind\":\"api_key\",\"scopes\":[\"agents:ask\"],\"purpose\":\"treatment\"},\"request\":{\"text\":\"what is due?\"},\"extra\":{\"shape\":\"tool_result\"}}"}');
INSERT INTO public.task SELECT * FROM json_populate_record(NULL::public.task, '{"id":"rejected","number":3,"scope":"agent","owner":"api_key:ann","key":"key of rejected","request_mark":"sha256:73c56cd074d7d5911e77bb93bb67b0031f41eedc98b7ff9130eb901b3037aa7f","parent":null,"agent":"clinic","message":"ask","class":"personal","on_restart":"fail","state":"rejected","waiting":0,"children_open":0,"cancel":0,"lease_by":null,"lease_epoch":1,"lease_until_ms":null,"created_ms":1795417766150,"updated_ms":1795417766386,"deadline_ms":4102444800000,"expires_ms":4102444800000,"last_event":2,"bytes":277,"body":"{\"principal\":{\"id\":\"ann\",\"kind\":\"api_key\",\"scopes\":[\"agents:ask\"],\"purpose\":\"treatment\"},\"request\":{\"text\":\"what is due?\"},\"extra\":{\"shape\":\"tool_result\"},\"said\":\"not shown\",\"outcome\":{\"kind\":\"failed\",\"body\":{\"kind\":\"blocked\",\"message\":\"not shown\",\"data\":{\"rule\":\"identity\"}}}}"}');
INSERT INTO public.task SELECT * FROM json_populate_record(NULL::public.task, '{"id":"resumed","number":7,"scope":"agent","owner":"api_key:ann","key":"key of resumed","request_mark":"sha256:73c56cd074d7d5911e77bb93bb67b0031f41eedc98b7ff9130eb901b3037aa7f","parent":null,"agent":"clinic","message":"ask","class":"personal","on_restart":"resume","state":"working","waiting":0,"children_open":0,"cancel":0,"lease_by":"node#1","lease_epoch":1,"lease_until_ms":0,"created_ms":1795417767056,"updated_ms":1795417767056,"deadline_ms":4102444800000,"expires_ms":4102444800000,"last_event":1,"bytes":155,"body":"{\"principal\":{\"id\":\"ann\",\"kind\":\"api_key\",\"scopes\":[\"agents:ask\"],\"purpose\":\"treatment\"},\"request\":{\"text\":\"what is due?\"},\"extra\":{\"shape\":\"tool_result\"}}"}');
INSERT INTO public.task SELECT * FROM json_populate_record(NULL::public.task, '{"id":"second","number":12,"scope":"agent","owner":"api_key:ann","key":"key of second","request_mark":"sha256:73c56cd074d7d5911e77bb93bb67b0031f41eedc98b7ff9130eb901b3037aa7f","parent":"whole","agent":"clinic","message":"ask","class":"personal","on_restart":"fail","state":"submitted","waiting":1,"children_open":0,"cancel":0,"lease_by":null,"lease_epoch":0,"lease_until_ms":null,"created_ms":1795417767422,"updated_ms":1795417767422,"deadline_ms":4102444800000,"expires_ms":4102444800000,"last_event":0,"bytes":173,"body":"{\"principal\":{\"id\":\"ann\",\"kind\":\"api_key\",\"scopes\":[\"agents:ask\"],\"purpose\":\"treatment\"},\"request\":{\"text\":\"what is due?\"},\"needs\":[\"first\"],\"extra\":{\"shape\":\"tool_result\"}}"}');
INSERT INTO public.task SELECT * FROM json_populate_record(NULL::public.task, '{"id":"waits for a credential","number":6,"scope":"agent","owner":"api_key:ann","key":"key of waits for a credential","request_mark":"sha256:73c56cd074d7d5911e77bb93bb67b0031f41eedc98b7ff9130eb901b3037aa7f","parent":null,"agent":"clinic","message":"ask","class":"personal","on_restart":"fail","state":"auth_required","waiting":0,"children_open":0,"cancel":0,"lease_by":"node#1","lease_epoch":1,"lease_until_ms":0,"created_ms":1795417766994,"updated_ms":1795417767033,"deadline_ms":4102444800000,"expires_ms":4102444800000,"last_event":2,"bytes":184,"body":"{\"principal\":{\"id\":\"ann\",\"kind\":\"api_key\",\"scopes\":[\"agents:ask\"],\"purpose\":\"treatment\"},\"request\":{\"text\":\"what is due?\"},\"extra\":{\"shape\":\"tool_result\"},\"said\":\"a key of the clinic\"}"}');
INSERT INTO public.task SELECT * FROM json_populate_record(NULL::public.task, '{"id":"waits for an answer","number":5,"scope":"agent","owner":"api_key:ann","key":"key of waits for an answer","request_mark":"sha256:73c56cd074d7d5911e77bb93bb67b0031f41eedc98b7ff9130eb901b3037aa7f","parent":null,"agent":"clinic","message":"ask","class":"personal","on_restart":"fail","state":"input_required","waiting":0,"children_open":0,"cancel":0,"lease_by":"node#1","lease_epoch":1,"lease_until_ms":0,"created_ms":1795417766782,"updated_ms":1795417766863,"deadline_ms":4102444800000,"expires_ms":4102444800000,"last_event":2,"bytes":293,"body":"{\"principal\":{\"id\":\"ann\",\"kind\":\"api_key\",\"scopes\":[\"agents:ask\"],\"purpose\":\"treatment\"},\"request\":{\"text\":\"what is due?\"},\"extra\":{\"shape\":\"tool_result\"},\"open\":[{\"key\":\"q\",\"question\":{\"kind\":\"elicit\",\"body\":{\"message\":\"which patient?\",\"requestedSchema\":{\"properties\":{},\"type\":\"object\"}}}}]}"}');
INSERT INTO public.task SELECT * FROM json_populate_record(NULL::public.task, '{"id":"whole","number":10,"scope":"agent","owner":"api_key:ann","key":"key of whole","request_mark":"sha256:73c56cd074d7d5911e77bb93bb67b0031f41eedc98b7ff9130eb901b3037aa7f","parent":null,"agent":"clinic","message":"ask","class":"personal","on_restart":"fail","state":"submitted","waiting":0,"children_open":2,"cancel":0,"lease_by":null,"lease_epoch":0,"lease_until_ms":null,"created_ms":1795417767422,"updated_ms":1795417767422,"deadline_ms":4102444800000,"expires_ms":4102444800000,"last_event":0,"bytes":155,"body":"{\"principal\":{\"id\":\"ann\",\"kind\":\"api_key\",\"scopes\":[\"agents:ask\"],\"purpose\":\"treatment\"},\"request\":{\"text\":\"what is due?\"},\"extra\":{\"shape\":\"tool_result\"}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"cancelled","number":1,"at_ms":1795417766503,"state":"working","is_end":0,"body":"{\"step\":{\"kind\":\"start\"}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"cancelled","number":2,"at_ms":1795417766649,"state":"canceled","is_end":1,"body":"{\"step\":{\"kind\":\"cancelled\",\"body\":{\"why\":\"cancelled by request\"}}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"clinical","number":1,"at_ms":1795417767222,"state":"working","is_end":0,"body":"{\"step\":{\"kind\":\"start\"}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"clinical","number":2,"at_ms":1795417767354,"state":"completed","is_end":1,"body":"{\"step\":{\"kind\":\"completed\",\"body\":null},\"mark\":{\"bytes\":39,\"hash\":\"hmac-sha256:77b54a6a41d3cbcad6ee3d0a68819566a1f77356b765bc899ae1d6526606ebce\"}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"completed","number":1,"at_ms":1795417765189,"state":"working","is_end":0,"body":"{\"step\":{\"kind\":\"start\"}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"completed","number":2,"at_ms":1795417765274,"state":"working","is_end":0,"body":"{\"step\":{\"kind\":\"said\",\"body\":\"half way\"}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"completed","number":3,"at_ms":1795417765302,"state":"working","is_end":0,"body":"{\"step\":{\"kind\":\"history\",\"body\":{\"role\":\"user\"}}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"completed","number":4,"at_ms":1795417765328,"state":"working","is_end":0,"body":"{\"step\":{\"kind\":\"artifact\",\"body\":{\"name\":\"plan\"}}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"completed","number":5,"at_ms":1795417765366,"state":"input_required","is_end":0,"body":"{\"step\":{\"kind\":\"asked\",\"body\":{\"key\":\"q1\",\"question\":{\"kind\":\"sample\",\"body\":{\"messages\":[{\"role\":\"user\",\"content\":{\"type\":\"text\",\"text\":\"say so\"}}],\"maxTokens\":64}}}}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"completed","number":6,"at_ms":1795417765390,"state":"input_required","is_end":0,"body":"{\"step\":{\"kind\":\"asked\",\"body\":{\"key\":\"q2\",\"question\":{\"kind\":\"elicit\",\"body\":{\"message\":\"which patient?\",\"requestedSchema\":{\"properties\":{},\"type\":\"object\"}}}}}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"completed","number":7,"at_ms":1795417765426,"state":"input_required","is_end":0,"body":"{\"step\":{\"kind\":\"given_up\",\"body\":{\"key\":\"q1\"}}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"completed","number":8,"at_ms":1795417765490,"state":"working","is_end":0,"body":"{\"step\":{\"kind\":\"answered\",\"body\":{\"key\":\"q2\",\"answer\":{\"action\":\"decline\"}}}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"completed","number":9,"at_ms":1795417765536,"state":"completed","is_end":1,"body":"{\"step\":{\"kind\":\"completed\",\"body\":{\"content\":[]}}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"failed","number":1,"at_ms":1795417765647,"state":"working","is_end":0,"body":"{\"step\":{\"kind\":\"start\"}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"failed","number":2,"at_ms":1795417765832,"state":"input_required","is_end":0,"body":"{\"step\":{\"kind\":\"asked\",\"body\":{\"key\":\"q\",\"question\":{\"kind\":\"roots\",\"body\":{}}}}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"failed","number":3,"at_ms":1795417765950,"state":"failed","is_end":1,"body":"{\"step\":{\"kind\":\"failed\",\"body\":{\"kind\":\"blocked\",\"message\":\"not shown\",\"data\":{\"rule\":\"identity\"}}}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"interrupted","number":1,"at_ms":1795417767138,"state":"working","is_end":0,"body":"{\"step\":{\"kind\":\"start\"}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"rejected","number":1,"at_ms":1795417766150,"state":"working","is_end":0,"body":"{\"step\":{\"kind\":\"start\"}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"rejected","number":2,"at_ms":1795417766386,"state":"rejected","is_end":1,"body":"{\"step\":{\"kind\":\"rejected\",\"body\":{\"kind\":\"blocked\",\"message\":\"not shown\",\"data\":{\"rule\":\"identity\"}}}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"resumed","number":1,"at_ms":1795417767056,"state":"working","is_end":0,"body":"{\"step\":{\"kind\":\"start\"}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"waits for a credential","number":1,"at_ms":1795417766994,"state":"working","is_end":0,"body":"{\"step\":{\"kind\":\"start\"}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"waits for a credential","number":2,"at_ms":1795417767033,"state":"auth_required","is_end":0,"body":"{\"step\":{\"kind\":\"auth_wanted\",\"body\":\"a key of the clinic\"}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"waits for an answer","number":1,"at_ms":1795417766782,"state":"working","is_end":0,"body":"{\"step\":{\"kind\":\"start\"}}"}');
INSERT INTO public.task_event SELECT * FROM json_populate_record(NULL::public.task_event, '{"task":"waits for an answer","number":2,"at_ms":1795417766863,"state":"input_required","is_end":0,"body":"{\"step\":{\"kind\":\"asked\",\"body\":{\"key\":\"q\",\"question\":{\"kind\":\"elicit\",\"body\":{\"message\":\"which patient?\",\"requestedSchema\":{\"properties\":{},\"type\":\"object\"}}}}}}"}');
INSERT INTO public.task_need SELECT * FROM json_populate_record(NULL::public.task_need, '{"task":"second","needs":"first"}');
INSERT INTO public.writer SELECT * FROM json_populate_record(NULL::public.writer, '{"name":"node","epoch":2,"run":"c1282099-5013-441d-8930-f78faef24b2b","since_ms":1795417769170,"closed":0}');
