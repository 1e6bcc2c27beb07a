//! Queries for the tasks that are ready to be claimed.

use callboard_runtime::{ClaimRequest, TaskOwner};

use super::row::columns;
use crate::sql::{Sql, SqlArg};

/// Builds the condition for a task of scope `$1` that is ready, apart from its lease. It is that of
/// the indexes `task_ready` and `task_ready_owner`.
macro_rules! is_ready {
    () => {
        "scope = $1 AND state IN ('submitted', 'working', 'input_required', 'auth_required') \
         AND waiting = 0 AND children_open = 0"
    };
}

/// Builds the condition for a task without a lease at time `$2`, with a number above `$3`.
macro_rules! is_free {
    () => {
        " AND (lease_until_ms IS NULL OR lease_until_ms <= $2) AND number > $3"
    };
}

/// Builds SQL for at most `$4` ready tasks, the oldest first.
macro_rules! ready {
    ($what:expr) => {
        concat!(
            "SELECT ",
            $what,
            " FROM task WHERE ",
            is_ready!(),
            is_free!(),
            " ORDER BY number LIMIT $4"
        )
    };
}

/// Builds SQL for at most `$4` ready tasks, the oldest first, without those of the owners in the
/// JSON list `$5`. It steps from owner to owner in the index, so the number of their tasks doesn't
/// matter.
macro_rules! ready_except {
    (sqlite, $what:expr) => {
        ready_except!($what, "''", " NOT IN (SELECT value FROM json_each($5))")
    };
    (postgres, $what:expr) => {
        ready_except!(
            $what,
            "CAST('' AS TEXT) COLLATE \"C\"",
            " <> ALL (ARRAY(SELECT json_array_elements_text(CAST($5 AS json))))"
        )
    };
    ($what:expr, $first:literal, $except:literal) => {
        concat!(
            "WITH RECURSIVE owners (who) AS (SELECT ",
            $first,
            " UNION ALL SELECT (SELECT owner FROM task WHERE ",
            is_ready!(),
            " AND owner > who ORDER BY owner LIMIT 1) FROM owners WHERE who IS NOT NULL) SELECT ",
            $what,
            " FROM owners JOIN task ON number IN (SELECT oldest.number FROM task AS oldest WHERE ",
            is_ready!(),
            is_free!(),
            " AND owner = who ORDER BY number LIMIT $4) WHERE who",
            $except,
            " ORDER BY number LIMIT $4"
        )
    };
}

/// Query for ready tasks, with or without owners that are left out.
pub(super) struct ReadyQuery {
    all: Sql,
    /// Statement with owners to leave out as `$5`.
    except: Sql,
}

/// Query for the numbers of ready tasks. It runs before a claim: most claims find none, and then
/// need no write transaction.
pub(super) const READY_NUMBERS: ReadyQuery = ReadyQuery {
    all: Sql::same(ready!("number")),
    except: Sql {
        sqlite: ready_except!(sqlite, "number"),
        postgres: ready_except!(postgres, "number"),
    },
};
/// Query for ready tasks with the columns of a task's record.
pub(super) const READY_TASKS: ReadyQuery = ReadyQuery {
    all: Sql {
        sqlite: ready!(columns!()),
        postgres: concat!(ready!(columns!()), " FOR UPDATE SKIP LOCKED"),
    },
    except: Sql {
        sqlite: ready_except!(sqlite, columns!()),
        postgres: concat!(
            ready_except!(postgres, columns!()),
            " FOR UPDATE OF task SKIP LOCKED"
        ),
    },
};

/// Owners that a claim leaves out, as a JSON list; `None` if there are none.
pub(super) struct ExceptOwners(Option<String>);

impl ExceptOwners {
    pub(super) fn of(claim: &ClaimRequest) -> Self {
        let owners = &claim.except_owners;
        Self((!owners.is_empty()).then(|| {
            let owners: Vec<_> = owners.iter().map(TaskOwner::as_str).collect();
            serde_json::Value::from(owners).to_string()
        }))
    }
}

impl ReadyQuery {
    /// Returns the statement, and its parameters: `args`, which are `$1` to `$4`, and the owners.
    pub(super) fn with<'a, const N: usize>(
        &self,
        args: [SqlArg<'a>; N],
        except: &'a ExceptOwners,
    ) -> (Sql, Vec<SqlArg<'a>>) {
        let mut args = Vec::from(args);
        match &except.0 {
            None => (self.all, args),
            Some(owners) => {
                args.push(owners.into());
                (self.except, args)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sqlx::sqlite::SqliteConnectOptions;
    use sqlx::{ConnectOptions, Row};

    use super::*;
    use crate::{SqlStore, StoreOptions};

    /// Goal: a claim reads the tasks that it may get, and not all those of an owner that is left
    /// out. Method: SQLite's plan for each query finds rows of the table by an index alone: by
    /// scope and owner, or by number.
    #[tokio::test]
    async fn claims_read_no_backlog() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("store.sqlite");
        let store = SqlStore::open(&StoreOptions::sqlite(&file)).await.unwrap();
        store.close().await;
        let options = SqliteConnectOptions::new().filename(&file);
        let mut db = options.connect().await.unwrap();
        for query in [READY_NUMBERS, READY_TASKS] {
            for (sql, found_by) in [
                (query.all.sqlite, &["task_ready (scope=? AND number>?)"][..]),
                (
                    query.except.sqlite,
                    &[
                        "task_ready_owner (scope=? AND owner>?)",
                        "task_ready_owner (scope=? AND owner=? AND number>?)",
                        "(number=?)",
                    ],
                ),
            ] {
                let plan = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
                let plan = sqlx::query(plan).fetch_all(&mut db).await.unwrap();
                let steps = plan.iter().map(|row| row.get::<String, _>("detail"));
                let of_tasks = |step: &String| step.contains(" task") || step.contains(" oldest");
                let steps: Vec<_> = steps.filter(of_tasks).collect();
                assert_eq!(steps.len(), found_by.len(), "{steps:#?}");
                for how in found_by {
                    assert!(
                        steps
                            .iter()
                            .any(|step| step.starts_with("SEARCH") && step.ends_with(how)),
                        "{how}: {steps:#?}"
                    );
                }
            }
        }
    }
}
