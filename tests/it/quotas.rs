//! Quotas (`[[policy.quotas]]`): limits that outlive a restart, with the time of their reset.

use serde_json::{Value, json};

use crate::kit::gateway::{
    A2A, KeyClient, MCP, NODE, address_of, end, is_refused, reloaded, said, script, started,
};
use crate::kit::{Home, a2a, found, mcp, soon};

const KEYED: &str = "keys = \"keys.toml\"\n";

/// A quota of calls of the tool `who`. A month, because one rarely ends within a test.
fn quota_of_calls(calls: u32) -> String {
    format!(
        "[[policy.quotas]]\nid = \"who\"\nwindow = \"month\"\ntools = [\"who\"]\ncalls = {calls}\n"
    )
}

/// Returns what is stored of the quotas.
async fn listed(home: &Home) -> Vec<Value> {
    let list = ["quotas", "list", "--topology", "n.toml", "--json"];
    let listed = home.run(&list).await.with(0, "");
    let lines = listed.out.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Waits until a member of a principal's usage is stored.
async fn stored(home: &Home, principal: &str, member: &str, value: u64) -> Value {
    let look = async || {
        let all = listed(home).await;
        let mut all = all.into_iter();
        all.find(|used| used["principal"] == principal && used[member] == value)
    };
    found("a usage that is stored", look).await
}

/// Returns the address at which a listener serves an agent.
fn address<'a>(listening: &'a [(String, String)], agent: &str) -> &'a str {
    let mut found = listening.iter().filter(|(name, _)| name == agent);
    &found.next().unwrap().1
}

/// Returns the status of an answer, and the seconds of its header `Retry-After`.
async fn status_and_wait(request: reqwest::RequestBuilder) -> (u16, Option<u64>) {
    let response = soon("an answer", request.send()).await.unwrap();
    let header = response.headers().get("retry-after");
    let wait_s = header.map(|seconds| seconds.to_str().unwrap().parse().unwrap());
    (response.status().as_u16(), wait_s)
}

/// Goal: the call after the last is refused with the reset time, by whatever address the tool is reached; others, and
/// other tools and lists, aren't bound; the count outlives a restart and a changed limit. Method: two keys at two
/// upstreams; a restart and a reload.
#[tokio::test]
async fn calls_have_a_quota() {
    let home = Home::new();
    let alice = KeyClient::new(&home, "alice", &[]).await;
    let bob = KeyClient::new(&home, "bob", &[]).await;
    let agents = script(&home, "one", "one") + &script(&home, "two", "two");
    let text = format!("{NODE}[store]\n{agents}{MCP}{KEYED}{A2A}{KEYED}");
    let with_quota = |calls: u32| format!("{text}{}", quota_of_calls(calls));
    let (running, listening) = started(&home, &with_quota(3)).await;
    let [all, one, two] = ["/mcp", "/one/mcp", "/two/mcp"].map(|end| address_of(&listening, end));
    assert_eq!(said(&alice.call(one, "who").await), "one");
    assert_eq!(said(&alice.call(all, "two__who").await), "two");
    let asked = alice.ask(address_of(&listening, "/one/a2a"), "who").await;
    assert!(asked.to_string().contains("\"one\""), "{asked}");
    let refused = alice.call(two, "who").await;
    let error = &refused["error"];
    let why = error["message"].as_str().unwrap_or_default();
    let begins = "the quota `who` of 3 calls per month is used up: it resets at 2";
    assert!(why.starts_with(begins), "{refused}");
    assert_eq!(error["data"]["quota"], "who");
    let resets_at = error["data"]["resets_at"].as_str().unwrap();
    assert!(resets_at.ends_with("-01T00:00:00.000Z") && why.ends_with(resets_at));
    let told_s = error["data"]["retry_after_s"].as_u64().unwrap();
    let two_a2a = address_of(&listening, "/two/a2a");
    let params = json!({ "name": "who", "arguments": {} });
    for request in [
        mcp::request(two, &json!({}), "tools/call", params),
        a2a::request(two_a2a, "SendMessage", a2a::for_skill("who", false)),
    ] {
        let (status, wait_s) = status_and_wait(alice.signed(request)).await;
        assert_eq!(status, 200);
        assert!((1..=told_s).contains(&wait_s.unwrap()), "{wait_s:?}");
    }
    for (url, tool) in [(all, "one__who"), (one, "who")] {
        let refused = alice.call(url, tool).await;
        assert!(is_refused(&refused), "{refused}");
        assert!(refused.to_string().contains(resets_at), "{refused}");
    }
    let asked = alice.ask(two_a2a, "who").await.to_string();
    assert!(asked.contains("resets at"), "{asked}");
    assert!(asked.contains("google.rpc.RetryInfo"), "{asked}");
    assert_eq!(alice.tools(one).await, ["who", "wait"]);
    assert_eq!(said(&bob.call(one, "who").await), "one");
    let used = stored(&home, "api_key:alice", "calls", 3).await;
    assert_eq!(
        (&used["quota"], &used["calls_max"]),
        (&json!("who"), &json!(3))
    );
    assert_eq!(used["resets_at"], resets_at);
    stored(&home, "api_key:bob", "calls", 1).await;
    end(running, &home).await;

    let (mut running, listening) = started(&home, &with_quota(3)).await;
    let url = address_of(&listening, "/one/mcp").to_owned();
    assert!(is_refused(&alice.call(&url, "who").await));
    for is_refused_now in [false, false, true] {
        assert_eq!(is_refused(&bob.call(&url, "who").await), is_refused_now);
    }
    reloaded(&home, &mut running, &with_quota(4)).await;
    assert_eq!(said(&alice.call(&url, "who").await), "one");
    assert!(is_refused(&alice.call(&url, "who").await));
    let list = ["quotas", "list", "--topology", "n.toml"];
    let is_listed = async || {
        let listed = home.run(&list).await.with(0, "");
        let line = format!("who\tapi_key:alice\t4/4\t-\t-\t{resets_at}\n");
        listed.out.contains(&line).then_some(())
    };
    found("the usage after the reload", is_listed).await;
    end(running, &home).await;
}

