//! Nobody finds another's task.

use std::sync::Arc;

use callboard_message::Principal;
use callboard_runtime::Store;

use super::kit::{Talker, options, paused, says, sent};
use crate::Dialect;
use crate::inbound::calls::{Calls, Who};
use crate::wire::ListTasksRequest;

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
            let listed = calls
                .list(&nobody, ListTasksRequest::default())
                .await
                .unwrap();
            let ids: Vec<_> = listed.tasks.into_iter().map(|task| task.id).collect();
            assert_eq!(ids, expected);
        }
    });
}
