use std::collections::BTreeMap;

use callboard_message::RawObject;

use crate::wire::macros::wire;
use crate::wire::{SecurityRequirement, SecurityScheme};

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
