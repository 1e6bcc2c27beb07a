//! Lists of all members, page by page.

use callboard_message::surface::{ListPrompts, ListResourceTemplates, ListResources, ListTools};
use callboard_message::{Failure, FailureKind, RawObject};
use callboard_runtime::Cx;
use futures::future::join_all;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::member::{Member, Missing};
use super::names::{NAME_CHARS_MAX, may_be_cut, may_be_of};
use super::{BUNDLE_MEMBER_PAGES_MAX, BUNDLE_PAGE_ITEMS_MAX, Parts, Prefix};

/// Most pages of one member's list that are read for one page of the bundle's.
const PAGES_AT_ONCE_MAX: usize = 32;
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
    pub fn items(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }

    pub fn is_listed_by(self, member: &Member) -> bool {
        match self {
            Self::Tools => member.lists_tools(),
            Self::Resources => member.handles::<ListResources>(),
            Self::Templates => member.handles::<ListResourceTemplates>(),
            Self::Prompts => member.has_prompts(),
        }
    }
}

/// Where a page begins: at a tool of ours, or at the page of a member.
enum From {
    Own(usize),
    /// `read` is how many of its pages came before.
    Member {
        at: usize,
        read: usize,
        cursor: Option<String>,
    },
}

impl From {
    fn read(params: &RawObject) -> Result<Self, Failure> {
        let Some(cursor) = params.get("cursor").filter(|raw| raw.get() != "null") else {
            return Ok(Self::Own(0));
        };
        let invalid = || Failure::invalid("invalid cursor: begin the list again without one");
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

    fn write(&self) -> String {
        match self {
            Self::Own(at) => format!("o{at}:"),
            Self::Member { at, read, cursor } => {
                format!("m{at}.{read}:{}", cursor.as_deref().unwrap_or_default())
            }
        }
    }
}

/// What was read of a member's list.
struct Part {
    /// Each page's items, and the cursor that it was asked for with.
    pages: Vec<(Option<String>, Vec<Box<RawValue>>)>,
    /// What it says is missing.
    missing: Missing,
    /// The rest: where it goes on, or why there is none.
    rest: Result<Option<String>, Failure>,
}

impl Parts {
    /// One page. All members that can be on it are asked at once; one that is away or slow is left out, which the page
    /// says: the others' lists are of use without it.
    pub async fn list(
        &self,
        what: What,
        params: &RawObject,
        cx: &Cx,
    ) -> Result<RawObject, Failure> {
        let mut items: Vec<Box<RawValue>> = Vec::new();
        let (first, before, mut cursor) = match From::read(params)? {
            From::Own(from) => {
                let own = if what == What::Tools {
                    &*self.tools
                } else {
                    &[]
                };
                let page = own.iter().skip(from).take(BUNDLE_PAGE_ITEMS_MAX);
                items.extend(page.map(|tool| tool.listed.to_raw()));
                let next = from.saturating_add(items.len());
                if next < own.len() {
                    return Ok(page_of(
                        what,
                        items,
                        Some(From::Own(next)),
                        &Missing::default(),
                    ));
                }
                (0, 0, None)
            }
            From::Member { at, read, cursor } => (at, read, cursor),
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
        let mut missing = Missing::default();
        for (at, member, mut read, part) in join_all(reading).await {
            missing.append(part.missing);
            for (cursor, page) in part.pages {
                if items.len() >= BUNDLE_PAGE_ITEMS_MAX {
                    return Ok(page_of(
                        what,
                        items,
                        Some(From::Member { at, read, cursor }),
                        &missing,
                    ));
                }
                items.extend(page);
                read = read.saturating_add(1);
            }
            match part.rest {
                Ok(None) => {}
                Ok(cursor) => {
                    return Ok(page_of(
                        what,
                        items,
                        Some(From::Member { at, read, cursor }),
                        &missing,
                    ));
                }
                Err(failure) => missing.add(member, at, &failure, cx),
            }
        }
        Ok(page_of(what, items, None, &missing))
    }

    /// Reads a member's list from `cursor`, as much as fits on one page of the bundle's.
    async fn read_part(
        &self,
        what: What,
        at: usize,
        member: &Member,
        (read, mut cursor): (usize, Option<String>),
        cx: &Cx,
    ) -> Part {
        let limit = member.limit(self.list_timeout, cx);
        let (mut pages, mut count, mut missing) = (Vec::new(), 0, Missing::default());
        let rest = loop {
            // One whose list never ends would keep those after it from ever being listed.
            if read.saturating_add(pages.len()) >= BUNDLE_MEMBER_PAGES_MAX {
                let why = format!(
                    "its list has more than {BUNDLE_MEMBER_PAGES_MAX} pages; the rest isn't shown"
                );
                break Err(Failure::rejected(why));
            }
            if count >= BUNDLE_PAGE_ITEMS_MAX || pages.len() >= PAGES_AT_ONCE_MAX {
                break Ok(cursor);
            }
            let page = match ask_page(what, member, cursor.as_deref(), limit, cx).await {
                Ok(page) => page,
                Err(failure) => break Err(failure),
            };
            missing.add_theirs(member, &page);
            let theirs: Vec<RawObject> = page.read(what.items()).unwrap_or_default();
            let shown: Vec<_> = theirs
                .into_iter()
                .filter_map(|item| self.renamed(what, at, member, item))
                .collect();
            count += shown.len();
            // A cursor that leads nowhere new would never end.
            let next = page
                .text("nextCursor")
                .filter(|next| Some(next) != cursor.as_ref());
            pages.push((cursor, shown));
            cursor = match next {
                None => break Ok(None),
                next => next,
            };
        };
        Part {
            pages,
            missing,
            rest,
        }
    }

    /// An item as the bundle shows it; `None` where it doesn't.
    fn renamed(
        &self,
        what: What,
        at: usize,
        member: &Member,
        mut item: RawObject,
    ) -> Option<Box<RawValue>> {
        match what {
            What::Tools | What::Prompts => {
                let own = item.text("name")?;
                let shown = self.show(what, member, &own)?;
                self.learn_name(what, &shown, at, &own);
                item.set("name", shown);
            }
            What::Resources => self.learn_owner(&item.text("uri")?, at),
            What::Templates => {}
        }
        if what == What::Tools {
            // Calls here aren't tasks.
            item.remove("execution");
        }
        Some(item.to_raw())
    }
}

/// A page of a member's own list.
async fn ask_page(
    what: What,
    member: &Member,
    cursor: Option<&str>,
    limit: Instant,
    cx: &Cx,
) -> Result<RawObject, Failure> {
    let mut params = RawObject::new();
    params.set_some("cursor", &cursor);
    match what {
        What::Tools => member.ask_until::<ListTools>(params, limit, cx).await,
        What::Resources => member.ask_until::<ListResources>(params, limit, cx).await,
        What::Templates => {
            member
                .ask_until::<ListResourceTemplates>(params, limit, cx)
                .await
        }
        What::Prompts => member.ask_until::<ListPrompts>(params, limit, cx).await,
    }
}

fn page_of(
    what: What,
    items: Vec<Box<RawValue>>,
    next: Option<From>,
    missing: &Missing,
) -> RawObject {
    let mut page = RawObject::of(what.items(), items);
    if let Some(next) = next {
        page.set("nextCursor", next.write());
    }
    missing.note(&mut page);
    page
}

impl Parts {
    /// The name that something of `member`'s own list is shown under; `None` where it isn't shown.
    pub fn show(&self, what: What, member: &Member, own: &str) -> Option<String> {
        let name = match what {
            What::Tools => member.naming.outward(own)?,
            _ => own,
        };
        let shown = match self.stays(what, member, name) {
            true => name.to_owned(),
            false => member.joined(name),
        };
        (what != What::Tools || self.sieve.passes(&shown)).then_some(shown)
    }

