//! Lists of all members, page by page.

use callboard_message::surface::{ListPrompts, ListResourceTemplates, ListResources, ListTools};
use callboard_message::{Failure, Message, RawObject};
use callboard_runtime::Cx;
use serde_json::value::RawValue;

use super::member::Member;
use super::names::may_be_cut;
use super::{BUNDLE_PAGE_ITEMS_MAX, Parts};

/// Most pages of one member's list in which a name is looked for that had to be cut.
const PAGES_SEARCHED_MAX: usize = 32;

/// What is listed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Tools,
    Resources,
    Templates,
    Prompts,
}

impl What {
    /// The member of the list's result that has the items.
    fn items(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }

    fn is_listed_by(self, member: &Member) -> bool {
        match self {
            Self::Tools => member.lists_tools(),
            Self::Resources => member.lists_resources(),
            Self::Templates => member.lists_templates(),
            Self::Prompts => member.has_prompts(),
        }
    }

    /// Whether items are named by the member that has them.
    fn is_named(self) -> bool {
        matches!(self, Self::Tools | Self::Prompts)
    }
}

/// Where a page begins: at a tool of ours, or at the page of a member.
enum From {
    Own(usize),
    Member { at: usize, cursor: Option<String> },
}

impl From {
    fn read(params: &RawObject) -> Result<Self, Failure> {
        let Some(cursor) = params.get("cursor").filter(|raw| raw.get() != "null") else { return Ok(Self::Own(0)) };
        let invalid = || Failure::invalid("invalid cursor: begin the list again without one");
        let text: String = serde_json::from_str(cursor.get()).map_err(|_| invalid())?;
        let (at, rest) = text.split_once(':').ok_or_else(invalid)?;
        let place: usize = at.get(1..).and_then(|digits| digits.parse().ok()).ok_or_else(invalid)?;
        match at.get(..1) {
            Some("o") => Ok(Self::Own(place)),
            Some("m") => Ok(Self::Member { at: place, cursor: (!rest.is_empty()).then(|| rest.to_owned()) }),
            _ => Err(invalid()),
        }
    }

    fn write(&self) -> String {
        match self {
            Self::Own(at) => format!("o{at}:"),
            Self::Member { at, cursor } => format!("m{at}:{}", cursor.as_deref().unwrap_or_default()),
        }
    }
}

impl Parts {
    /// One page. A member that is away is left out: the others' lists are of use without it.
    pub(super) async fn list(&self, what: What, params: &RawObject, cx: &Cx) -> Result<RawObject, Failure> {
        let mut items: Vec<Box<RawValue>> = Vec::new();
        let (mut at, mut cursor) = match From::read(params)? {
            From::Own(from) => {
                let own = if what == What::Tools { &*self.tools } else { &[] };
                let page = own.iter().skip(from).take(BUNDLE_PAGE_ITEMS_MAX);
                items.extend(page.map(|tool| tool.listed.to_raw()));
                let next = from.saturating_add(items.len());
                if next < own.len() {
                    return Ok(page_of(what, items, Some(From::Own(next))));
                }
                (0, None)
            }
            From::Member { at, cursor } => (at, cursor),
        };
        while let Some(member) = self.members.get(at) {
            if what.is_listed_by(member) {
                if items.len() >= BUNDLE_PAGE_ITEMS_MAX {
                    return Ok(page_of(what, items, Some(From::Member { at, cursor })));
                }
                cursor = self.add_page(what, member, cursor, &mut items, cx).await;
                if cursor.is_some() {
                    continue;
                }
            }
            at += 1;
        }
        Ok(page_of(what, items, None))
    }

    /// Adds a page of a member's, and says where its next begins.
    async fn add_page(
        &self,
        what: What,
        member: &Member,
        cursor: Option<String>,
        items: &mut Vec<Box<RawValue>>,
        cx: &Cx,
    ) -> Option<String> {
        let mut params = RawObject::new();
        if let Some(cursor) = &cursor {
            params.set("cursor", cursor);
        }
        let asked = match what {
            What::Tools => member.ask::<ListTools>(params, cx).await,
            What::Resources => member.ask::<ListResources>(params, cx).await,
            What::Templates => member.ask::<ListResourceTemplates>(params, cx).await,
            What::Prompts => member.ask::<ListPrompts>(params, cx).await,
        };
        let page = asked.inspect_err(|failure| {
            tracing::warn!(member = member.name, kind = %failure.kind, "a member's list is left out");
        });
        let page = page.ok()?;
        let theirs: Vec<RawObject> = page.read(what.items()).unwrap_or_default();
        items.extend(theirs.into_iter().map(|item| renamed(what, member, item).to_raw()));
        // A cursor that leads nowhere new would never end.
        page.text("nextCursor").filter(|next| Some(next) != cursor.as_ref())
    }

    /// Which member a shown name belongs to, and the member's own name for it.
    pub(super) async fn find<M: Message>(&self, what: What, shown: &str, cx: &Cx) -> Option<(&Member, String)> {
        let listing = || self.members.iter().filter(|member| what.is_listed_by(member));
        if !may_be_cut(shown) {
            return listing().find_map(|member| Some((member, member.own_name(shown)?.to_owned())));
        }
        // Only the lists tell what a name that was cut stands for.
        for member in listing() {
            let mut params = RawObject::new();
            for _ in 0..PAGES_SEARCHED_MAX {
                let page = member.ask::<M>(params, cx).await.unwrap_or_default();
                let theirs: Vec<RawObject> = page.read(what.items()).unwrap_or_default();
                let mut names = theirs.iter().filter_map(|item| item.text("name"));
                if let Some(name) = names.find(|name| member.joined(name) == shown) {
                    return Some((member, name));
                }
                let Some(next) = page.get("nextCursor") else { break };
                params = RawObject::new().with("cursor", next);
            }
        }
        None
    }
}

fn renamed(what: What, member: &Member, mut item: RawObject) -> RawObject {
    if what.is_named()
        && let Some(name) = item.text("name")
    {
        item.set("name", member.joined(&name));
    }
    if what == What::Tools {
        item.remove("execution");
    }
    item
}

fn page_of(what: What, items: Vec<Box<RawValue>>, next: Option<From>) -> RawObject {
    let mut page = RawObject::new().with(what.items(), items);
    if let Some(next) = next {
        page.set("nextCursor", next.write());
    }
    page
}
