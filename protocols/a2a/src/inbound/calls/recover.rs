//! Tasks that an earlier process or another node left.

use std::sync::Arc;

use callboard_message::{Failure, FailureKind};
use callboard_runtime::live::{CannotResume, TaskHost};
use callboard_runtime::{CallMeta, Lease, Task};
use futures::future::BoxFuture;

use super::begin::{arguments, run_of};
use super::skills::Route;
use super::{Core, Who, history};
use crate::Dialect;

impl TaskHost for Core {
    fn resume(self: Arc<Self>, task: Arc<Task>, lease: Lease) -> BoxFuture<'static, Result<(), CannotResume>> {
        Box::pin(async move {
            let Some(given) = arguments(&task) else {
                let why = Failure::new(FailureKind::Unavailable, "what it was asked wasn't kept");
                return Err(CannotResume::Fails(why));
            };
            let (callee, call) = (self.callee(), CallMeta::new(Arc::new(task.principal.clone())));
            let given = match history::first(&task).filter(|_| callee.route(&task.message) == Route::Converse) {
                Some(said) => {
                    let who = Who::new(call.principal.clone(), Dialect::V10);
                    let told = self.with_referenced(&who, &said, &given).await;
                    let unread = |_| {
                        CannotResume::Fails(Failure::new(FailureKind::Unavailable, "what it refers to can't be read"))
                    };
                    told.map_err(unread)?.unwrap_or(given)
                }
                None => given,
            };
            let call = callee.judged(&task.message, &given, call).await.map_err(CannotResume::Fails)?;
            let work = self.work(callee, &task, given, call);
            self.live.run(run_of(task, lease, true, work));
            Ok(())
        })
    }
}
