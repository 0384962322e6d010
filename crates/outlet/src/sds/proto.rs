//! The fields of Envoy's messages that this service reads and writes (`envoy/service/discovery/v3/discovery.proto`,
//! `envoy/extensions/transport_sockets/tls/v3/secret.proto`).

/// A subscription, or the answer to a response.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DiscoveryRequest {
    #[prost(string, repeated, tag = "3")]
    pub(super) resource_names: Vec<String>,
    #[prost(message, optional, tag = "6")]
    pub(super) error_detail: Option<RpcStatus>,
}

/// The reason why Envoy rejects a response.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RpcStatus {
    #[prost(string, tag = "2")]
    pub(super) message: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DiscoveryResponse {
    #[prost(string, tag = "1")]
    pub(super) version_info: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) resources: Vec<Any>,
    #[prost(string, tag = "4")]
    pub(super) type_url: String,
    #[prost(string, tag = "5")]
    pub(super) nonce: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Any {
    #[prost(string, tag = "1")]
    pub(super) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Secret {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "3")]
    pub(super) session_ticket_keys: Option<SessionTicketKeys>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SessionTicketKeys {
    #[prost(message, repeated, tag = "1")]
    pub(super) keys: Vec<DataSource>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DataSource {
    #[prost(bytes = "vec", tag = "2")]
    pub(super) inline_bytes: Vec<u8>,
}
