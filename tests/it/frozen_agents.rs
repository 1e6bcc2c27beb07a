//! Names of messages, members and variants on the wire and in stores.

use std::collections::BTreeSet;

use callboard_message::capabilities::*;
use callboard_message::mail::*;
use callboard_message::{Answer, Failure, Message, MessageSpec, Principal, Question, TaskState};
use callboard_runtime::{JournalRecord, TaskOutcome};
use serde_json::Value;

use crate::shape::shape;
use callboard_clinics::clinic::{CheckMedications, GetPatient, ListPatients, QueryPatients};
use callboard_clinics::hmcp::{EmrRecord, FindPatient, WriteClinicalData};
use callboard_clinics::orchestrator::AskClinics;
use callboard_clinics::planner::MakePlan;
use callboard_clinics::router::Dispatch;
use callboard_clinics::verifier::Verify;
use callboard_guardrail::Screen;
use callboard_models::AskModel;
use callboard_orchestration::decide::intake::{PlannedStep, RoutingDecision};
use callboard_orchestration::decide::*;
use callboard_orchestration::memory::DelegatedRequest;
use callboard_orchestration::peer_registry::PeerAgent;

/// Notes the members and values of a schema, each with its place; `?` where a member may be left out. Of a schema that
/// holds itself, once.
fn members<'a>(
    schema: &'a Value,
    whole: &'a Value,
    place: &str,
    within: &mut Vec<&'a str>,
    lines: &mut BTreeSet<String>,
) {
    let below = |of: &str| schema.get(of).into_iter();
    let reference = schema.get("$ref").and_then(Value::as_str);
    if let Some(name) = reference.filter(|name| !within.contains(name)) {
        within.push(name);
        let target = whole.pointer(name.trim_start_matches('#'));
        members(target.unwrap(), whole, place, within, lines);
        within.pop();
    }
    let required = |name: &str| {
        below("required").any(|names| names.as_array().unwrap().contains(&name.into()))
    };
    for (name, member) in below("properties").flat_map(|properties| properties.as_object().unwrap())
    {
        let place = format!("{place}.{name}");
        lines.insert(format!("{place}{}", if required(name) { "" } else { "?" }));
        members(member, whole, &place, within, lines);
    }
    for value in below("enum")
        .flat_map(|values| values.as_array().unwrap())
        .chain(below("const"))
    {
        lines.insert(format!("{place} = {value}"));
    }
    for (of, step) in [("items", "[]"), ("additionalProperties", "{}")] {
        below(of)
            .filter(|schema| schema.is_object())
            .for_each(|schema| members(schema, whole, &format!("{place}{step}"), within, lines));
    }
    for alternative in ["anyOf", "oneOf", "allOf", "prefixItems"]
        .into_iter()
        .flat_map(below)
    {
        alternative
            .as_array()
            .unwrap()
            .iter()
            .for_each(|schema| members(schema, whole, place, within, lines));
    }
}

/// A message with the members of what is sent, of what comes back, and of what else its tool says.
fn described<M: Message>() -> (String, String) {
    let MessageSpec {
        name,
        input_schema,
        output_schema,
        more,
        ..
    } = M::codec().unwrap().spec();
    let mut lines = BTreeSet::new();
    members(
        &input_schema,
        &input_schema,
        "  message",
        &mut Vec::new(),
        &mut lines,
    );
    match &output_schema {
        Some(schema) => members(schema, schema, "  reply", &mut Vec::new(), &mut lines),
        None => _ = lines.insert("  reply: a tool's result".into()),
    }
    lines.extend(
        more.iter()
            .map(|(name, value)| format!("  {name}: {value}")),
    );
    (name, lines.into_iter().map(|line| line + "\n").collect())
}

macro_rules! described {
    ($($message:ty)*) => { [$(described::<$message>()),*] };
}

/// Goal: what others send is understood by every later version. Method: the names and members of every message that crosses
/// a wire.
#[test]
fn messages() {
    let mut all = described! {
        AskClinics AskModel CheckMedications DecideClarity DecideConfirm DecideFollowUp DecideRecovery DecideRoute DecideSplit
        DecideTool Dispatch FindPatient GetPatient ListPatients MakePlan MakeSteps QueryPatients Screen Synthesize Verify
        WriteAnswer WriteClinicalData
        CallTool CompleteArgument Converse CreateMessage DescribeAgent GetPrompt ListPrompts ListResourceTemplates ListResources ListTools
        ForwardRequest ReadResource SubscribeResource UnsubscribeResource
        AgentLogs BroadcastMessage CheckInbox DeliverMessage EndAgent FetchMail GetAgentStatus JoinMailroom LeaveMailroom
        ListGroups MailPreferences MarkRead MessageHistory ReadEvents ReadMemory ReadMessage ReplyMessage SaveMemory SendMessage
    };
    all.sort_unstable();
    let all: String = all
        .iter()
        .map(|(name, lines)| format!("{name}\n{lines}"))
        .collect();
    insta::assert_snapshot!("messages", all);
}

macro_rules! shapes {
    ($($what:literal: $kind:ty,)*) => { [$(format!("{}\n{}", $what, shape::<$kind>())),*].concat() };
}

/// Goal: what an earlier version kept is read by every later one. Method: the members and variants of every type that is
/// kept or crosses a wire as JSON.
#[test]
fn kept() {
    let all = shapes! {
        "failure": Failure,
        "principal": Principal,
        "question": Question,
        "answer": Answer,
        "record of a stream": JournalRecord,
        "outcome of a task": TaskOutcome,
        "state of a task": TaskState,
        "known agent": PeerAgent,
        "request remembered": DelegatedRequest,
        "decision": DecisionRecord,
        "step of a plan": StepDefinition,
        "plan": StepPlan,
        "planned step": PlannedStep,
        "routing decision": RoutingDecision,
        "recovery": Recovery,
        "synthesis": Synthesis,
        "record of clinical data": EmrRecord,
    };
    insta::assert_snapshot!("kept", all);
}
