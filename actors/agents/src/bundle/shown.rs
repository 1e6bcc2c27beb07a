//! Which name stands for what, both ways.

use callboard_message::{Failure, FailureKind, RawObject};
use callboard_runtime::Cx;

use super::Parts;
use super::list::{What, ask_page};
use super::member::Member;
use super::names::{NAME_CHARS_MAX, may_be_cut, may_be_of};
use super::options::Prefix;

/// Most pages of one member's list in which a name is looked for that had to be cut.
const PAGES_SEARCHED_MAX: usize = 32;

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
        let listing = || self.members.iter().filter(|member| what.is_listed_by(member));
        if let Some(found) = listing().find_map(|member| Some((member, self.own(what, member, shown)?))) {
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

    async fn search(&self, what: What, member: &Member, shown: &str, cx: &Cx) -> Result<Option<String>, Failure> {
        let limit = member.limit(self.list_timeout, cx);
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_SEARCHED_MAX {
            let page = match ask_page(what, member, cursor.as_deref(), limit, cx).await {
                Err(failure) if failure.kind == FailureKind::NotFound => return Ok(None),
                page => page?,
            };
            let theirs: Vec<RawObject> = page.read(what.items()).unwrap_or_default();
            let mut names = theirs.iter().filter_map(|item| item.text("name"));
            if let Some(own) = names.find(|own| self.show(what, member, own).as_deref() == Some(shown)) {
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
            self.cut.insert((what.items(), shown.to_owned()), (at, own.to_owned()));
        }
    }
}
