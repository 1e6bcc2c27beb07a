use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::wire::macros::{one_of, quiet, wire};
use crate::wire::{At, Members, ReadError, Wire, Writer};

/// Scopes of one scheme.
#[derive(Clone, Default)]
pub struct StringList {
    /// Their names.
    pub list: Vec<String>,
}

impl Wire for StringList {
    // 0.3 has the bare list.
    fn read(raw: &RawValue, at: &At<'_>) -> Result<Self, ReadError> {
        let list = match raw.get().starts_with('[') {
            true => Vec::read(raw, at)?,
            false => Members::of(raw, at)?.default("list", &[])?,
        };
        Ok(Self { list })
    }

    fn write(&self, out: &mut Writer<'_>) {
        let mut object = out.object();
        object.default("list", &self.list);
        object.end();
    }
}

/// Schemes that are needed together.
#[derive(Clone, Default)]
pub struct SecurityRequirement {
    /// Scopes by the scheme's name.
    pub schemes: BTreeMap<String, StringList>,
}

impl Wire for SecurityRequirement {
    // 0.3 has the bare map.
    fn read(raw: &RawValue, at: &At<'_>) -> Result<Self, ReadError> {
        let members = Members::of(raw, at)?;
        let wrapped = members.find("schemes", &[])?.filter(|schemes| schemes.get().starts_with('{'));
        let schemes = BTreeMap::read(wrapped.unwrap_or(raw), at)?;
        Ok(Self { schemes })
    }

    fn write(&self, out: &mut Writer<'_>) {
        let mut object = out.object();
        object.always("schemes", &self.schemes);
        object.end();
    }
}

quiet!(StringList);
quiet!(SecurityRequirement);

wire! {
    /// A key in a header, a query or a cookie.
    #[derive(Default)]
    pub struct APIKeySecurityScheme {
        /// For people.
        description: String = default "description",
        /// `header`, `query` or `cookie`.
        location: String = always "location" | "in",
        /// Of the header, parameter or cookie.
        name: String = always "name",
    }

    /// A scheme of the `Authorization` header.
    #[derive(Default)]
    pub struct HTTPAuthSecurityScheme {
        /// For people.
        description: String = default "description",
        /// For example `Bearer`.
        scheme: String = always "scheme",
        /// For example `JWT`.
        bearer_format: String = default "bearerFormat",
    }

    /// A token of an OAuth 2.0 server.
    pub struct OAuth2SecurityScheme {
        /// For people.
        description: String = default "description",
        /// How to get it.
        flows: OAuthFlows = required "flows",
        /// Of the server (RFC 8414).
        oauth2_metadata_url: String = default "oauth2MetadataUrl",
    }

    /// A token of an OpenID provider.
    #[derive(Default)]
    pub struct OpenIdConnectSecurityScheme {
        /// For people.
        description: String = default "description",
        /// Of the provider's metadata.
        open_id_connect_url: String = always "openIdConnectUrl",
    }

    /// A client certificate.
    #[derive(Default)]
    pub struct MutualTlsSecurityScheme {
        /// For people.
        description: String = default "description",
    }

    /// A person agrees in a browser.
    #[derive(Default)]
    pub struct AuthorizationCodeOAuthFlow {
        /// Where.
        authorization_url: String = always "authorizationUrl",
        /// Where tokens are given out.
        token_url: String = always "tokenUrl",
        /// Where they are renewed.
        refresh_url: String = default "refreshUrl",
        /// Descriptions by name.
        scopes: BTreeMap<String, String> = always "scopes",
        /// Whether PKCE is needed.
        pkce_required: bool = default "pkceRequired",
    }

    /// The client is known itself.
    #[derive(Default)]
    pub struct ClientCredentialsOAuthFlow {
        /// Where tokens are given out.
        token_url: String = always "tokenUrl",
        /// Where they are renewed.
        refresh_url: String = default "refreshUrl",
        /// Descriptions by name.
        scopes: BTreeMap<String, String> = always "scopes",
    }

    /// Deprecated.
    #[derive(Default)]
    pub struct ImplicitOAuthFlow {
        /// Where a person agrees.
        authorization_url: String = default "authorizationUrl",
        /// Where tokens are renewed.
        refresh_url: String = default "refreshUrl",
        /// Descriptions by name.
        scopes: BTreeMap<String, String> = default "scopes",
    }

    /// Deprecated.
    #[derive(Default)]
    pub struct PasswordOAuthFlow {
        /// Where tokens are given out.
        token_url: String = default "tokenUrl",
        /// Where they are renewed.
        refresh_url: String = default "refreshUrl",
        /// Descriptions by name.
        scopes: BTreeMap<String, String> = default "scopes",
    }

    /// A person agrees on another device (RFC 8628).
    #[derive(Default)]
    pub struct DeviceCodeOAuthFlow {
        /// Where the device asks.
        device_authorization_url: String = always "deviceAuthorizationUrl",
        /// Where tokens are given out.
        token_url: String = always "tokenUrl",
        /// Where they are renewed.
        refresh_url: String = default "refreshUrl",
        /// Descriptions by name.
        scopes: BTreeMap<String, String> = always "scopes",
    }
}

one_of! {
    /// How to show who one is.
    pub enum SecurityScheme {
        /// By a key.
        ApiKey(APIKeySecurityScheme) = "apiKeySecurityScheme",
        /// By the `Authorization` header.
        HttpAuth(HTTPAuthSecurityScheme) = "httpAuthSecurityScheme",
        /// By a token of an OAuth 2.0 server.
        OAuth2(OAuth2SecurityScheme) = "oauth2SecurityScheme",
        /// By a token of an OpenID provider.
        OpenIdConnect(OpenIdConnectSecurityScheme) = "openIdConnectSecurityScheme",
        /// By a certificate.
        MutualTls(MutualTlsSecurityScheme) = "mtlsSecurityScheme",
    }

    /// How a token is got.
    pub enum OAuthFlows {
        /// In a browser.
        AuthorizationCode(AuthorizationCodeOAuthFlow) = "authorizationCode",
        /// By the client alone.
        ClientCredentials(ClientCredentialsOAuthFlow) = "clientCredentials",
        /// Deprecated.
        Implicit(ImplicitOAuthFlow) = "implicit",
        /// Deprecated.
        Password(PasswordOAuthFlow) = "password",
        /// On another device.
        DeviceCode(DeviceCodeOAuthFlow) = "deviceCode",
    }
}

impl SecurityScheme {
    // 0.3 tells them by `type`, as OpenAPI does.
    fn read_bare(raw: &RawValue, members: &Members<'_>, at: &At<'_>) -> Result<Self, ReadError> {
        match &*members.default::<String>("type", &[])? {
            "apiKey" => APIKeySecurityScheme::read(raw, at).map(Self::ApiKey),
            "http" => HTTPAuthSecurityScheme::read(raw, at).map(Self::HttpAuth),
            "oauth2" => OAuth2SecurityScheme::read(raw, at).map(Self::OAuth2),
            "openIdConnect" => OpenIdConnectSecurityScheme::read(raw, at).map(Self::OpenIdConnect),
            "mutualTLS" => MutualTlsSecurityScheme::read(raw, at).map(Self::MutualTls),
            _ => Err(at.error("is no security scheme that is known")),
        }
    }
}

impl OAuthFlows {
    fn read_bare(_: &RawValue, _: &Members<'_>, at: &At<'_>) -> Result<Self, ReadError> {
        Err(at.error("has no flow that is known"))
    }
}
