mod asked;
mod budgets;
mod formats;
mod kit;
mod prompts;
mod troubles;
