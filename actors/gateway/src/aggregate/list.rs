//! Paged lists over all members.

use callboard_message::capabilities::{
    ListPrompts, ListResourceTemplates, ListResources, ListTools,
};
use callboard_message::{Failure, RawObject};
use callboard_runtime::Context;
use futures::future::join_all;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::member::{MemberState, MissingMembers};
use super::names::NAME_CHARS_MAX;
use super::{AGGREGATE_MEMBER_PAGES_MAX, AGGREGATE_PAGE_ITEMS_MAX, AggregateState};

/// Maximum pages of one member's list that are read for one page of the aggregate's list.
const PAGES_PER_READ_MAX: usize = 32;

/// Kind of list that an aggregate combines from its members.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ListKind {
    Tools,
    Resources,
    Templates,
    Prompts,
}

impl ListKind {
    /// Returns the JSON key of the items in the result of a list request.
    pub fn items_key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }

    pub fn is_listed_by(self, member: &MemberState) -> bool {
        match self {
            Self::Tools => member.lists_tools(),
            Self::Resources => member.handles::<ListResources>(),
            Self::Templates => member.handles::<ListResourceTemplates>(),
            Self::Prompts => member.has_prompts(),
        }
    }
}

/// Start of a page of the aggregate's list: at one of its own tools, or at a page of a member's
/// list.
enum PageStart {
    Own(usize),
    /// Page of a member's list. `at` is the member's index, `read` the number of its pages before
    /// this one.
    Member {
        at: usize,
        read: usize,
        cursor: Option<String>,
    },
}

impl PageStart {
    fn parse_cursor(params: &RawObject) -> Result<Self, Failure> {
        let Some(cursor) = params.get("cursor").filter(|raw| raw.get() != "null") else {
            return Ok(Self::Own(0));
        };
        let invalid =
            || Failure::invalid("invalid cursor: request the list again without a cursor");
        let text: String = serde_json::from_str(cursor.get()).map_err(|_| invalid())?;
        let (at, rest) = text.split_once(':').ok_or_else(invalid)?;
        let (kind, place) = at.split_at_checked(1).ok_or_else(invalid)?;
        let number = |digits: &str| digits.parse::<usize>().map_err(|_| invalid());
        match (kind, place.split_once('.')) {
            ("o", None) => Ok(Self::Own(number(place)?)),
            ("m", Some((at, read))) => Ok(Self::Member {
                at: number(at)?,
                read: number(read)?,
                cursor: (!rest.is_empty()).then(|| rest.to_owned()),
            }),
            _ => Err(invalid()),
        }
    }

    fn to_cursor(&self) -> String {
        match self {
            Self::Own(at) => format!("o{at}:"),
            Self::Member { at, read, cursor } => {
                format!("m{at}.{read}:{}", cursor.as_deref().unwrap_or_default())
            }
        }
    }
}

/// Part of a member's list, read for one page of the aggregate's list.
struct MemberListPart {
    /// Items of each page that was read, with the cursor by which the page was requested.
    pages: Vec<(Option<String>, Vec<Box<RawValue>>)>,
    /// Nested members whose part is missing, as the member itself reports.
    missing: MissingMembers,
    /// Cursor of the member's next page (`None` at the end), or the failure that ended the reading.
    rest: Result<Option<String>, Failure>,
}

impl AggregateState {
    /// Returns one page of the aggregate's list. All members that may contribute to it are called
    /// concurrently. An unavailable or slow member is left out and reported as missing, because the
    /// items of the others are useful without it.
    pub async fn list_page(
        &self,
        what: ListKind,
        params: &RawObject,
        cx: &Context,
    ) -> Result<RawObject, Failure> {
        let mut items: Vec<Box<RawValue>> = Vec::new();
        let (first, before, mut cursor) = match PageStart::parse_cursor(params)? {
            PageStart::Own(from) => {
                let own = if what == ListKind::Tools {
                    &*self.tools
                } else {
                    &[]
                };
                let page = own.iter().skip(from).take(AGGREGATE_PAGE_ITEMS_MAX);
                items.extend(page.map(|tool| tool.descriptor.to_raw()));
                let next = from.saturating_add(items.len());
                if next < own.len() {
                    return Ok(build_page(
                        what,
                        items,
                        Some(PageStart::Own(next)),
                        &MissingMembers::default(),
                    ));
                }
                (0, 0, None)
            }
            PageStart::Member { at, read, cursor } => (at, read, cursor),
        };
        let members = self
            .members
            .iter()
            .enumerate()
            .skip(first)
            .filter(|(_, member)| what.is_listed_by(member));
        let reading = members.map(|(at, member)| {
            let (read, cursor) = if at == first {
                (before, cursor.take())
            } else {
                (0, None)
            };
            async move {
                (
                    at,
                    member,
                    read,
                    self.read_part(what, at, member, (read, cursor), cx).await,
                )
            }
        });
        let mut missing = MissingMembers::default();
        for (at, member, mut read, part) in join_all(reading).await {
            missing.append(part.missing);
            for (cursor, page) in part.pages {
                if items.len() >= AGGREGATE_PAGE_ITEMS_MAX {
                    return Ok(build_page(
                        what,
                        items,
                        Some(PageStart::Member { at, read, cursor }),
                        &missing,
                    ));
                }
                items.extend(page);
                read = read.saturating_add(1);
            }
            match part.rest {
                Ok(None) => {}
                Ok(cursor) => {
                    return Ok(build_page(
                        what,
                        items,
                        Some(PageStart::Member { at, read, cursor }),
                        &missing,
                    ));
                }
                Err(failure) => missing.add(member, at, &failure, cx),
            }
        }
        Ok(build_page(what, items, None, &missing))
    }

