use std::collections::BTreeMap;

use callboard_message::RawObject;
use serde_json::value::RawValue;

use super::macros::{one_of, quiet, wire};
use super::{FieldPath, JsonWriter, ObjectReader, ReadError, WireType};

wire! {
    /// An address of an agent, with the binding and version of the protocol spoken there.
    #[derive(Default)]
    pub struct AgentInterface {
        /// Absolute URL.
        url: String = always "url",
        /// Protocol binding: `JSONRPC`, `HTTP+JSON`, `GRPC` or a custom one.
        protocol_binding: String = always "protocolBinding",
        /// Tenant to send with every request; empty if there is none.
        tenant: String = default "tenant",
        /// Protocol version as major and minor number, for example `1.0`.
        protocol_version: String = always "protocolVersion",
    }

    /// The organization that provides an agent.
    #[derive(Default)]
    pub struct AgentProvider {
        /// URL of the organization's website.
        url: String = always "url",
        /// Name of the organization.
        organization: String = always "organization",
    }

    /// A protocol extension that an agent supports.
    #[derive(Default)]
    pub struct AgentExtension {
        /// URI that identifies the extension.
        uri: String = default "uri",
        /// Description of how the agent uses the extension.
        description: String = default "description",
        /// Whether clients must support the extension.
        required: bool = default "required",
        /// Parameters of the extension, defined by the extension.
        params: Option<RawObject> = optional "params",
    }

    /// Optional protocol features of an agent.
    #[derive(Default)]
    pub struct AgentCapabilities {
        /// Whether the agent supports streaming.
        streaming: Option<bool> = optional "streaming",
        /// Whether the agent supports push notifications.
        push_notifications: Option<bool> = optional "pushNotifications",
        /// Protocol extensions that the agent supports.
        extensions: Vec<AgentExtension> = default "extensions",
        /// Whether authenticated clients can get an extended card.
        extended_agent_card: Option<bool> = optional "extendedAgentCard",
    }

    /// A capability of an agent, as listed on its card.
    #[derive(Default)]
    pub struct AgentSkill {
        /// Id of the skill, unique within the card.
        id: String = always "id",
        /// Name for people.
        name: String = always "name",
        /// Description for people and models.
        description: String = always "description",
        /// Keywords.
        tags: Vec<String> = always "tags",
        /// Example prompts.
        examples: Vec<String> = default "examples",
        /// Media types that the skill accepts, if they differ from the card's.
        input_modes: Vec<String> = default "inputModes",
        /// Media types that the skill produces, if they differ from the card's.
        output_modes: Vec<String> = default "outputModes",
        /// Security requirements of the skill, in addition to the card's.
        security_requirements: Vec<SecurityRequirement> = default "securityRequirements" | "security",
    }

    /// A JSON Web Signature of a card (RFC 7515).
    #[derive(Default)]
    pub struct AgentCardSignature {
        /// Protected header, base64url-encoded JSON.
        protected: String = always "protected",
        /// Signature, base64url-encoded.
        signature: String = always "signature",
        /// Unprotected header.
        header: Option<RawObject> = optional "header",
    }

    /// Self-description of an agent: its skills, addresses and security requirements.
    #[derive(Default)]
    pub struct AgentCard {
        /// Name for people.
        name: String = always "name",
        /// Description for people and models.
        description: String = always "description",
        /// Addresses of the agent, the preferred one first.
        supported_interfaces: Vec<AgentInterface> = always "supportedInterfaces",
        /// The organization that provides the agent.
        provider: Option<AgentProvider> = optional "provider",
        /// Version of the agent.
        version: String = always "version",
        /// URL of the documentation.
        documentation_url: Option<String> = optional "documentationUrl",
        /// Optional protocol features that the agent supports.
        capabilities: AgentCapabilities = always "capabilities",
        /// Authentication schemes by name.
        security_schemes: BTreeMap<String, SecurityScheme> = default "securitySchemes",
        /// Alternative sets of authentication schemes; one set is enough.
        security_requirements: Vec<SecurityRequirement> = default "securityRequirements" | "security",
        /// Media types that the skills accept by default.
        default_input_modes: Vec<String> = always "defaultInputModes",
        /// Media types that the skills produce by default.
        default_output_modes: Vec<String> = always "defaultOutputModes",
        /// Skills of the agent.
        skills: Vec<AgentSkill> = always "skills",
        /// Signatures over the card without its `signatures`.
        signatures: Vec<AgentCardSignature> = default "signatures",
        /// URL of the icon.
        icon_url: Option<String> = optional "iconUrl",
    }
}

