//! Replacement of `postgres.rs` in builds without the feature `postgres`: the same names, as types
//! that have no value. [`Connector::new`] fails, so nothing else here is ever called.
//!
//! Each type hides its [`Infallible`] in a private field. With public enums without variants, the
//! compiler would warn of unreachable code in the callers.

use std::convert::Infallible;
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use super::SqlArg;
use crate::error::StoreError;

#[derive(Clone)]
pub(crate) struct Connector(Infallible);

impl Connector {
    pub(crate) fn new(_: &Url, _: Option<&SecretString>) -> Result<Self, StoreError> {
        Err(StoreError::NoPostgres)
    }

    pub(crate) async fn connect(&self) -> sqlx::Result<Connection> {
        match self.0 {}
    }

    pub(crate) fn readers(self, _: u32, _: Duration) -> Pool {
        match self.0 {}
    }
}

pub(crate) struct Pool(Infallible);

impl Pool {
    pub(crate) async fn acquire(&self) -> sqlx::Result<Connection> {
        match self.0 {}
    }

    pub(crate) async fn close(&self) {
        match self.0 {}
    }
}

pub(crate) struct Connection(Infallible);

impl Connection {
    pub(crate) async fn execute(&mut self, _: &'static str, _: &[SqlArg<'_>]) -> sqlx::Result<u64> {
        match self.0 {}
    }

    pub(crate) async fn rows(
        &mut self,
        _: &'static str,
        _: &[SqlArg<'_>],
    ) -> sqlx::Result<Vec<Row>> {
        match self.0 {}
    }

    pub(crate) async fn row(
        &mut self,
        _: &'static str,
        _: &[SqlArg<'_>],
    ) -> sqlx::Result<Option<Row>> {
        match self.0 {}
    }

    pub(crate) async fn run_text(&mut self, _: String) -> sqlx::Result<()> {
        match self.0 {}
    }

    pub(crate) async fn close(self) -> sqlx::Result<()> {
        match self.0 {}
    }
}

pub(crate) struct Row(Infallible);

impl Row {
    pub(crate) fn names(&self) -> Vec<&str> {
        match self.0 {}
    }

    pub(crate) fn get<'r, T: Value<'r>>(&'r self, _: usize) -> sqlx::Result<T> {
        match self.0 {}
    }
}

pub(crate) trait Value<'r> {}

impl<T> Value<'_> for T {}
