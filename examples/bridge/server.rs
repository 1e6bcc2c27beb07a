//! A minimal MCP server of 2025-06-18 on standard streams, with one tool that requests sampling
//! during a call.

use std::error::Error;
use std::io::{BufRead, stdin};

use serde_json::{Value, json};

/// Reads one message per line. While a call is open it sends a request with a string id.
pub fn run() -> Result<(), Box<dyn Error>> {
    let mut lines = stdin().lock().lines();
    while let Some(line) = lines.next() {
        let request: Value = serde_json::from_str(&line?)?;
        let result = match request["method"].as_str() {
            Some("initialize") => {
                json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
                "serverInfo": { "name": "analysis", "version": "1.0.0" } })
            }
            Some("tools/list") => {
                json!({ "tools": [{ "name": "complex_analysis_tool", "inputSchema": { "type": "object" } }] })
            }
            Some("tools/call") => {
                let question = json!({ "type": "text", "text": "Analyze this time series pattern" });
                let params = json!({ "messages": [{ "role": "user", "content": question }], "maxTokens": 100 });
                println!(
                    "{}",
                    json!({ "jsonrpc": "2.0", "id": "sampling-req-456", "method": "sampling/createMessage", "params": params })
                );
                let answer: Value = serde_json::from_str(&lines.next().ok_or("nobody answers")??)?;
                let text = format!(
                    "3 the server gets the call over its pipe\n4 it asks on the same pipe, as \"sampling-req-456\"\n\
                    5 callboard may answer\n6 its strategy names a model: {}\n7 the answer to {}: {}",
                    answer["result"]["model"], answer["id"], answer["result"]["content"]["text"]
                );
                json!({ "content": [{ "type": "text", "text": text }] })
            }
            _ if request["id"].is_null() => continue,
            _ => {
                println!(
                    "{}",
                    json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": -32601, "message": "?" } })
                );
                continue;
            }
        };
        println!("{}", json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }));
    }
    Ok(())
}