/// A list of strings, such as the OAuth scopes of one security scheme.
#[derive(Clone, Default)]
pub struct StringList {
    /// The strings.
    pub list: Vec<String>,
}

impl WireType for StringList {
    // 0.3 has a bare list.
    fn read(raw: &RawValue, at: &FieldPath<'_>) -> Result<Self, ReadError> {
        let list = match raw.get().starts_with('[') {
            true => Vec::read(raw, at)?,
            false => ObjectReader::parse(raw, at)?.default("list", &[])?,
        };
        Ok(Self { list })
    }

    fn write(&self, out: &mut JsonWriter<'_>) {
        let mut object = out.object();
        object.default("list", &self.list);
        object.end();
    }
}

/// Security schemes that must be satisfied together.
#[derive(Clone, Default)]
pub struct SecurityRequirement {
    /// Required scopes by name of the security scheme.
    pub schemes: BTreeMap<String, StringList>,
}

impl WireType for SecurityRequirement {
    // 0.3 has a bare map.
    fn read(raw: &RawValue, at: &FieldPath<'_>) -> Result<Self, ReadError> {
        let members = ObjectReader::parse(raw, at)?;
        let wrapped = members
            .find("schemes", &[])?
            .filter(|schemes| schemes.get().starts_with('{'));
        let schemes = BTreeMap::read(wrapped.unwrap_or(raw), at)?;
        Ok(Self { schemes })
    }

    fn write(&self, out: &mut JsonWriter<'_>) {
        let mut object = out.object();
        object.always("schemes", &self.schemes);
        object.end();
    }
}

quiet!(StringList);
quiet!(SecurityRequirement);

wire! {
    /// API key in a header, query parameter or cookie.
    #[derive(Default)]
    pub struct APIKeySecurityScheme {
        /// Description for people.
        description: String = default "description",
        /// Location of the key: `header`, `query` or `cookie`.
        location: String = always "location" | "in",
        /// Name of the header, query parameter or cookie.
        name: String = always "name",
    }

    /// HTTP authentication by the `Authorization` header.
    #[derive(Default)]
    pub struct HTTPAuthSecurityScheme {
        /// Description for people.
        description: String = default "description",
        /// Authentication scheme, for example `Bearer`.
        scheme: String = always "scheme",
        /// Hint about the format of bearer tokens, for example `JWT`.
        bearer_format: String = default "bearerFormat",
    }

    /// Authentication by an OAuth 2.0 token.
    pub struct OAuth2SecurityScheme {
        /// Description for people.
        description: String = default "description",
        /// Flow by which a client gets a token.
        flows: OAuthFlows = required "flows",
        /// URL of the authorization server's metadata (RFC 8414).
        oauth2_metadata_url: String = default "oauth2MetadataUrl",
    }

    /// Authentication by an OpenID Connect token.
    #[derive(Default)]
    pub struct OpenIdConnectSecurityScheme {
        /// Description for people.
        description: String = default "description",
        /// URL of the provider's metadata.
        open_id_connect_url: String = always "openIdConnectUrl",
    }

    /// Authentication by a TLS client certificate.
    #[derive(Default)]
    pub struct MutualTlsSecurityScheme {
        /// Description for people.
        description: String = default "description",
    }

    /// OAuth 2.0 authorization code flow: the user consents in a browser.
    #[derive(Default)]
    pub struct AuthorizationCodeOAuthFlow {
        /// URL of the authorization endpoint.
        authorization_url: String = always "authorizationUrl",
        /// URL of the token endpoint.
        token_url: String = always "tokenUrl",
        /// URL of the refresh endpoint.
        refresh_url: String = default "refreshUrl",
        /// Descriptions of the scopes by name.
        scopes: BTreeMap<String, String> = always "scopes",
        /// Whether PKCE is required.
        pkce_required: bool = default "pkceRequired",
    }

    /// OAuth 2.0 client credentials flow: the client authenticates as itself.
    #[derive(Default)]
    pub struct ClientCredentialsOAuthFlow {
        /// URL of the token endpoint.
        token_url: String = always "tokenUrl",
        /// URL of the refresh endpoint.
        refresh_url: String = default "refreshUrl",
        /// Descriptions of the scopes by name.
        scopes: BTreeMap<String, String> = always "scopes",
    }

    /// OAuth 2.0 implicit flow. Deprecated.
    #[derive(Default)]
    pub struct ImplicitOAuthFlow {
        /// URL of the authorization endpoint.
        authorization_url: String = default "authorizationUrl",
        /// URL of the refresh endpoint.
        refresh_url: String = default "refreshUrl",
        /// Descriptions of the scopes by name.
        scopes: BTreeMap<String, String> = default "scopes",
    }

    /// OAuth 2.0 password flow. Deprecated.
    #[derive(Default)]
    pub struct PasswordOAuthFlow {
        /// URL of the token endpoint.
        token_url: String = default "tokenUrl",
        /// URL of the refresh endpoint.
        refresh_url: String = default "refreshUrl",
        /// Descriptions of the scopes by name.
        scopes: BTreeMap<String, String> = default "scopes",
    }

    /// OAuth 2.0 device code flow: the user consents on another device (RFC 8628).
    #[derive(Default)]
    pub struct DeviceCodeOAuthFlow {
        /// URL of the device authorization endpoint.
        device_authorization_url: String = always "deviceAuthorizationUrl",
        /// URL of the token endpoint.
        token_url: String = always "tokenUrl",
        /// URL of the refresh endpoint.
        refresh_url: String = default "refreshUrl",
        /// Descriptions of the scopes by name.
        scopes: BTreeMap<String, String> = always "scopes",
    }
}

