-- Inboxes are gone: what they were for, letters do.
DROP TABLE inbox;
DELETE FROM stream WHERE substr(name, 1, 2) = 'i/';
