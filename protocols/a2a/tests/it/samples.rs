//! A sample value of each type, with all members set.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_a2a::wire::*;
use callboard_message::{RawObject, TaskState};
use serde_json::value::{RawValue, to_raw_value};

pub fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

pub fn object(json: &str) -> RawObject {
    serde_json::from_str(json).unwrap()
}

pub fn time() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_785_234_600_250)
}

pub fn parts() -> Vec<Part> {
    vec![
        Part {
            media_type: "text/markdown".into(),
            ..Part::text("a \"quoted\"\nline")
        },
        Part {
            filename: "x.png".into(),
            ..Part::raw(vec![0xFB, 0xEF, 0xFF, 0x00], "image/png")
        },
        Part {
            metadata: Some(object(r#"{"pages":3}"#)),
            ..Part::url("https://files.example/x.pdf", "application/pdf")
        },
        Part::data(raw(r#"{"n":1.50,"data":{"value":null}}"#)),
        Part::data(raw("[1,2]")),
    ]
}

pub fn message() -> A2aMessage {
    A2aMessage {
        message_id: "m-1".into(),
        context_id: "c-1".into(),
        task_id: "t-1".into(),
        role: Role::User,
        parts: parts(),
        metadata: Some(object(r#"{"skill":"book"}"#)),
        extensions: vec!["https://extensions.example/x".into()],
        reference_task_ids: vec!["t-0".into()],
    }
}

pub fn status(state: TaskState) -> TaskStatus {
    let message = A2aMessage {
        role: Role::Agent,
        parts: vec![Part::text("which day?")],
        ..message()
    };
    TaskStatus {
        state,
        message: Some(message),
        timestamp: Some(time()),
    }
}

pub fn artifact(id: &str) -> A2aArtifact {
    A2aArtifact {
        artifact_id: id.into(),
        name: "final".into(),
        description: "what it came to".into(),
        parts: parts(),
        metadata: Some(object(r#"{"of":"it"}"#)),
        extensions: vec!["https://extensions.example/x".into()],
    }
}

pub fn task(state: TaskState) -> A2aTask {
    A2aTask {
        artifacts: Some(vec![
            artifact("a-1"),
            A2aArtifact {
                parts: vec![Part::text("")],
                ..Default::default()
            },
        ]),
        history: Some(vec![message()]),
        metadata: Some(object(r#"{"callboard/event":7}"#)),
        ..A2aTask::new("t-1", "c-1", status(state))
    }
}

pub fn status_update(state: TaskState) -> StreamResponse {
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        status: status(state),
        metadata: Some(object(r#"{"callboard/event":8}"#)),
    })
}

pub fn artifact_update(id: &str, append: bool) -> StreamResponse {
    StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        artifact: A2aArtifact {
            parts: vec![Part::text("piece")],
            ..artifact(id)
        },
        append,
        last_chunk: append,
        metadata: None,
    })
}

pub fn push() -> TaskPushNotificationConfig {
    TaskPushNotificationConfig {
        tenant: String::new(),
        id: "p-1".into(),
        task_id: "t-1".into(),
        url: "https://hooks.example/a2a".into(),
        token: "once".into(),
        authentication: Some(AuthenticationInfo {
            scheme: "Bearer".into(),
            credentials: "key".into(),
        }),
    }
}

pub fn send() -> SendMessageRequest {
    SendMessageRequest {
        tenant: String::new(),
        message: message(),
        configuration: Some(SendMessageConfiguration {
            accepted_output_modes: vec!["text/plain".into()],
            task_push_notification_config: Some(TaskPushNotificationConfig {
                task_id: String::new(),
                ..push()
            }),
            history_length: Some(2),
            return_immediately: true,
        }),
        metadata: Some(object(r#"{"trace":"x"}"#)),
    }
}

fn interface(url: &str, binding: &str, version: &str) -> AgentInterface {
    AgentInterface {
        url: url.into(),
        protocol_binding: binding.into(),
        tenant: String::new(),
        protocol_version: version.into(),
    }
}

pub fn card() -> AgentCard {
    let requirement = |name: &str| SecurityRequirement {
        schemes: BTreeMap::from([(
            name.to_owned(),
            StringList {
                list: vec!["read".into()],
            },
        )]),
    };
    let flow = AuthorizationCodeOAuthFlow {
        authorization_url: "https://login.example/a".into(),
        token_url: "https://login.example/t".into(),
        scopes: BTreeMap::from([("read".into(), "Reads".into())]),
        pkce_required: true,
        ..Default::default()
    };
    AgentCard {
        name: "Clinic".into(),
        description: "Books".into(),
        supported_interfaces: vec![
            interface("https://agents.example/a2a", "JSONRPC", "1.0"),
            interface("https://agents.example/a2a", "HTTP+JSON", "1.0"),
            interface("https://agents.example/a2a", "JSONRPC", "0.3"),
            interface("https://agents.example/a2a/", "HTTP+JSON", "0.3"),
            interface("https://agents.example/a2a", "JSONRPC", "0.1"),
        ],
        provider: Some(AgentProvider {
            url: "https://example.org".into(),
            organization: "Example".into(),
        }),
        version: "2.1.0".into(),
        documentation_url: Some("https://docs.example".into()),
        capabilities: AgentCapabilities {
            streaming: Some(true),
            push_notifications: Some(false),
            extensions: vec![AgentExtension {
                uri: "urn:x".into(),
                description: "X".into(),
                required: true,
                params: Some(object(r#"{"a":[1]}"#)),
            }],
            extended_agent_card: Some(true),
        },
        security_schemes: BTreeMap::from([
            (
                "bearer".into(),
                SecurityScheme::HttpAuth(HTTPAuthSecurityScheme {
                    scheme: "Bearer".into(),
                    ..Default::default()
                }),
            ),
            (
                "key".into(),
                SecurityScheme::ApiKey(APIKeySecurityScheme {
                    location: "header".into(),
                    name: "X-API-Key".into(),
                    ..Default::default()
                }),
            ),
            (
                "oauth".into(),
                SecurityScheme::OAuth2(OAuth2SecurityScheme {
                    description: String::new(),
                    flows: OAuthFlows::AuthorizationCode(flow),
                    oauth2_metadata_url: "https://login.example/m".into(),
                }),
            ),
            (
                "openid".into(),
                SecurityScheme::OpenIdConnect(OpenIdConnectSecurityScheme {
                    description: "Ours".into(),
                    open_id_connect_url: "https://login.example/o".into(),
                }),
            ),
            (
                "tls".into(),
                SecurityScheme::MutualTls(MutualTlsSecurityScheme::default()),
            ),
        ]),
        security_requirements: vec![requirement("bearer"), requirement("oauth")],
        default_input_modes: vec!["text/plain".into()],
        default_output_modes: vec!["text/plain".into(), "application/json".into()],
        skills: vec![AgentSkill {
            id: "book".into(),
            name: "Book".into(),
            description: "Books a day".into(),
            tags: vec!["calendar".into()],
            examples: vec!["a day in May".into()],
            input_modes: vec!["application/json".into()],
            output_modes: vec![],
            security_requirements: vec![requirement("key")],
        }],
        signatures: vec![AgentCardSignature {
            protected: "eyJhbGciOiJFUzI1NiJ9".into(),
            signature: "c2ln".into(),
            header: Some(object(r#"{"x":1}"#)),
        }],
        icon_url: Some("https://example.org/i.png".into()),
    }
}

pub fn list() -> ListTasksResponse {
    ListTasksResponse {
        tasks: vec![A2aTask {
            artifacts: None,
            history: None,
            ..task(TaskState::Working)
        }],
        next_page_token: String::new(),
        page_size: 50,
        total_size: 1,
    }
}

pub fn list_request() -> ListTasksRequest {
    ListTasksRequest {
        tenant: String::new(),
        context_id: "c-1".into(),
        status: Some(TaskState::InputRequired),
        page_size: Some(10),
        page_token: "p".into(),
        history_length: Some(0),
        status_timestamp_after: Some(time()),
        include_artifacts: Some(false),
    }
}

/// Returns pairs of names and JSON texts, a line each.
pub fn lines(written: &[(&str, Box<RawValue>)]) -> String {
    written
        .iter()
        .map(|(name, json)| format!("{name}: {}\n", json.get()))
        .collect()
}

/// Returns any value as a raw value.
pub fn of(value: impl serde::Serialize) -> Box<RawValue> {
    to_raw_value(&value).unwrap()
}
