use std::time::Duration;

use callboard_message::RawObject;
use callboard_rpc::Limits;

use super::modern::options::ModernOptions;
use super::tasks::TaskOptions;

/// How long a call may take, questions included, by default.
pub const CALL_DEADLINE_DEFAULT: Duration = Duration::from_secs(300);
/// Most tools, resources or prompts on one page of a list, by default.
pub const PAGE_ITEMS_MAX_DEFAULT: usize = 200;

/// How an agent is served over MCP.
#[derive(Debug, Clone)]
pub struct InboundOptions {
    /// What the server says of itself.
    pub info: Info,
    /// What a message may measure.
    pub limits: Limits,
    /// How long a call may take, questions included.
    pub call_deadline: Duration,
    /// Most items on one page of a list.
    pub page_items_max: usize,
    /// How the stateless era is served.
    pub modern: ModernOptions,
    /// How calls run as tasks.
    pub tasks: TaskOptions,
}

impl Default for InboundOptions {
    fn default() -> Self {
        Self {
            info: Info::default(),
            limits: Limits::default(),
            call_deadline: CALL_DEADLINE_DEFAULT,
            page_items_max: PAGE_ITEMS_MAX_DEFAULT,
            modern: ModernOptions::default(),
            tasks: TaskOptions::default(),
        }
    }
}

/// What a server says of itself.
#[derive(Debug, Clone)]
pub struct Info {
    /// For programs.
    pub name: String,
    /// Of what is served, not of callboard.
    pub version: String,
    /// For people.
    pub title: Option<String>,
    /// For the model that uses it: when to use what.
    pub instructions: Option<String>,
    /// Other members of MCP's `Implementation`: `icons`, `websiteUrl`, `description`.
    pub more: RawObject,
}

impl Default for Info {
    fn default() -> Self {
        Self {
            name: "callboard".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            title: None,
            instructions: None,
            more: RawObject::new(),
        }
    }
}

impl Info {
    /// MCP's `Implementation`.
    pub fn implementation(&self) -> RawObject {
        let mut info = RawObject::new().with("name", &self.name);
        if let Some(title) = &self.title {
            info.set("title", title);
        }
        info.set("version", &self.version);
        for (name, value) in self.more.iter() {
            info.set_raw(name, value.to_owned());
        }
        info
    }
}
