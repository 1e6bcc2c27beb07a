-- Ready tasks of one owner, for claims that leave owners out.
CREATE INDEX task_ready_owner ON task (scope, owner, number)
    WHERE state IN ('submitted', 'working', 'input_required', 'auth_required') AND waiting = 0 AND children_open = 0;