/// Goal: mail that a quota refuses is answered 429, with the time to wait. Method: two messages of a principal that
/// may send one.
#[tokio::test]
async fn mail_has_a_quota() {
    let home = Home::new();
    let dave = KeyClient::new(&home, "dave", &[]).await;
    let room = "[[agent]]\nkind = \"mailroom\"\nid = \"room\"\n\
        [[listener]]\nprotocol = \"mail\"\nbind = \"127.0.0.1:0\"\nagent = \"room\"\n";
    let quota = "[[policy.quotas]]\nid = \"mail\"\nwindow = \"month\"\ntools = [\"send_message\"]\ncalls = 1\n";
    let text = format!("{NODE}[store]\n{room}{KEYED}{quota}");
    let (running, listening) = started(&home, &text).await;
    let url = format!("{}/api/send_message", address(&listening, "room"));
    let letter = json!({ "recipient_agent_id": "dave", "message": "hello" });
    for expected in [200, 429] {
        let post = reqwest::Client::new().post(&url).json(&letter);
        let request = dave.signed(post.header("x-agent-id", "dave"));
        let (status, wait_s) = status_and_wait(request).await;
        assert_eq!((status, wait_s.is_some()), (expected, expected == 429));
    }
    end(running, &home).await;
}

/// Goal: tokens of a model count for the principal of the call, whether the model is asked directly, in a pool or by an
/// orchestrator. Method: a quota that the last of three ways uses up; then each of them, and another key.
#[tokio::test]
async fn models_have_a_quota() {
    let home = Home::new();
    let alice = KeyClient::new(&home, "alice", &[]).await;
    let bob = KeyClient::new(&home, "bob", &[]).await;
    let agents = "[[agent]]\nkind = \"model\"\nid = \"m\"\nprovider = \"scripted\"\n\
        answers = [{ text = \"hi\", usage = { input_tokens = 10, output_tokens = 10 } }]\n\
        [[agent]]\nkind = \"models\"\nid = \"pool\"\nmembers = [\"m\"]\n\
        [[agent]]\nkind = \"orchestrator\"\nid = \"helper\"\nname = \"H\"\ndescription = \"Helps.\"\nmodel = \"m\"\n";
    let listeners = format!(
        "{MCP}agent = \"m\"\n{KEYED}{MCP}agent = \"pool\"\n{KEYED}{A2A}agent = \"helper\"\n{KEYED}"
    );
    let quota =
        "[[policy.quotas]]\nid = \"tokens\"\nwindow = \"month\"\nmodels = [\"*\"]\ntokens = 60\n";
    let text = format!("{NODE}[store]\n{agents}{listeners}{quota}");
    let (running, listening) = started(&home, &text).await;
    let [model, pool, helper] = ["m", "pool", "helper"].map(|agent| address(&listening, agent));
    let call = async |client: &KeyClient, url: &str| {
        let arguments = json!({ "prompt": "Hi" });
        let params = json!({ "name": "ask_model", "arguments": arguments });
        client.mcp(url, "tools/call", params).await
    };
    for url in [model, pool] {
        assert_eq!(said(&call(&alice, url).await), "hi");
    }
    stored(&home, "api_key:alice", "tokens", 40).await;
    let message =
        json!({ "messageId": "m-1", "role": "ROLE_USER", "parts": [{ "text": "Say hi" }] });
    let request = a2a::request(helper, "SendMessage", json!({ "message": message }));
    // Only that it asks the model matters.
    a2a::response(alice.signed(request)).await;
    for url in [model, pool] {
        let refused = call(&alice, url).await;
        assert!(is_refused(&refused), "{refused}");
        let told = refused.to_string();
        assert!(told.contains("`tokens` of 60 tokens per month"), "{told}");
        assert!(told.contains("resets at"), "{told}");
    }
    assert_eq!(said(&call(&bob, model).await), "hi");
    end(running, &home).await;
}

/// Goal: the example of docs/policy.md is a topology. Method: each block with quotas, with what it names.
#[tokio::test]
async fn example_of_the_page() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/policy.md"));
    let page = page.unwrap();
    let blocks = page.split("```toml\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap());
    let examples: Vec<_> = blocks
        .filter(|block| block.contains("[[policy.quotas]]"))
        .collect();
    assert_eq!(examples.len(), 1);
    let home = Home::new();
    let agents = "[[agent]]\nkind = \"model\"\nid = \"gpt\"\nprovider = \"echo\"\n\
        [[upstream]]\nid = \"payments\"\ncommand = [\"true\"]\n";
    home.write("n.toml", &format!("{NODE}{agents}{MCP}{}", examples[0]));
    let checked = home.run(&["check", "n.toml"]).await;
    assert_eq!(checked.code, Some(0), "{checked:?}");
}
