//! Visibility of tasks between owners.

use std::sync::Arc;

use callboard_message::{Principal, TaskState::Completed};
use callboard_runtime::Store;

use super::kit::{Talker, options, paused, says, says_to, sent, somebody};
use crate::Dialect;
use crate::inbound::calls::{A2aTaskService, RelatedAgents, RequestContext};
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

/// Goal: servers of one address find each other's tasks by id, and the server of all agents lists
/// them; other owners and other servers don't find them. Method: three servers on one store, of
/// which two are related; questions are answered at the other one.
#[test]
fn related_servers_share_their_tasks() {
    paused(async |system| {
        let (agent, store) = (system.spawn(Talker), Store::in_memory());
        let (ann, eve) = (somebody("ann"), somebody("eve"));
        let [all, east, other] = ["all", "east", "other"].map(|name| {
            let mut options = options();
            options.agent.name = name.to_owned();
            options.tasks.memory = Some(store.clone());
            A2aTaskService::new(agent.clone(), Arc::new(options))
        });
        let related = |name: &str, are_listed| RelatedAgents {
            names: vec![name.to_owned()],
            are_listed,
        };
        all.set_related_agents(related("east", true));
        east.set_related_agents(related("all", false));
        for (begins, answers) in [(&all, &east), (&east, &all)] {
            let task = sent(begins, &ann, says("ask name")).await;
            for (calls, who, finds) in [
                (answers, &ann, true),
                (answers, &eve, false),
                (&other, &ann, false),
            ] {
                let found = calls.get_task(who, &task.id, None).await;
                assert_eq!(found.is_ok(), finds);
            }
            let done = sent(answers, &ann, says_to(&task, "m2", "Ann")).await;
            assert_eq!(done.status.state, Completed);
        }
        for (calls, count) in [(&all, 2), (&east, 1), (&other, 0)] {
            let listed = calls.list_tasks(&ann, ListTasksRequest::default()).await;
            assert_eq!(listed.unwrap().total_size, count);
        }
    });
}
