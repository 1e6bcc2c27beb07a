//! Nobody finds another's task.

use std::sync::Arc;

use callboard_message::Principal;
use callboard_runtime::Store;

use super::kit::{Talker, options, paused, refused, says, says_to, sent, somebody, talker};
use crate::inbound::calls::{Calls, Who};
use crate::wire::ListTasksRequest;
use crate::{A2aError, Dialect};

fn told(error: A2aError, id: &str) -> (String, String) {
    let task = error.task.clone().unwrap_or_default().replace(id, "ID");
    (format!("{:?} {}", error.kind, error.message), task)
}

/// Goal: to anybody else a task is one that never was. Method: every operation by another principal, each compared with the same
/// about an id that nobody has.
#[test]
fn anothers_task_never_was() {
    paused(async |system| {
        let (calls, ann, eve) = (talker(system), somebody("ann"), somebody("eve"));
        let task = sent(&calls, &ann, says("ask name")).await;
        let (theirs, nobodys) = (&*task.id, "never-was");
        let never = crate::wire::Task { id: nobodys.into(), ..task.clone() };
        let mut both = Vec::new();
        for (id, task) in [(theirs, &task), (nobodys, &never)] {
            both.push([
                told(calls.get(&eve, id, None).await.map(drop).unwrap_err(), id),
                told(calls.cancel(&eve, id).await.map(drop).unwrap_err(), id),
                told(calls.owned(&eve, id).await.map(drop).unwrap_err(), id),
                told(calls.subscribe(&eve, id, None).await.map(drop).unwrap_err(), id),
                told(calls.subscribe(&eve, id, Some(0)).await.map(drop).unwrap_err(), id),
                told(refused(&calls, &eve, says_to(task, "m2", "x")).await, id),
                told(calls.stream(&eve, says_to(task, "m2", "x")).await.map(drop).unwrap_err(), id),
            ]);
        }
        assert_eq!(both[0], both[1]);
        assert_eq!(calls.list(&eve, ListTasksRequest::default()).await.unwrap().total_size, 0);
        assert_eq!(calls.list(&ann, ListTasksRequest::default()).await.unwrap().total_size, 1);
    });
}

/// Goal: in 0.1 an id that is new begins a task of that id, one's own goes on with it, another's is not found. Method: each.
#[test]
fn clients_of_0_1_name_their_tasks() {
    paused(async |system| {
        let (calls, mut ann, mut eve) = (talker(system), somebody("ann"), somebody("eve"));
        (ann.dialect, eve.dialect) = (Dialect::V01, Dialect::V01);
        let mut request = says("ask name");
        request.message.task_id = "mine".into();
        let task = sent(&calls, &ann, request.clone()).await;
        assert_eq!(task.id, "mine");
        assert_eq!(refused(&calls, &eve, request).await.kind, crate::ErrorKind::TaskNotFound);
        let done = sent(&calls, &ann, says_to(&task, "m2", "Ann")).await;
        assert_eq!(done.status.state, callboard_message::TaskState::Completed);
    });
}

/// Goal: who is nobody in particular finds a task by its id and lists none: the others are nobody too. Method: one task.
#[test]
fn nobody_lists() {
    paused(async |system| {
        let calls = talker(system);
        let nobody = Who::new(Arc::new(Principal::anonymous()), Dialect::V10);
        let task = sent(&calls, &nobody, says("hello")).await;
        assert!(calls.get(&nobody, &task.id, None).await.is_ok());
        assert_eq!(calls.list(&nobody, ListTasksRequest::default()).await.unwrap().total_size, 0);
    });
}

/// Goal: a party sees the list of its own tasks, and nothing of what strangers began elsewhere with the same agent. Method: two
/// servers on one store, of which one takes the anonymous for a party; each begins a task.
#[test]
fn a_party_sees_its_own() {
    paused(async |system| {
        let (agent, store) = (system.spawn(Talker), Store::in_memory());
        let nobody = Who::new(Arc::new(Principal::anonymous()), Dialect::V10);
        let [beyond, here] = [false, true].map(|is_one| {
            let mut options = options();
            (options.one_anonymous, options.tasks.store) = (is_one, Some(store.clone()));
            Calls::new(agent.clone(), Arc::new(options))
        });
        sent(&beyond, &nobody, says("hello")).await;
        let own = sent(&here, &nobody, says("hello")).await;
        for (calls, expected) in [(&beyond, vec![]), (&here, vec![own.id])] {
            let listed = calls.list(&nobody, ListTasksRequest::default()).await.unwrap();
            let ids: Vec<_> = listed.tasks.into_iter().map(|task| task.id).collect();
            assert_eq!(ids, expected);
        }
    });
}
