//! Visibility of tasks between owners.

use std::sync::Arc;

use callboard_message::Principal;
use callboard_runtime::Store;

use super::kit::{Talker, options, paused, says, sent};
use crate::Dialect;
use crate::inbound::calls::{A2aTaskService, RequestContext};
use crate::wire::ListTasksRequest;

/// Goal: anonymous callers that count as one owner list their own tasks, and none begun where they
/// don't count as one. Method: two servers on one store, with and without the option; each begins a
/// task.
#[test]
fn a_party_sees_its_own() {
    paused(async |system| {
        let (agent, store) = (system.spawn(Talker), Store::in_memory());
        let nobody = RequestContext::new(Arc::new(Principal::anonymous()), Dialect::V10);
        let [beyond, here] = [false, true].map(|is_one| {
            let mut options = options();
            (options.shares_anonymous_tasks, options.tasks.store) = (is_one, Some(store.clone()));
            A2aTaskService::new(agent.clone(), Arc::new(options))
        });
        sent(&beyond, &nobody, says("hello")).await;
        let own = sent(&here, &nobody, says("hello")).await;
        for (calls, expected) in [(&beyond, vec![]), (&here, vec![own.id])] {
            let listed = calls
                .list_tasks(&nobody, ListTasksRequest::default())
                .await
                .unwrap();
            let ids: Vec<_> = listed.tasks.into_iter().map(|task| task.id).collect();
            assert_eq!(ids, expected);
        }
    });
}
