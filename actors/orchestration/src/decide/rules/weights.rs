//! Every number of the rules, with its reason. Evidence is in units of "one word that says it alone".

/// A word that tells a field by itself.
pub(super) const STRONG: f32 = 1.0;
/// A word that tells it with others: two are nearly one strong word.
pub(super) const HINT: f32 = 0.45;
/// A word of a skill's tags: its author's own choice of what it is about.
pub(super) const TAG: f32 = 1.0;
/// A word of a tag of several words.
pub(super) const TAG_OF_SEVERAL: f32 = 0.4;
/// A word of a skill's name.
pub(super) const NAME: f32 = 0.8;
/// A word of an example: examples also hold places, times and names that tell nothing.
pub(super) const EXAMPLE: f32 = 0.25;
/// A word of a description: prose.
pub(super) const DESCRIPTION: f32 = 0.3;
/// What words of examples and descriptions come to at most together: long requests share some with everything.
pub(super) const WEAK_SUM_MAX: f32 = 0.55;
/// A word weaker than this is one of those.
pub(super) const WEAK_BELOW: f32 = 0.4;
/// How much a misspelt word counts.
pub(super) const FUZZY: f32 = 0.8;
/// What a tag's word counts at most where it is also a word of every day: "review", "security", "room".
pub(super) const TAG_OF_EVERY_DAY: f32 = 0.5;
/// Where an agent is named and nothing in the request speaks for another.
pub(super) const NAMED: f32 = 0.46;
/// What is left of a field's evidence where the request is for an explanation or a piece of writing.
pub(super) const ONLY_SUBJECT: f32 = 0.2;

/// What is left of the evidence for others where the request begins with a verb that governs what follows: of "remind me to buy
/// yeast", the yeast is only what is reminded of.
pub(super) const GOVERNED: f32 = 0.4;

/// An agent is chosen from here on: one hint isn't enough, a hint with support is.
pub(super) const REMOTE_MIN: f32 = 0.44;
/// Of a question that begins as those of general knowledge do, hints alone don't make an agent's: "why do cats purr".
pub(super) const REMOTE_MIN_OF_QUESTION: f32 = 0.62;
/// Evidence of an agent's own words that is enough against what is likely otherwise: a word of its tags.
pub(super) const SAID_BY_ITSELF: f32 = 1.0;
/// A part of a request counts as one from here on.
pub(super) const CLAUSE_MIN: f32 = 0.5;
/// A tool of ours is chosen from here on.
pub(super) const TOOL_MIN: f32 = 0.5;
/// A refusal class holds from here on.
pub(super) const REFUSE_MIN: f32 = 0.6;
/// Evidence at which a score is about two thirds.
pub(super) const HALF: f32 = 0.9;

/// How near the words of a refusal pattern have to be, in tokens.
pub(super) const PATTERN_WINDOW: usize = 14;
/// How soon the second of an ordered pair follows, in tokens.
pub(super) const PAIR_WINDOW: usize = 4;

/// Misspelt words are looked up from so many letters on.
pub(super) const FUZZY_WORD_LETTERS_MIN: usize = 5;
/// Words that they may be have so many.
pub(super) const FUZZY_TERM_LETTERS_MIN: usize = 6;
/// And two slips from so many on.
pub(super) const FUZZY_TWO_LETTERS_MIN: usize = 8;
/// How many unknown words of one request are looked up: it takes a while each.
pub(super) const FUZZY_WORDS_MAX: usize = 48;

/// Evidence as a score, 0 to 1.
pub(super) fn score(evidence: f32) -> f32 {
    1.0 - (-evidence.max(0.0) / HALF).exp()
}

/// A kind that is asked about from so much on, even where another is likelier.
pub(super) const ASK_FROM: f32 = 0.5;
/// A request is refused where that is so likely, whatever else it may be.
pub(super) const REFUSE_FROM: f32 = 0.75;
/// The same where a word tells of harm: what nobody here knows a word of is seldom harm.
pub(super) const REFUSE_FROM_OF_WORD: f32 = 0.6;
/// The same where a pattern of refusals is in it.
pub(super) const REFUSE_FROM_OF_PATTERN: f32 = 0.15;
/// The same of somebody who would harm themselves.
pub(super) const REFUSE_FROM_OF_SELF_HARM: f32 = 0.02;
/// A kind less likely than this goes to nobody.
pub(super) const KIND_MIN: f32 = 0.2;
/// A clause is for a kind from here on; for one more part where several are likely, and where they aren't.
pub(super) const CLAUSE_FROM: f32 = 0.5;
/// Where several are likely and one part alone was found: less and less.
pub(super) const CLAUSE_FROM_LIKELY: [f32; 2] = [0.3, 0.15];
/// Several are so likely that the least is enough.
pub(super) const SEVERAL_SURELY: f32 = 0.9;
pub(super) const CLAUSE_FROM_UNLIKELY: f32 = 0.93;
/// Parts are looked for where several are so likely.
pub(super) const SEVERAL_FROM: f32 = 0.2;
/// How sure a decision for the tool that answers with words is where nothing else fits: enough not to ask again.
pub(super) const CONFIDENCE_ELSE: f32 = 0.5;
