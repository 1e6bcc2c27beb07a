//! The verifier: an observer that decides what may be shown. Three rules, no model.
//!
//! - **R1** no dose and no treatment that the clinics' answers don't hold;
//! - **R2** no full name, government id, address or contact of a person, unless the caller may see them;
//! - **R3** no diagnosing, no prescribing, no talking anybody out of seeing a doctor.
//!
//! Each rule reads every value of the aggregated results and the final text. What can't be read isn't safe.

mod fold;
mod identity;
mod medicine;
mod message;
mod scope;
mod value;

#[cfg(test)]
mod tests;

pub use message::{Identities, Rule, Verdict, Verify};
pub use value::VALUE_DEPTH_MAX;

use callboard_runtime::{Agent, Cx, Handlers, Profile, SyncHandler};
use identity::Known;
use medicine::{Grounds, Ungrounded};
use value::{Identity, Line, LineKind, TooDeep};

/// Bytes of text and of JSON values, together, that one verification reads; more isn't shown.
pub const VERIFY_BYTES_MAX: usize = 4 << 20;

/// The verifier as an agent: ask it to [`Verify`].
#[derive(Debug, Default)]
pub struct Verifier {
    verified: u64,
    withheld: u64,
}

impl Agent for Verifier {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Verify>();
    }

    /// It may think for long: not on the thread of whoever asks.
    fn profile() -> Profile {
        Profile::default().pinned()
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({"verified": self.verified, "withheld": self.withheld})
    }
}

impl SyncHandler<Verify> for Verifier {
    fn handle(&mut self, message: Verify, _cx: &mut Cx) -> Verdict {
        let verdict = message.verdict();
        self.verified += 1;
        self.withheld += u64::from(!verdict.safe);
        verdict
    }
}

impl Verify {
    /// Applies the three rules, R1 first. Deterministic; takes time linear in the sizes of records and results.
    pub fn verdict(&self) -> Verdict {
        if self.bytes() > VERIFY_BYTES_MAX {
            return Verdict::unreadable("Response is too long to be verified.");
        }
        self.apply().unwrap_or_else(|TooDeep| Verdict::unreadable("Response is nested too deeply to be verified."))
    }

    fn apply(&self) -> Result<Verdict, TooDeep> {
        let mut recorded = Vec::new();
        for record in &self.records {
            recorded.append(&mut value::lines(record)?);
        }
        let shown = value::lines(&self.results)?;
        let text = self.without_echoes(&recorded);
        let broken = fabricated(&recorded, &shown, &text)
            .or_else(|| self.personal(&recorded, &shown))
            .or_else(|| out_of_scope(&recorded, &shown, &text));
        Ok(broken.unwrap_or_else(Verdict::ok))
    }

    /// The final text less the quoted repetition of what was asked: that asserts nothing.
    fn without_echoes(&self, recorded: &[Line]) -> String {
        let echoes = recorded.iter().filter(|l| l.kind == LineKind::Echo && !l.text.is_empty());
        echoes.fold(self.text.clone(), |text, echo| {
            let quoted = [('"', '"'), ('\'', '\''), ('“', '”'), ('`', '`')];
            quoted.iter().fold(text, |text, (open, close)| text.replace(&format!("{open}{}{close}", echo.text), ""))
        })
    }

    fn personal(&self, recorded: &[Line], shown: &[Line]) -> Option<Verdict> {
        let known = Known::new(recorded);
        let nothing = Known::default();
        let (withheld, allowed) = match self.identities {
            Identities::Withheld => (&known, &nothing),
            Identities::AsRecorded => (&nothing, &known),
        };
        let field = shown.iter().find_map(|line| match line.kind {
            LineKind::Identity(kind) if !allowed.covers(&line.text) => Some(kind),
            _ => None,
        });
        let in_lines = || shown.iter().find_map(|line| identity::find(&line.text, withheld, allowed));
        let kind = field.or_else(in_lines).or_else(|| identity::find(&self.text, withheld, allowed))?;
        Some(Verdict::broken(Rule::R2, format!("Response exposes personal data ({}).", words(kind))))
    }
}

fn fabricated(recorded: &[Line], shown: &[Line], text: &str) -> Option<Verdict> {
    let grounds = Grounds::new(recorded);
    let in_lines = shown
        .iter()
        .filter(|line| line.kind != LineKind::Echo)
        .find_map(|line| grounds.check(&line.text, line.patient.as_deref()));
    let found = in_lines.or_else(|| grounds.check_about_patients(text))?;
    let note = match found {
        Ungrounded::Dosage(Some(medicine)) => format!("Response contains fabricated dosage for {medicine}."),
        Ungrounded::Dosage(None) => "Response contains fabricated dosage.".to_owned(),
        Ungrounded::Plan(treatment) => {
            format!("Response contains a treatment plan absent from clinic data: {treatment}.")
        }
    };
    Some(Verdict::broken(Rule::R1, note))
}

fn out_of_scope(recorded: &[Line], shown: &[Line], text: &str) -> Option<Verdict> {
    let folded = recorded.iter().filter(|l| l.kind != LineKind::Echo).map(|l| fold::fold(&l.text));
    let records = scope::Records::new(folded.collect());
    let in_lines = shown.iter().filter(|l| l.kind != LineKind::Echo).find_map(|l| scope::find(&l.text, &records));
    let found = in_lines.or_else(|| scope::find(text, &records))?;
    Some(Verdict::broken(
        Rule::R3,
        format!("Response recommends an action outside the agent's scope ({}).", found.name()),
    ))
}

fn words(kind: Identity) -> &'static str {
    match kind {
        Identity::Name | Identity::NamePart => "a person's name",
        Identity::Id => "an identification number",
        Identity::Address => "an address",
        Identity::Phone => "a phone number",
        Identity::Email => "an e-mail address",
        Identity::BirthDate => "a date of birth",
    }
}
