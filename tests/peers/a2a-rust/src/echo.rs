//! Agent under measurement: a task with one artifact, the sent text.

use std::sync::Arc;

use a2a::{
    A2AError, Artifact, Part, StreamResponse, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};
use a2a_server::jsonrpc::jsonrpc_router;
use a2a_server::{AgentExecutor, DefaultRequestHandler, ExecutorContext, InMemoryTaskStore};
use axum::Router;
use futures::stream::{self, BoxStream, StreamExt as _};

struct Echo;

/// The SDK's server as it comes, JSON-RPC at `/`.
pub fn router() -> Router {
    jsonrpc_router(Arc::new(DefaultRequestHandler::new(
        Echo,
        InMemoryTaskStore::new(),
    )))
}

impl AgentExecutor for Echo {
    fn execute(
        &self,
        context: ExecutorContext,
    ) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        let text = context
            .message
            .as_ref()
            .and_then(|message| message.text())
            .unwrap_or_default()
            .to_owned();
        let shown = artifact(&context, "result", text, None);
        stream::iter([Ok(shown), Ok(status(&context, TaskState::Completed, None))]).boxed()
    }

    fn cancel(
        &self,
        context: ExecutorContext,
    ) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        stream::iter([Ok(status(&context, TaskState::Canceled, None))]).boxed()
    }
}

/// The task's state, and what is said of it.
pub fn status(context: &ExecutorContext, state: TaskState, said: Option<&str>) -> StreamResponse {
    let message = said.map(|text| {
        let mut message = a2a::Message::new(a2a::Role::Agent, vec![Part::text(text)]);
        (message.task_id, message.context_id) = (
            Some(context.task_id.clone()),
            Some(context.context_id.clone()),
        );
        message
    });
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
        task_id: context.task_id.clone(),
        context_id: context.context_id.clone(),
        status: TaskStatus {
            state,
            message,
            timestamp: None,
        },
        metadata: None,
    })
}

/// An artifact of one text; `piece`: it goes on with what is there, and whether it is the last.
pub fn artifact(
    context: &ExecutorContext,
    id: &str,
    text: impl Into<String>,
    piece: Option<(bool, bool)>,
) -> StreamResponse {
    StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
        task_id: context.task_id.clone(),
        context_id: context.context_id.clone(),
        artifact: Artifact {
            artifact_id: id.to_owned(),
            name: None,
            description: None,
            parts: vec![Part::text(text)],
            metadata: None,
            extensions: None,
        },
        append: piece.map(|(append, _)| append),
        last_chunk: piece.map(|(_, last)| last),
        metadata: None,
    })
}
