//! Paged lists over all members.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Failure, RawObject};
use callboard_runtime::{AccessItem, Context};
use futures::future::join_all;
use serde_json::value::RawValue;

use super::member::{ListKind, MemberState, ask_page};
use super::missing::MissingMembers;
use super::resolve::NameResolver;
use super::uris::ResourceIndex;
use super::{AGGREGATE_MEMBER_PAGES_MAX, AGGREGATE_PAGE_ITEMS_MAX};

/// Maximum pages of one member's list that are read for one page of the aggregate's list. The
/// aggregate's next page continues after them.
const PAGES_PER_READ_MAX: usize = 32;

/// Start of a page of the aggregate's list: at one of its own tools, or at a page of a member's
/// list.
enum PageStart {
    Own(usize),
    /// Page of a member's list. `at` is the member's index, `read` the number of its pages before
    /// this one, and `cursor` that of the member; `None` for its first page.
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
    pages: Vec<(Option<String>, Vec<RawObject>)>,
    /// Nested members whose part is missing, as the member itself reports.
    missing: MissingMembers,
    /// Cursor of the member's next page (`None` at the end), or the failure that ended the reading.
    rest: Result<Option<String>, Failure>,
}

/// Reader of the members' lists as one list.
pub(super) struct ListReader {
    members: Arc<[MemberState]>,
    names: Arc<NameResolver>,
    resources: Arc<ResourceIndex>,
    list_timeout: Duration,
}

impl ListReader {
    /// Creates a reader that waits up to `list_timeout` for a member's list.
    pub fn new(
        members: Arc<[MemberState]>,
        names: Arc<NameResolver>,
        resources: Arc<ResourceIndex>,
        list_timeout: Duration,
    ) -> Self {
        Self {
            members,
            names,
            resources,
            list_timeout,
        }
    }

    /// Returns one page of the aggregate's list. All members that may contribute to it are called
    /// concurrently. An unavailable or slow member is left out and reported as missing, because the
    /// items of the others are useful without it.
    ///
    /// # Errors
    /// `InvalidInput`, if `params` has a cursor that isn't one of this aggregate's.
    pub async fn page(
        &self,
        what: ListKind,
        params: &RawObject,
        cx: &Context,
    ) -> Result<RawObject, Failure> {
        let mut uris = HashMap::new();
        let (mut items, (first, before, mut cursor)) = match PageStart::parse_cursor(params)? {
            PageStart::Own(from) => {
                let (items, next) = self.own_items(what, from, cx);
                if let Some(next) = next {
                    let next = Some(PageStart::Own(next));
                    return Ok(build_page(what, items, next, &MissingMembers::default()));
                }
                (items, (0, 0, None))
            }
            PageStart::Member { at, read, cursor } => (Vec::new(), (at, read, cursor)),
        };
        let is_later_page = (first, before) != (0, 0);
        let members = self
            .members
            .iter()
            .enumerate()
            .skip(first)
            .filter(|(_, member)| what.is_listed_by(member))
            .filter(|(_, member)| member.is_permitted(AccessItem::Agent, cx));
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
                items.extend(page.into_iter().map(|item| {
                    match what {
                        ListKind::Resources => self
                            .with_shown_uri(item, at, is_later_page, &mut uris)
                            .to_raw(),
                        _ => item.to_raw(),
                    }
                }));
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

    /// Returns the aggregate's own items from index `from` on that the caller may use, up to one page, and
    /// the index of the next page's first item; `None` if there are no more. Only the list of tools has own
    /// items.
    fn own_items(
        &self,
        what: ListKind,
        from: usize,
        cx: &Context,
    ) -> (Vec<Box<RawValue>>, Option<usize>) {
        let own = if what == ListKind::Tools {
            self.names.message_tools()
        } else {
            &[]
        };
        let page = own.iter().skip(from).take(AGGREGATE_PAGE_ITEMS_MAX);
        let next = from.saturating_add(page.len());
        let shown = page.filter(|tool| {
            let member = self.members.get(tool.member);
            let item = AccessItem::tool(&tool.message);
            member.is_some_and(|member| member.is_permitted(item, cx))
        });
        let items = shown.map(|tool| tool.descriptor.to_raw()).collect();
        (items, (next < own.len()).then_some(next))
    }

    /// Reads the list of the member with index `at`, until it has the items for one page of the
    /// aggregate's list or [`PAGES_PER_READ_MAX`] pages. Starts at `cursor`, before which `read`
    /// pages were read for earlier pages of the aggregate's list.
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
                .filter(|item| {
                    let item = what.access_item(item);
                    item.is_some_and(|item| member.is_permitted(item, cx))
                })
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

    /// Renames an item of a member's list to its shown name, and caches the member that has it.
    /// `None` if the item is hidden, or has no name or URI.
    fn rename_item(
        &self,
        what: ListKind,
        at: usize,
        member: &MemberState,
        mut item: RawObject,
    ) -> Option<RawObject> {
        match what {
            ListKind::Tools | ListKind::Prompts => {
                let own = item.text("name")?;
                let shown = self.names.shown_name(what, member, &own)?;
                self.names.remember_name(what, &shown, at, &own);
                item.set("name", shown);
            }
            ListKind::Resources => self.resources.remember_listed(&item.text("uri")?, at),
            ListKind::Templates => {}
        }
        if what == ListKind::Tools {
            // Calls through an aggregate can't be tasks.
            item.remove("execution");
        }
        Some(item)
    }

    /// Gives a member's resource an alias if a member before it has another one with its URI, or if
    /// the URI itself could be taken for an alias. `uris` holds the member of each URI on this page
    /// of the list; members of earlier pages are known from their listing.
    fn with_shown_uri(
        &self,
        mut item: RawObject,
        at: usize,
        is_later_page: bool,
        uris: &mut HashMap<String, usize>,
    ) -> RawObject {
        let Some(uri) = item.text("uri") else {
            return item;
        };
        let first = *uris.entry(uri.clone()).or_insert(at);
        let is_duplicate = first != at || is_later_page && self.resources.is_duplicate(&uri, at);
        if is_duplicate || self.resources.resolve_alias(&uri).is_some() {
            item.set("uri", self.resources.alias(&uri, at));
        }
        item
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
