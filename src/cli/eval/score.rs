//! How right routes are.

use std::collections::BTreeMap;
use std::time::Duration;

use callboard_agents::decide::World;
use callboard_agents::decide::intake::RoutingDecision;
use serde::Deserialize;

use super::cases::Case;
use super::decide::Routed;

/// Where a request can go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Class {
    Local,
    Remote,
    Reject,
    Clarify,
    Decompose,
}

impl Class {
    pub(super) const ALL: [Self; 5] = [Self::Local, Self::Remote, Self::Reject, Self::Clarify, Self::Decompose];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
            Self::Reject => "reject",
            Self::Clarify => "clarify",
            Self::Decompose => "decompose",
        }
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }

    /// The class of a decision, and the tool or agent.
    pub(super) fn of(decision: &RoutingDecision) -> (Self, Option<&str>) {
        match decision {
            RoutingDecision::Local { tool_name, .. } => (Self::Local, Some(tool_name)),
            RoutingDecision::Remote { agent_id } => (Self::Remote, Some(agent_id)),
            RoutingDecision::Reject { .. } => (Self::Reject, None),
            RoutingDecision::NeedsClarification { .. } => (Self::Clarify, None),
            RoutingDecision::Decompose { .. } => (Self::Decompose, None),
        }
    }

    /// The class that an entry of `also` stands for.
    fn implied(entry: &str, world: &World) -> Option<Self> {
        match Self::parse(entry) {
            Some(class) => Some(class),
            None if world.tool(entry).is_some() => Some(Self::Local),
            None if world.agent(entry).is_some() => Some(Self::Remote),
            None => None,
        }
    }
}

/// So many of so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Share {
    pub(super) right: usize,
    pub(super) all: usize,
}

impl Share {
    fn add(&mut self, is_right: bool) {
        self.all += 1;
        self.right += usize::from(is_right);
    }

    /// 0 to 1; of none, 0.
    pub(super) fn accuracy(self) -> f64 {
        if self.all == 0 { 0.0 } else { self.right as f64 / self.all as f64 }
    }

    /// Its 95 % interval after Wilson (1927): it holds for few and for extreme shares too.
    pub(super) fn interval(self) -> [f64; 2] {
        const Z: f64 = 1.959_963_984_540_054;
        if self.all == 0 {
            return [0.0, 1.0];
        }
        let (n, p) = (self.all as f64, self.accuracy());
        let middle = p + Z * Z / (2.0 * n);
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + Z * Z / n;
        [((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0)]
    }
}

/// One request that went elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Miss {
    pub(super) id: String,
    pub(super) text: String,
    pub(super) expected: String,
    pub(super) got: String,
}

/// Into how many parts the requests are dealt to see how much the accuracy varies.
const FOLDS: usize = 5;

/// What came of a set of requests.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) all: Share,
    /// The class alone, whoever does it.
    pub(super) class_only: Share,
    /// Row: expected, column: got, in the order of [`Class::ALL`].
    pub(super) confusion: [[usize; 5]; 5],
    pub(super) by_lang: BTreeMap<String, Share>,
    pub(super) tricky: Share,
    /// The requests dealt into five, in turn.
    pub(super) folds: [Share; FOLDS],
    pub(super) misses: Vec<Miss>,
    pub(super) decisions: usize,
    pub(super) fallbacks: usize,
    pub(super) micro_usd: u64,
    pub(super) took: Duration,
}

impl Part {
    pub(super) fn of(cases: Vec<Case>, routed: Vec<Routed>, world: &World, took: Duration) -> Self {
        let mut part = Self {
            all: Share::default(),
            class_only: Share::default(),
            confusion: [[0; 5]; 5],
            by_lang: BTreeMap::new(),
            tricky: Share::default(),
            folds: [Share::default(); FOLDS],
            misses: Vec::new(),
            decisions: 0,
            fallbacks: 0,
            micro_usd: 0,
            took,
        };
        for (at, (case, routed)) in cases.into_iter().zip(routed).enumerate() {
            part.add(at, case, &routed, world);
        }
        part
    }

    fn add(&mut self, at: usize, case: Case, routed: &Routed, world: &World) {
        let (class, target) = Class::of(&routed.decision);
        let is_right = is_right(&case, class, target);
        self.all.add(is_right);
        self.class_only
            .add(class == case.expect || case.also.iter().any(|also| Class::implied(also, world) == Some(class)));
        self.confusion[case.expect as usize][class as usize] += 1;
        self.by_lang.entry(case.lang).or_default().add(is_right);
        if case.tricky {
            self.tricky.add(is_right);
        }
        self.folds[at % FOLDS].add(is_right);
        self.decisions += routed.decisions;
        self.fallbacks += routed.fallbacks;
        self.micro_usd += routed.micro_usd;
        if !is_right {
            let named = |class: Class, target: Option<&str>| match target {
                Some(target) => format!("{} {target}", class.as_str()),
                None => class.as_str().to_owned(),
            };
            let (expected, got) = (named(case.expect, case.target.as_deref()), named(class, target));
            self.misses.push(Miss { id: case.id, text: case.text, expected, got });
        }
    }

    pub(super) fn accuracy(&self) -> f64 {
        self.all.accuracy()
    }
}

/// The class is the expected one, and for local and remote the target too; or it is one of `also`.
pub(super) fn is_right(case: &Case, class: Class, target: Option<&str>) -> bool {
    let expected = class == case.expect && (case.target.is_none() || case.target.as_deref() == target);
    expected || case.also.iter().any(|also| target == Some(also.as_str()) || Class::parse(also) == Some(class))
}