    /// Reads a member's list from `cursor` on, until it has the items for one page of the
    /// aggregate's list. `at` is the member's index.
    async fn read_part(
        &self,
        what: ListKind,
        at: usize,
        member: &MemberState,
        (read, mut cursor): (usize, Option<String>),
        cx: &Context,
    ) -> MemberListPart {
        let limit = member.deadline(self.list_timeout, cx);
        let (mut pages, mut count, mut missing) = (Vec::new(), 0, MissingMembers::default());
        let rest = loop {
            // Without this limit, an endless list would keep later members from being listed.
            if read.saturating_add(pages.len()) >= AGGREGATE_MEMBER_PAGES_MAX {
                let why = format!(
                    "its list has more than {AGGREGATE_MEMBER_PAGES_MAX} pages; the rest isn't shown"
                );
                break Err(Failure::rejected(why));
            }
            if count >= AGGREGATE_PAGE_ITEMS_MAX || pages.len() >= PAGES_PER_READ_MAX {
                break Ok(cursor);
            }
            let page = match ask_page(what, member, cursor.as_deref(), limit, cx).await {
                Ok(page) => page,
                Err(failure) => break Err(failure),
            };
            missing.add_reported(member, &page);
            let theirs: Vec<RawObject> = page.read(what.items_key()).unwrap_or_default();
            let shown: Vec<_> = theirs
                .into_iter()
                .filter_map(|item| self.rename_item(what, at, member, item))
                .collect();
            count += shown.len();
            // A repeated cursor would loop forever.
            let next = page
                .text("nextCursor")
                .filter(|next| Some(next) != cursor.as_ref());
            pages.push((cursor, shown));
            cursor = match next {
                None => break Ok(None),
                next => next,
            };
        };
        MemberListPart {
            pages,
            missing,
            rest,
        }
    }

    /// Renames an item of a member's list to its shown name; `None` if it is hidden.
    fn rename_item(
        &self,
        what: ListKind,
        at: usize,
        member: &MemberState,
        mut item: RawObject,
    ) -> Option<Box<RawValue>> {
        match what {
            ListKind::Tools | ListKind::Prompts => {
                let own = item.text("name")?;
                let shown = self.shown_name(what, member, &own)?;
                self.remember_name(what, &shown, at, &own);
                item.set("name", shown);
            }
            ListKind::Resources => self.remember_owner(&item.text("uri")?, at),
            ListKind::Templates => {}
        }
        if what == ListKind::Tools {
            // Calls through an aggregate can't be tasks.
            item.remove("execution");
        }
        Some(item.to_raw())
    }
}

/// Requests one page of a member's list.
pub(super) async fn ask_page(
    what: ListKind,
    member: &MemberState,
    cursor: Option<&str>,
    limit: Instant,
    cx: &Context,
) -> Result<RawObject, Failure> {
    let mut params = RawObject::new();
    params.set_some("cursor", &cursor);
    match what {
        ListKind::Tools => member.ask_until::<ListTools>(params, limit, cx).await,
        ListKind::Resources => member.ask_until::<ListResources>(params, limit, cx).await,
        ListKind::Templates => {
            member
                .ask_until::<ListResourceTemplates>(params, limit, cx)
                .await
        }
        ListKind::Prompts => member.ask_until::<ListPrompts>(params, limit, cx).await,
    }
}

fn build_page(
    what: ListKind,
    items: Vec<Box<RawValue>>,
    next: Option<PageStart>,
    missing: &MissingMembers,
) -> RawObject {
    let mut page = RawObject::single(what.items_key(), items);
    if let Some(next) = next {
        page.set("nextCursor", next.to_cursor());
    }
    missing.write_meta(&mut page);
    page
}

impl AggregateState {
    /// Returns the name under which the aggregate shows an item of a member's list; `None` if it is
    /// hidden. `own` is the item's name in the member.
    pub fn shown_name(&self, what: ListKind, member: &MemberState, own: &str) -> Option<String> {
        let name = match what {
            ListKind::Tools => member.naming.to_shown(own)?,
            _ => own,
        };
        let shown = match self.keeps_name(what, member, name) {
            true => name.to_owned(),
            false => member.joined(name),
        };
        let is_selected = || self.name_filter.selects(&member.name, name);
        (what != ListKind::Tools || is_selected()).then_some(shown)
    }

    /// Returns whether a name in a member's own list is shown without prefix. That needs a member
    /// that keeps its names, and a name that no message type has and that can't be confused with a
    /// truncated or prefixed one.
    fn keeps_name(&self, what: ListKind, member: &MemberState, name: &str) -> bool {
        let is_taken = || what == ListKind::Tools && self.by_name.contains_key(name);
        let is_short = || name.chars().nth(NAME_CHARS_MAX).is_none();
        // A name with the prefix of another member would be taken for that member's.
        let has_prefix = || {
            let mut others = self.members.iter().filter(|other| what.is_listed_by(other));
            others.any(|other| other.own_name(name, other.separator).is_some())
        };
        member.keeps_names(self.prefix) && is_short() && !has_prefix() && !is_taken()
    }
}
