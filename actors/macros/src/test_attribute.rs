//! Attribute macro of tests of agents.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::parse::Parser;
use syn::{FnArg, ItemFn, LitInt, Visibility};

/// Time after which agents that still have work at the end of a test are killed, in seconds.
const SHUTDOWN_SECONDS_MAX: u64 = 1;

/// Options of the attribute.
#[derive(Default)]
struct TestOptions {
    /// Time isn't paused.
    is_real_time: bool,
    /// Number of threads for the agents, at least 1; `None` for the thread of the test.
    arbiters: Option<usize>,
}

/// Returns a test that runs the function `item` in a system of its own.
///
/// # Errors
/// An unknown option, or a function that can't be such a test.
pub(crate) fn expand(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let options = parse_options(options)?;
    let mut function: ItemFn = syn::parse2(item)?;
    check_function(&function)?;
    let attributes = std::mem::take(&mut function.attrs);
    let visibility = std::mem::replace(&mut function.vis, Visibility::Inherited);
    let (name, output) = (&function.sig.ident, &function.sig.output);
    // Hidden from the function, which may have the same name.
    let system = Ident::new("system", Span::mixed_site());
    let argument = (!function.sig.inputs.is_empty()).then_some(&system);
    let runtime = crate::crate_path("callboard-runtime")
        .or_else(|| crate::crate_path("callboard"))
        .unwrap_or_else(|| quote!(::callboard_runtime));
    let run = match options.is_real_time || options.arbiters.is_some() {
        true => quote!(#runtime::testkit::run_with_real_time),
        false => quote!(#runtime::testkit::run_with_paused_time),
    };
    let (parameter, start) = match options.arbiters {
        None => (quote!(#system), quote!()),
        Some(arbiters) => {
            let failed = "failed to start the threads of the agents";
            let start = quote!(let #system = &#runtime::System::start(#arbiters).expect(#failed););
            (quote!(_), start)
        }
    };
    Ok(quote! {
        #(#attributes)*
        #[::core::prelude::v1::test]
        #visibility fn #name() #output {
            #function
            #run(async |#parameter: &#runtime::System| {
                #start
                let result = #name(#argument).await;
                #system.shutdown(::std::time::Duration::from_secs(#SHUTDOWN_SECONDS_MAX)).await;
                result
            })
        }
    })
}

fn parse_options(options: TokenStream) -> syn::Result<TestOptions> {
    let mut parsed = TestOptions::default();
    let parser = syn::meta::parser(|meta| {
        if meta.path.is_ident("real_time") {
            parsed.is_real_time = true;
        } else if meta.path.is_ident("arbiters") {
            let count: LitInt = meta.value()?.parse()?;
            parsed.arbiters = Some(count.base10_parse()?);
            if parsed.arbiters == Some(0) {
                return Err(syn::Error::new_spanned(count, "at least 1 arbiter"));
            }
        } else {
            return Err(meta.error("expected `real_time` or `arbiters = N`"));
        }
        Ok(())
    });
    parser.parse2(options)?;
    Ok(parsed)
}

fn check_function(function: &ItemFn) -> syn::Result<()> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        let why = "a test of agents is an `async fn`: write `async fn`, or take `#[test]`";
        return Err(syn::Error::new_spanned(signature.fn_token, why));
    }
    if !signature.generics.params.is_empty() {
        let why = "a test has no type parameters and no lifetimes";
        return Err(syn::Error::new_spanned(&signature.generics, why));
    }
    let has_self = matches!(signature.inputs.first(), Some(FnArg::Receiver(_)));
    if has_self || signature.inputs.len() > 1 {
        let why = "a test takes `system: &System`, or nothing";
        return Err(syn::Error::new_spanned(&signature.inputs, why));
    }
    let test = function.attrs.iter().find(|a| a.path().is_ident("test"));
    if let Some(test) = test {
        let why = "the test would run twice: remove this `#[test]`";
        return Err(syn::Error::new_spanned(test, why));
    }
    Ok(())
}
