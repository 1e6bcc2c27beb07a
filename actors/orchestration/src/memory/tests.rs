use callboard_runtime::MemoryKvStore;

use super::*;

fn sent(task: &str, ago: Duration) -> DelegatedRequest {
    DelegatedRequest {
        task: task.into(),
        to: "weather-agent".into(),
        request: "What's the weather in Paris?".into(),
        answer: None,
        state: TaskState::Submitted,
        at_ms: (SystemTime::now() - ago)
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_millis() as u64,
    }
}

async fn tasks(memory: &DelegatedRequestLog) -> Vec<String> {
    memory
        .list()
        .await
        .unwrap()
        .into_iter()
        .map(|kept| kept.task)
        .collect()
}

/// Goal: a request and its answer are listed in order, also after a restart, until cleared. Method:
/// two requests, an answer, a second log on the same store.
/// Rows: B-7.
#[tokio::test]
async fn remembers_until_it_is_cleared() {
    let notes: Arc<dyn KvStore> = Arc::new(MemoryKvStore::default());
    let memory = DelegatedRequestLog::new(notes.clone(), "one", DataClass::Personal);
    memory
        .remember(sent("b", Duration::from_secs(2)))
        .await
        .unwrap();
    memory
        .remember(sent("a", Duration::from_secs(1)))
        .await
        .unwrap();
    memory
        .update("b", TaskState::Completed, Some("Sunny.".into()))
        .await
        .unwrap();
    memory
        .update("b", TaskState::Completed, None)
        .await
        .unwrap();
    memory
        .update("nobody's", TaskState::Failed, None)
        .await
        .unwrap();
    let again = DelegatedRequestLog::new(notes.clone(), "one", DataClass::Personal);
    assert_eq!(tasks(&again).await, ["b", "a"]);
    let kept = again.get("b").await.unwrap().unwrap();
    assert_eq!(
        (kept.state, kept.answer.as_deref()),
        (TaskState::Completed, Some("Sunny."))
    );
    assert!(
        tasks(&DelegatedRequestLog::new(
            notes,
            "other",
            DataClass::Personal
        ))
        .await
        .is_empty(),
        "each agent has its own"
    );
    assert_eq!(memory.clear().await.unwrap(), 2);
    assert!(tasks(&again).await.is_empty());
}

/// Goal: a request stays one entry in its place, even if its answer renames it. Method: two sent,
/// the first settled; one that was never logged.
#[tokio::test]
async fn an_answer_may_rename() {
    let memory = DelegatedRequestLog::new(
        Arc::new(MemoryKvStore::default()),
        "one",
        DataClass::Personal,
    );
    let first = sent("ours", Duration::from_secs(2));
    memory.remember(first.clone()).await.unwrap();
    memory
        .remember(sent("other", Duration::from_secs(1)))
        .await
        .unwrap();
    let theirs = DelegatedRequest {
        task: "theirs".into(),
        state: TaskState::Completed,
        at_ms: 0,
        ..first.clone()
    };
    memory.replace("ours", theirs).await.unwrap();
    assert_eq!(tasks(&memory).await, ["theirs", "other"]);
    let kept = memory.get("theirs").await.unwrap().unwrap();
    assert_eq!(
        (kept.state, kept.at_ms),
        (TaskState::Completed, first.at_ms)
    );
    memory
        .replace("never", sent("new", Duration::ZERO))
        .await
        .unwrap();
    assert_eq!(tasks(&memory).await, ["theirs", "other", "new"]);
}

/// Goal: the log is bounded by count. Method: one more than the maximum; the oldest is removed from
/// the store too.
#[tokio::test]
async fn the_oldest_of_too_many_is_forgotten() {
    let notes = Arc::new(MemoryKvStore::default());
    let memory = DelegatedRequestLog::new(notes.clone(), "one", DataClass::Internal);
    let most = MEMORY_REQUESTS_MAX as u64;
    for nth in 0..=most {
        memory
            .remember(sent(&format!("t{nth}"), Duration::from_secs(most - nth)))
            .await
            .unwrap();
    }
    let there = tasks(&memory).await;
    assert_eq!((there.len(), &*there[0]), (MEMORY_REQUESTS_MAX, "t1"));
    assert_eq!(
        notes.list("memory/one", None, 1_000).await.unwrap().len(),
        MEMORY_REQUESTS_MAX
    );
}

/// Goal: the log is bounded by age. Method: a request of eight days ago, one of six, and a new one
/// that triggers the removal.
#[tokio::test]
async fn the_old_is_forgotten() {
    let notes = Arc::new(MemoryKvStore::default());
    let memory = DelegatedRequestLog::new(notes.clone(), "one", DataClass::Internal);
    let days = |days: u64| Duration::from_secs(days * 24 * 3_600);
    memory.put(&sent("eight", days(8))).await.unwrap();
    memory.put(&sent("six", days(6))).await.unwrap();
    assert_eq!(
        tasks(&memory).await,
        ["six"],
        "not shown, even before it is removed"
    );
    memory.remember(sent("new", Duration::ZERO)).await.unwrap();
    assert_eq!(
        notes.list("memory/one", None, 1_000).await.unwrap().len(),
        2
    );
}

/// Goal: long texts are cut between characters. Method: a character of four bytes on each side of the limit.
#[tokio::test]
async fn long_texts_are_cut_between_characters() {
    let memory = DelegatedRequestLog::new(
        Arc::new(MemoryKvStore::default()),
        "one",
        DataClass::Internal,
    );
    for before in 0..5 {
        let text = format!(
            "{}{}",
            "a".repeat(before),
            "😀".repeat(MEMORY_TEXT_BYTES_MAX / 4)
        );
        let task = format!("t{before}");
        memory
            .remember(DelegatedRequest {
                request: text.clone(),
                ..sent(&task, Duration::ZERO)
            })
            .await
            .unwrap();
        memory
            .update(&task, TaskState::Completed, Some(text.clone()))
            .await
            .unwrap();
        let kept = memory.get(&task).await.unwrap().unwrap();
        for kept in [&kept.request, kept.answer.as_ref().unwrap()] {
            assert!(kept.len() <= MEMORY_TEXT_BYTES_MAX);
            assert_eq!(kept.ends_with('…'), before > 0, "{before}");
            assert!(text.starts_with(kept.trim_end_matches('…')));
        }
    }
}

/// Goal: clinical data is never stored. Method: a clinical agent's log.
#[tokio::test]
async fn of_clinical_data_nothing_is_kept() {
    let notes = Arc::new(MemoryKvStore::default());
    let memory = DelegatedRequestLog::new(notes.clone(), "one", DataClass::Clinical);
    memory.remember(sent("a", Duration::ZERO)).await.unwrap();
    assert!(tasks(&memory).await.is_empty());
    assert!(notes.list("memory/one", None, 10).await.unwrap().is_empty());
}

/// Goal: an id that doesn't fit into a key is logged anyway. Method: one of a kilobyte, one with a
/// NUL.
#[tokio::test]
async fn any_id_is_remembered() {
    let memory = DelegatedRequestLog::new(
        Arc::new(MemoryKvStore::default()),
        "one",
        DataClass::Internal,
    );
    for task in ["é".repeat(1_000), "a\0b".into()] {
        memory.remember(sent(&task, Duration::ZERO)).await.unwrap();
        assert!(memory.get(&task).await.unwrap().is_some());
    }
}
