-- Large requests of tasks, so that a change of a task doesn't write its request again.
PRAGMA user_version = 5;

CREATE TABLE task_request (number INTEGER NOT NULL PRIMARY KEY, body TEXT NOT NULL) STRICT;
