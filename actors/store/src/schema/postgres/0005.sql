-- Large requests of tasks, so that a change of a task doesn't write its request again.
CREATE TABLE task_request (
    number BIGINT NOT NULL PRIMARY KEY REFERENCES task (number) ON DELETE CASCADE,
    body TEXT NOT NULL
);
