-- Inboxes are gone: what they were for, letters do.
PRAGMA user_version = 3;

DROP TABLE inbox;
DELETE FROM stream WHERE substr(name, 1, 2) = 'i/';
