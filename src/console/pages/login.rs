//! Page that asks for a credential.

use maud::{DOCTYPE, Markup, html};

use super::frame::head;

/// Renders the page that asks for a credential, with the error of the previous attempt.
pub(crate) fn login(error: Option<&str>) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head("Sign in"))
            body.login {
                main #main {
                    h1 { "callboard" }
                    form method="post" action="/login" data-testid="login-form" {
                        @if let Some(error) = error {
                            p.error #login-error role="alert" { (error) }
                        }
                        div.field {
                            label for="credential" { "Key or access token" }
                            input #credential type="password" name="credential" required autocomplete="off"
                                autofocus aria-describedby=[error.map(|_| "login-error")];
                        }
                        button.primary type="submit" { "Sign in" }
                    }
                    p.hint { "A key of a listener of this node, with the scope " code { "console.read" } "." }
                }
            }
        }
    }
}