one_of! {
    /// An authentication scheme that an agent accepts.
    pub enum SecurityScheme {
        /// API key.
        ApiKey(APIKeySecurityScheme) = "apiKeySecurityScheme",
        /// HTTP authentication by the `Authorization` header.
        HttpAuth(HTTPAuthSecurityScheme) = "httpAuthSecurityScheme",
        /// OAuth 2.0 token.
        OAuth2(OAuth2SecurityScheme) = "oauth2SecurityScheme",
        /// OpenID Connect token.
        OpenIdConnect(OpenIdConnectSecurityScheme) = "openIdConnectSecurityScheme",
        /// TLS client certificate.
        MutualTls(MutualTlsSecurityScheme) = "mtlsSecurityScheme",
    }

    /// The OAuth 2.0 flow by which a client gets a token.
    pub enum OAuthFlows {
        /// Authorization code flow, in a browser.
        AuthorizationCode(AuthorizationCodeOAuthFlow) = "authorizationCode",
        /// Client credentials flow, without a user.
        ClientCredentials(ClientCredentialsOAuthFlow) = "clientCredentials",
        /// Implicit flow. Deprecated.
        Implicit(ImplicitOAuthFlow) = "implicit",
        /// Password flow. Deprecated.
        Password(PasswordOAuthFlow) = "password",
        /// Device code flow, with consent on another device.
        DeviceCode(DeviceCodeOAuthFlow) = "deviceCode",
    }
}

impl SecurityScheme {
    fn is_bare(_: &ObjectReader<'_>) -> bool {
        false
    }

    // 0.3 distinguishes schemes by `type`, as OpenAPI does.
    fn read_bare(
        raw: &RawValue,
        members: &ObjectReader<'_>,
        at: &FieldPath<'_>,
    ) -> Result<Self, ReadError> {
        match &*members.default::<String>("type", &[])? {
            "apiKey" => APIKeySecurityScheme::read(raw, at).map(Self::ApiKey),
            "http" => HTTPAuthSecurityScheme::read(raw, at).map(Self::HttpAuth),
            "oauth2" => OAuth2SecurityScheme::read(raw, at).map(Self::OAuth2),
            "openIdConnect" => OpenIdConnectSecurityScheme::read(raw, at).map(Self::OpenIdConnect),
            "mutualTLS" => MutualTlsSecurityScheme::read(raw, at).map(Self::MutualTls),
            _ => Err(at.error("is an unknown security scheme")),
        }
    }
}

impl OAuthFlows {
    fn is_bare(_: &ObjectReader<'_>) -> bool {
        false
    }

    fn read_bare(
        _: &RawValue,
        _: &ObjectReader<'_>,
        at: &FieldPath<'_>,
    ) -> Result<Self, ReadError> {
        Err(at.error("has no known OAuth flow"))
    }
}
