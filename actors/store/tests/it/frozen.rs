use serde_json::Value;

use crate::kit::{Opened, in_database, in_file};
use crate::samples;

const SQLITE_TABLES: &str = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
const SQLITE_SCHEMA: &str = "\
    SELECT of.type || ' ' || of.name || '.' || c.name || ' ' || c.type || iif(c.\"notnull\", ' NOT NULL', '') || \
        iif(c.dflt_value IS NULL, '', ' DEFAULT ' || c.dflt_value) || iif(c.pk, ' KEY ' || c.pk, '') \
        FROM sqlite_schema AS of, pragma_table_xinfo(of.name) AS c WHERE of.type IN ('table', 'view') \
    UNION ALL SELECT type || ' ' || name || ' ON ' || tbl_name FROM sqlite_schema WHERE type NOT IN ('table', 'view') \
    ORDER BY 1";
const POSTGRES_SCHEMA: &str = "\
    SELECT 'table ' || table_name || '.' || column_name || ' ' || data_type || \
        CASE is_nullable WHEN 'NO' THEN ' NOT NULL' ELSE '' END || coalesce(' DEFAULT ' || column_default, '') \
        FROM information_schema.columns WHERE table_schema = 'public' \
    UNION ALL SELECT 'index ' || indexname || ' ON ' || tablename FROM pg_indexes WHERE schemaname = 'public' \
    UNION ALL SELECT 'trigger ' || tgname || ' ON ' || relname \
        FROM pg_trigger JOIN pg_class ON tgrelid = pg_class.oid WHERE NOT tgisinternal \
    UNION ALL SELECT 'function ' || proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace \
    ORDER BY 1";

/// Columns and members whose values differ between runs.
const CHANGING: &[&str] = &[
    "at_ms",
    "created_ms",
    "delivered_ms",
    "hash",
    "key_id",
    "lease_until_ms",
    "read_ms",
    "run",
    "signature",
    "since_ms",
    "updated_ms",
];

/// Prefixes of texts whose rest differs between runs: digests with a store's own key.
const CHANGING_TEXT: &[&str] = &["hmac-sha256:"];

/// Returns every row of a table as JSON, with a placeholder for values that differ between runs.
async fn rows(opened: &Opened, table: &str) -> String {
    let columns = opened
        .texts(&format!(
            "SELECT name FROM pragma_table_info('{table}') ORDER BY cid"
        ))
        .await;
    let member = |column: &String| {
        format!("'{column}', iif(typeof({column}) = 'blob', hex({column}), {column})")
    };
    let members: Vec<String> = columns.iter().map(member).collect();
    let rows = opened
        .texts(&format!(
            "SELECT json_object({}) FROM {table}",
            members.join(", ")
        ))
        .await;
    let rows = rows
        .iter()
        .map(|row| shown(serde_json::from_str(row).unwrap()));
    let mut rows: Vec<String> = rows.map(|row| format!("{table} {row}\n")).collect();
    rows.sort_unstable();
    rows.concat()
}

/// Replaces JSON within strings by its parsed value.
fn shown(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            // Id of the audit key, as in its first entry.
            let is_start = members.contains_key("unsigned");
            let changes = |name: &str| CHANGING.contains(&name) || is_start && name == "key";
            let member = |(name, value): (String, Value)| match changes(&name) && !value.is_null() {
                true => (name, "…".into()),
                false => (name, shown(value)),
            };
            Value::Object(members.into_iter().map(member).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(shown).collect()),
        Value::String(text) => match CHANGING_TEXT.iter().find(|start| text.starts_with(**start)) {
            Some(start) => format!("{start}…").into(),
            None if text.starts_with(['{', '[']) => {
                serde_json::from_str(&text).map_or(Value::String(text), shown)
            }
            None => Value::String(text),
        },
        other => other,
    }
}

/// Goal: names of tables, columns, indexes and triggers, which others query, don't change. Method:
/// a snapshot of a new store's schema.
#[tokio::test]
async fn schemas() {
    let opened = in_file(|options| options).await;
    insta::assert_snapshot!(
        "schema_sqlite",
        opened.texts(SQLITE_SCHEMA).await.join("\n")
    );
    opened.end().await;
    let Some(opened) = in_database(|options| options).await else {
        return;
    };
    insta::assert_snapshot!(
        "schema_postgres",
        opened.texts(POSTGRES_SCHEMA).await.join("\n")
    );
    opened.end().await;
}

/// Goal: stored rows stay readable for every version: columns, names of members and of variants.
/// Method: a snapshot of the rows of a store with one of everything.
#[tokio::test]
async fn stored_rows() {
    let opened = in_file(|options| options).await;
    samples::fill(&opened.sql).await;
    let mut all = String::new();
    for table in opened.texts(SQLITE_TABLES).await {
        all += &rows(&opened, &table).await;
    }
    all += &opened.texts("SELECT 'agent_log ' || log_type || ' ' || message || ' ' || json_remove(details, '$.timestamp') FROM agent_log").await.join("\n");
    insta::assert_snapshot!("stored_rows", all);
    opened.end().await;
}
