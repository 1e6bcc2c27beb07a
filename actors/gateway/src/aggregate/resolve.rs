//! Resolution of the names by which tools and prompts of an aggregate are called.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Failure, FailureKind, RawObject};
use callboard_runtime::{AccessItem, Context};
use futures::future::join_all;
use quick_cache::sync::Cache;

use super::member::{ListKind, MemberState, ask_page};
use super::names::{
    NAME_CHARS_MAX, NameFilter, joined_name, may_be_name_of, may_be_truncated, shown_names,
};
use super::tools::MessageTool;
use super::{
    AGGREGATE_CACHE_ENTRIES_MAX, AGGREGATE_NAME_BYTES_MAX, AggregateOptions, NameSeparator,
    PrefixMode,
};

/// Maximum pages of one member's list that are searched for a name. An item on a later page isn't
/// found.
const PAGES_SEARCHED_MAX: usize = 32;

/// Tool or prompt that a name stands for.
pub(super) enum NamedItem<'a> {
    /// Tool made from a message type of a member.
    Message(&'a MessageTool),
    /// Item of this member's own list, with its original name there.
    Listed(&'a MemberState, String),
}

/// Names under which the tools and prompts of all members are shown and called.
pub(super) struct NameResolver {
    members: Arc<[MemberState]>,
    /// Tools made from message types of members, in the order of the members.
    tools: Vec<MessageTool>,
    /// Index in `tools` of each tool, by its shown name.
    by_name: HashMap<String, usize>,
    /// Indices in `tools` by the name without prefix.
    by_own_name: HashMap<String, Vec<usize>>,
    /// Index in `tools` by the dotted name of releases up to 0.1.
    by_dotted_name: HashMap<String, usize>,
    name_filter: NameFilter,
    prefix: PrefixMode,
    separator: NameSeparator,
    list_timeout: Duration,
    /// Cache of truncated names: member index and original name, by kind of list and shown name.
    truncated_names: Cache<(&'static str, String), (usize, String)>,
}

impl NameResolver {
    /// Determines the tool names of the message types of `members`, without those that the patterns
    /// of `options` exclude. `list_timeout` is the time limit for a member's list when it is
    /// searched for a name ([`MemberState::deadline`]).
    pub fn new(
        members: Arc<[MemberState]>,
        options: &AggregateOptions,
        list_timeout: Duration,
    ) -> Self {
        let sieve = NameFilter::new(&options.allow, &options.deny);
        // A message type must not have a name that may appear in a member's list later.
        let may_be_listed = |name: &str| {
            members
                .iter()
                .any(|m| m.lists_tools() && m.own_name(name, options.separator).is_some())
        };
        let may_stay = |name: &str| options.prefix != PrefixMode::Always && !may_be_listed(name);
        let all: Vec<_> = members
            .iter()
            .enumerate()
            .flat_map(|(at, m)| m.specs.iter().map(move |spec| (at, m, spec)))
            .filter_map(|(at, member, spec)| {
                Some((at, &*member.name, member.naming.to_shown(&spec.name)?, spec))
            })
            .collect();
        let theirs: Vec<_> = all
            .iter()
            .map(|(_, member, name, _)| (*member, *name))
            .collect();
        let names = shown_names(&theirs, options.separator, may_stay);
        let mut by_name = HashMap::new();
        let mut by_own_name: HashMap<String, Vec<usize>> = HashMap::new();
        let mut by_dotted_name = HashMap::new();
        let mut tools = Vec::new();
        for ((at, member, name, spec), shown) in all.iter().zip(names) {
            if !sieve.selects(member, name) {
                continue;
            }
            let own = by_own_name.entry((*name).to_owned());
            own.or_default().push(tools.len());
            let dotted = joined_name(member, NameSeparator::Dot, name);
            by_dotted_name.insert(dotted, tools.len());
            tools.push(MessageTool::new(*at, spec, &shown));
            by_name.insert(shown, tools.len() - 1);
        }
        Self {
            tools,
            by_name,
            by_own_name,
            by_dotted_name,
            name_filter: sieve,
            prefix: options.prefix,
            separator: options.separator,
            list_timeout,
            truncated_names: Cache::new(AGGREGATE_CACHE_ENTRIES_MAX),
            members,
        }
    }

    /// Returns the tools made from message types of members, in the order of the members.
    pub fn message_tools(&self) -> &[MessageTool] {
        &self.tools
    }

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

    /// Finds the item with a name: the shown name, the dotted name of releases up to 0.1, or the
    /// original name if only one member has it.
    ///
    /// # Errors
    /// `missing`, if no item has the name; `InvalidInput`, if several have it as their original
    /// name; or the failure of a member whose list is needed to decide.
    pub async fn resolve_name(
        &self,
        what: ListKind,
        name: &str,
        cx: &Context,
        missing: impl FnOnce() -> Failure,
    ) -> Result<NamedItem<'_>, Failure> {
        if let Some(found) = self
            .message(what, self.by_name.get(name))
            .or_else(|| self.prefixed_item(what, name, self.separator))
        {
            return Ok(found);
        }
        let mut keeping = self.listing(what);
        let keeper = keeping.find(|(_, member)| member.keeps_names(self.prefix));
        let dotted = self
            .message(what, self.by_dotted_name.get(name))
            .or_else(|| self.prefixed_item(what, name, NameSeparator::Dot));
        if let Some(found) = dotted {
            if let Some((_, keeper)) = keeper
                && let Some(own) = self
                    .search_name(what, keeper, cx, |own| {
                        self.shown_name(what, keeper, own).as_deref() == Some(name)
                    })
                    .await?
            {
                return Ok(NamedItem::Listed(keeper, own));
            }
            let member = match &found {
                NamedItem::Message(tool) => self.members.get(tool.member),
                NamedItem::Listed(member, _) => Some(*member),
            };
            let member = member.map_or("", |member| &*member.name);
            callboard_message::log::warn!(by: member, member, "a client calls a tool or prompt by a dotted name: this release is the last that accepts it, write `__` for `.`");
            return Ok(found);
        }
        if let Some((_, keeper)) = keeper
            && let Some(own) = own_name(what, keeper, name)
            && self.shown_name(what, keeper, own).as_deref() == Some(name)
        {
            return Ok(NamedItem::Listed(keeper, own.to_owned()));
        }
        if may_be_truncated(name)
            && let Some((member, own)) = self.truncated_item(what, name, cx).await?
        {
            return Ok(NamedItem::Listed(member, own));
        }
        self.unlisted_item(what, name, cx)
            .await?
            .ok_or_else(missing)
    }

    fn listing(&self, what: ListKind) -> impl Iterator<Item = (usize, &MemberState)> {
        let members = self.members.iter().enumerate();
        members.filter(move |(_, member)| what.is_listed_by(member))
    }

    fn message(&self, what: ListKind, at: Option<&usize>) -> Option<NamedItem<'_>> {
        let tool = at.and_then(|at| self.tools.get(*at))?;
        (what == ListKind::Tools).then_some(NamedItem::Message(tool))
    }

    /// Returns the item that a name with a member's prefix stands for. Whether the member lists
    /// such an item isn't checked. `None` if the name begins with no member's prefix, if a filter
    /// hides the item, or if the name may be truncated, so that the member's list is needed.
    fn prefixed_item(
        &self,
        what: ListKind,
        name: &str,
        separator: NameSeparator,
    ) -> Option<NamedItem<'_>> {
        if may_be_truncated(name) {
            return None;
        }
        self.listing(what).find_map(|(_, member)| {
            let own = own_name(what, member, member.own_name(name, separator)?)?;
            self.shown_name(what, member, own)?;
            Some(NamedItem::Listed(member, own.to_owned()))
        })
    }

    /// Finds the item with a truncated name. Only the lists tell which name was truncated to it.
    /// `None` if no list has such an item.
    ///
    /// # Errors
    /// The failure of a member whose list must be searched.
    async fn truncated_item(
        &self,
        what: ListKind,
        name: &str,
        cx: &Context,
    ) -> Result<Option<(&MemberState, String)>, Failure> {
        let cached = self
            .truncated_names
            .get(&(what.items_key(), name.to_owned()));
        if let Some((at, own)) = cached
            && let Some(member) = self.members.get(at)
        {
            return Ok(Some((member, own)));
        }
        for (at, member) in self.listing(what) {
            if !member.is_permitted(AccessItem::Agent, cx) {
                continue;
            }
            for separator in [member.separator, NameSeparator::Dot] {
                if !may_be_name_of(name, &member.name, separator) {
                    continue;
                }
                let is_it = |own: &str| {
                    let joined = self
                        .plain_name(what, member, own)
                        .map(|plain| joined_name(&member.name, separator, plain));
                    joined.as_deref() == Some(name)
                };
                if let Some(own) = self.search_name(what, member, cx, is_it).await? {
                    self.remember_name(what, name, at, &own);
                    return Ok(Some((member, own)));
                }
            }
        }
        Ok(None)
    }

    /// Finds the only item whose name without prefix is `name`; `None` if there is none. All lists
    /// are read, because another member may have such an item by now.
    ///
    /// # Errors
    /// `InvalidInput`, if several items have the name; `Unavailable`, if one has it and another
    /// member's list can't be read.
    async fn unlisted_item(
        &self,
        what: ListKind,
        name: &str,
        cx: &Context,
    ) -> Result<Option<NamedItem<'_>>, Failure> {
        let permitted =
            |(_, member): &(usize, &MemberState)| member.is_permitted(AccessItem::Agent, cx);
        let searching = self
            .listing(what)
            .filter(permitted)
            .map(|(_, member)| async move {
                let is_it = |own: &str| self.plain_name(what, member, own) == Some(name);
                (member, self.search_name(what, member, cx, is_it).await)
            });
        let messages = self.by_own_name.get(name).into_iter().flatten();
        let mut found: Vec<_> = messages
            .filter_map(|at| self.message(what, Some(at)))
            .collect();
        let mut unknown = None;
        for (member, own) in join_all(searching).await {
            match own {
                Ok(own) => found.extend(own.map(|own| NamedItem::Listed(member, own))),
                Err(_) => unknown = Some(member),
            }
        }
        found.retain(|item| self.is_permitted(what, item, cx));
        let names: Vec<_> = found
            .iter()
            .filter_map(|item| match item {
                NamedItem::Message(tool) => tool.descriptor.text("name"),
                NamedItem::Listed(member, own) => self.shown_name(what, member, own),
            })
            .collect();
        match (found.pop(), found.is_empty(), unknown) {
            (None, ..) => Ok(None),
            (found, true, None) => Ok(found),
            (_, true, Some(member)) => Err(Failure::unavailable(format!(
                "{} may have this name too, and isn't available now: call {}",
                member.name,
                names.join(" or ")
            ))),
            (_, false, _) => Err(Failure::invalid(format!(
                "several servers have this name: call {}",
                names.join(" or ")
            ))),
        }
    }

    /// Returns whether the caller of `cx` may use an item.
    fn is_permitted(&self, what: ListKind, item: &NamedItem<'_>, cx: &Context) -> bool {
        match item {
            NamedItem::Message(tool) => {
                let member = self.members.get(tool.member);
                member.is_some_and(|it| it.is_permitted(AccessItem::tool(&tool.message), cx))
            }
            NamedItem::Listed(member, own) => {
                let item = match what {
                    ListKind::Tools => AccessItem::tool(own),
                    _ => AccessItem::Prompt(own.as_str().into()),
                };
                member.is_permitted(item, cx)
            }
        }
    }

    /// Returns the name without prefix of an item of a member's list; `None` if it is hidden.
    fn plain_name<'a>(
        &self,
        what: ListKind,
        member: &'a MemberState,
        own: &'a str,
    ) -> Option<&'a str> {
        self.shown_name(what, member, own)?;
        match what {
            ListKind::Tools => member.naming.to_shown(own),
            _ => Some(own),
        }
    }

    /// Returns the original name of the first item in a member's list that `is_it` holds for.
    /// `None` if there is no such item in the first [`PAGES_SEARCHED_MAX`] pages, or the member has
    /// no such list.
    ///
    /// # Errors
    /// The failure to read the list, such as `TimedOut`.
    async fn search_name(
        &self,
        what: ListKind,
        member: &MemberState,
        cx: &Context,
        is_it: impl Fn(&str) -> bool,
    ) -> Result<Option<String>, Failure> {
        let limit = member.deadline(self.list_timeout, cx);
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_SEARCHED_MAX {
            let page = match ask_page(what, member, cursor.as_deref(), limit, cx).await {
                Err(failure) if failure.kind == FailureKind::NotFound => return Ok(None),
                page => page?,
            };
            let theirs: Vec<RawObject> = page.read(what.items_key()).unwrap_or_default();
            let mut names = theirs.iter().filter_map(|item| item.text("name"));
            if let Some(own) = names.find(|own| is_it(own)) {
                return Ok(Some(own));
            }
            cursor = page.text("nextCursor");
            if cursor.is_none() {
                break;
            }
        }
        Ok(None)
    }

    /// Caches the member (index `at`) and original name (`own`) of a truncated name. The mapping
    /// never changes. Does nothing if `shown` can't be a truncated name, or `own` is longer than
    /// [`AGGREGATE_NAME_BYTES_MAX`].
    pub fn remember_name(&self, what: ListKind, shown: &str, at: usize, own: &str) {
        if may_be_truncated(shown) && own.len() <= AGGREGATE_NAME_BYTES_MAX {
            self.truncated_names
                .insert((what.items_key(), shown.to_owned()), (at, own.to_owned()));
        }
    }
}

/// Returns the original name of an item's name without prefix; `None` if no item is shown under it.
fn own_name<'a>(what: ListKind, member: &'a MemberState, name: &'a str) -> Option<&'a str> {
    match what {
        ListKind::Tools => member.naming.to_own(name),
        _ => Some(name),
    }
}
