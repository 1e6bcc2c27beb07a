//! Requests of tasks in the store.

use callboard_runtime::{NewTask, TaskActor, TaskId, TaskStep};
use callboard_store::REQUEST_ROW_BYTES_MIN;
use serde_json::value::RawValue;

use crate::kit::stores;
use crate::tasks::{begun, done, new, of};

/// Goal: a large request has a row of its own, which no step writes again; a store of an older version
/// has it in the task's row, and keeps it. Method: sizes of rows after steps, for a request of the
/// minimum, one byte less, and one that is moved into the task's row.
#[tokio::test]
async fn large_requests_are_written_once() {
    let of_bytes = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    stores(async |opened| {
        let tasks = of(opened);
        for (id, bytes) in [
            ("small", REQUEST_ROW_BYTES_MIN - 1),
            ("large", REQUEST_ROW_BYTES_MIN),
            ("older", REQUEST_ROW_BYTES_MIN),
        ] {
            let request = Some(RawValue::from_string(of_bytes(bytes)).unwrap());
            let (_, lease) = begun(&tasks, NewTask { request, ..new(id) }).await;
            if id == "older" {
                let of_task = "number = (SELECT number FROM task WHERE id = 'older')";
                opened
                    .raw(&format!(
                        "UPDATE task SET body = substr(body, 1, length(body) - 1) || ',\"request\":' || (SELECT body FROM task_request \
                         WHERE {of_task}) || '}}' WHERE id = 'older'; DELETE FROM task_request WHERE {of_task}"
                    ))
                    .await;
            }
            let start = vec![TaskStep::Start];
            tasks.apply(&lease.task, TaskActor::Worker(&lease), start).await.unwrap();
            tasks.apply(&lease.task, TaskActor::Worker(&lease), done()).await.unwrap();
            let task = tasks.get(&lease.task).await.unwrap().unwrap();
            assert_eq!(task.request.as_ref().unwrap().get(), of_bytes(bytes), "{id}");
            let sql = |what: &str| format!("SELECT {what} FROM task WHERE id = '{id}'");
            let in_row = opened.number(&sql("CAST(octet_length(body) AS BIGINT)")).await;
            assert_eq!(in_row < bytes as i64, id == "large", "{id}: {in_row} bytes");
            let counted = opened.number(&sql("CAST(bytes AS BIGINT)")).await;
            assert!(counted > bytes as i64, "{id}: {counted} bytes counted");
        }
        assert_eq!(opened.number("SELECT count(*) FROM task_request").await, 1);
        tasks.delete(&TaskId::new("large").unwrap()).await.unwrap();
        assert_eq!(opened.number("SELECT count(*) FROM task_request").await, 0);
    })
    .await;
}