    /// Whether a name of a member's list needs no member before it: nothing else can have it, now or later.
    fn stays(&self, what: What, member: &Member, name: &str) -> bool {
        let is_taken = || what == What::Tools && self.by_name.contains_key(name);
        let is_short = || name.chars().nth(NAME_CHARS_MAX).is_none();
        self.prefix == Prefix::Never && is_short() && member.own_name(name).is_none() && !is_taken()
    }

    /// What a shown name stands for: whose it is, and what the member calls it.
    ///
    /// # Errors
    /// `missing` where it stands for nothing; the failure of a member whose list would have told.
    pub async fn find(
        &self,
        what: What,
        shown: &str,
        cx: &Cx,
        missing: impl FnOnce() -> Failure,
    ) -> Result<(&Member, String), Failure> {
        let listing = || {
            self.members
                .iter()
                .filter(|member| what.is_listed_by(member))
        };
        if let Some(found) =
            listing().find_map(|member| Some((member, self.own(what, member, shown)?)))
        {
            return Ok(found);
        }
        if !may_be_cut(shown) {
            return Err(missing());
        }
        if let Some((at, own)) = self.cut.get(&(what.items(), shown.to_owned()))
            && let Some(member) = self.members.get(at)
        {
            return Ok((member, own));
        }
        // Only the lists tell what a name that was cut stands for.
        for (at, member) in self.members.iter().enumerate() {
            if what.is_listed_by(member)
                && may_be_of(shown, &member.name, member.separator)
                && let Some(own) = self.search(what, member, shown, cx).await?
            {
                self.learn_name(what, shown, at, &own);
                return Ok((member, own));
            }
        }
        Err(missing())
    }

    /// What `member` calls what is shown as `shown`, as far as the name itself tells.
    fn own(&self, what: What, member: &Member, shown: &str) -> Option<String> {
        let alone = Some(shown).filter(|_| self.prefix == Prefix::Never);
        let names = [alone, member.own_name(shown).filter(|_| !may_be_cut(shown))];
        let owns = names.into_iter().flatten().filter_map(|name| match what {
            What::Tools => member.naming.inward(name),
            _ => Some(name),
        });
        let mut owns = owns.filter(|own| self.show(what, member, own).as_deref() == Some(shown));
        owns.next().map(str::to_owned)
    }

    async fn search(
        &self,
        what: What,
        member: &Member,
        shown: &str,
        cx: &Cx,
    ) -> Result<Option<String>, Failure> {
        let limit = member.limit(self.list_timeout, cx);
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_SEARCHED_MAX {
            let page = match ask_page(what, member, cursor.as_deref(), limit, cx).await {
                Err(failure) if failure.kind == FailureKind::NotFound => return Ok(None),
                page => page?,
            };
            let theirs: Vec<RawObject> = page.read(what.items()).unwrap_or_default();
            let mut names = theirs.iter().filter_map(|item| item.text("name"));
            if let Some(own) =
                names.find(|own| self.show(what, member, own).as_deref() == Some(shown))
            {
                return Ok(Some(own));
            }
            cursor = page.text("nextCursor");
            if cursor.is_none() {
                break;
            }
        }
        Ok(None)
    }

    /// Remembers what a name stands for that had to be cut: it always will.
    pub fn learn_name(&self, what: What, shown: &str, at: usize, own: &str) {
        if may_be_cut(shown) && own.len() <= super::BUNDLE_NAME_BYTES_MAX {
            self.cut
                .insert((what.items(), shown.to_owned()), (at, own.to_owned()));
        }
    }
}
