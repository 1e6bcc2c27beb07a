use std::collections::BTreeMap;

use callboard_message::RawObject;
use serde_json::value::RawValue;

use super::macros::{one_of, quiet, wire};
use super::{At, Members, ReadError, Wire, Writer};

wire! {
    /// Where an agent is, and in which words.
    #[derive(Default)]
    pub struct AgentInterface {
        /// Absolute.
        url: String = always "url",
        /// `JSONRPC`, `HTTP+JSON`, `GRPC`, or others'.
        protocol_binding: String = always "protocolBinding",
        /// Sent with every request, where it isn't empty.
        tenant: String = default "tenant",
        /// Major and minor, for example `1.0`.
        protocol_version: String = always "protocolVersion",
    }

    /// Whose agent it is.
    #[derive(Default)]
    pub struct AgentProvider {
        /// Its site.
        url: String = always "url",
        /// Its name.
        organization: String = always "organization",
    }

    /// A protocol extension that an agent knows.
    #[derive(Default)]
    pub struct AgentExtension {
        /// Its name.
        uri: String = default "uri",
        /// What for.
        description: String = default "description",
        /// Whether clients must know it too.
        required: bool = default "required",
        /// Its own.
        params: Option<RawObject> = optional "params",
    }

    /// What an agent can do beside answering.
    #[derive(Default)]
    pub struct AgentCapabilities {
        /// Streams.
        streaming: Option<bool> = optional "streaming",
        /// Pushes.
        push_notifications: Option<bool> = optional "pushNotifications",
        /// Protocol extensions.
        extensions: Vec<AgentExtension> = default "extensions",
        /// Whether who is known is shown more.
        extended_agent_card: Option<bool> = optional "extendedAgentCard",
    }

    /// Something that an agent can do.
    #[derive(Default)]
    pub struct AgentSkill {
        /// Unique within the card.
        id: String = always "id",
        /// For people.
        name: String = always "name",
        /// For people and models.
        description: String = always "description",
        /// Key words.
        tags: Vec<String> = always "tags",
        /// What one might say.
        examples: Vec<String> = default "examples",
        /// Media types that it takes, where they are others than the card's.
        input_modes: Vec<String> = default "inputModes",
        /// Media types that it makes, where they are others than the card's.
        output_modes: Vec<String> = default "outputModes",
        /// What it needs beside what the card needs.
        security_requirements: Vec<SecurityRequirement> = default "securityRequirements" | "security",
    }

    /// A signature of a card (RFC 7515).
    #[derive(Default)]
    pub struct AgentCardSignature {
        /// The protected header, base64url.
        protected: String = always "protected",
        /// The signature, base64url.
        signature: String = always "signature",
        /// The header that isn't protected.
        header: Option<RawObject> = optional "header",
    }

    /// What an agent says about itself.
    #[derive(Default)]
    pub struct AgentCard {
        /// For people.
        name: String = always "name",
        /// For people and models.
        description: String = always "description",
        /// The first is preferred.
        supported_interfaces: Vec<AgentInterface> = always "supportedInterfaces",
        /// Whose agent it is.
        provider: Option<AgentProvider> = optional "provider",
        /// Of the agent.
        version: String = always "version",
        /// More to read.
        documentation_url: Option<String> = optional "documentationUrl",
        /// What it can do beside answering.
        capabilities: AgentCapabilities = always "capabilities",
        /// How to show who one is, by name.
        security_schemes: BTreeMap<String, SecurityScheme> = default "securitySchemes",
        /// Any of them is enough.
        security_requirements: Vec<SecurityRequirement> = default "securityRequirements" | "security",
        /// Media types that its skills take.
        default_input_modes: Vec<String> = always "defaultInputModes",
        /// Media types that its skills make.
        default_output_modes: Vec<String> = always "defaultOutputModes",
        /// What it can do.
        skills: Vec<AgentSkill> = always "skills",
        /// Over the card without them.
        signatures: Vec<AgentCardSignature> = default "signatures",
        /// A picture.
        icon_url: Option<String> = optional "iconUrl",
    }
}

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
        let wrapped = members
            .find("schemes", &[])?
            .filter(|schemes| schemes.get().starts_with('{'));
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
