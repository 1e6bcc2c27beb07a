//! Statements over lists: SQLite and Postgres read JSON each in their way.

/// Whether the list in a column or value has a value in it.
macro_rules! has {
    (sqlite, $list:literal, $value:literal) => {
        concat!("EXISTS (SELECT 1 FROM json_each(", $list, ") AS one WHERE one.value = ", $value, ")")
    };
    (postgres, $list:literal, $value:literal) => {
        concat!(
            "EXISTS (SELECT 1 FROM json_array_elements_text(CAST(",
            $list,
            " AS json)) AS one (value) WHERE one.value = ",
            $value,
            ")"
        )
    };
}
pub(super) use has;

/// The numbers in the list that is a parameter.
macro_rules! numbers {
    (sqlite, $list:literal) => {
        concat!("(SELECT value FROM json_each(", $list, "))")
    };
    (postgres, $list:literal) => {
        concat!(
            "(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(CAST(",
            $list,
            " AS json)) AS one (value))"
        )
    };
}
pub(super) use numbers;

/// Pairs of a recipient and a letter, from the list of them that is a parameter: a table `pair (recipient, letter)`. SQLite
/// uses an index only for what has its column's type.
macro_rules! pairs {
    (sqlite, $list:literal) => {
        concat!(
            "(SELECT CAST(json_extract(value, '$[0]') AS TEXT) AS recipient, \
             CAST(json_extract(value, '$[1]') AS INTEGER) AS letter FROM json_each(",
            $list,
            ")) AS pair"
        )
    };
    (postgres, $list:literal) => {
        concat!(
            "(SELECT value ->> 0 AS recipient, CAST(value ->> 1 AS BIGINT) AS letter FROM json_array_elements(CAST(",
            $list,
            " AS json)) AS one (value)) AS pair"
        )
    };
}
pub(super) use pairs;

/// A list of rows as one text, for each row that SQLite answers wakes two threads.
macro_rules! as_list {
    (sqlite, $($column:literal),+) => {
        concat!("json_group_array(json_array(", as_list!(@list $($column),+), "))")
    };
    (postgres, $($column:literal),+) => {
        concat!("CAST(coalesce(json_agg(json_build_array(", as_list!(@list $($column),+), ")), '[]') AS TEXT)")
    };
    (@list $first:literal $(, $more:literal)*) => { concat!($first $(, ", ", $more)*) };
}
pub(super) use as_list;

/// A list as a parameter.
pub(super) fn written(list: &(impl serde::Serialize + ?Sized)) -> String {
    // Texts and numbers have no form that JSON hasn't.
    serde_json::to_string(list).unwrap_or_default()
}
