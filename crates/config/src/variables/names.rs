//! The names of variables that have fixed meanings, in `http` and in `stream`.

use balanza_balancing::registry;

use crate::template::{ClientValue, Connections, Family, Ssl, TcpInfo, TraceValue, Variable};

/// What the names of shadows' variables begin with; the name of an algorithm follows.
pub(crate) const SHADOW: &str = "upstream_shadow_";

/// The variables of a protocol.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    pub builtin: &'static [(&'static str, Variable)],
    pub families: &'static [(&'static str, Family)],
    /// Short names, and those of a family that they stand for.
    pub short: &'static [(&'static str, &'static str)],
    unsupported: &'static [&'static str],
    /// `$1` … `$9` are groups of regular expressions.
    pub captures: bool,
}

impl Default for Names {
    fn default() -> Names {
        Names::HTTP
    }
}

impl Names {
    pub const HTTP: Names = Names {
        builtin: HTTP_BUILTIN,
        families: HTTP_FAMILIES,
        short: &[],
        unsupported: HTTP_UNSUPPORTED,
        captures: true,
    };
    pub const STREAM: Names = Names {
        builtin: STREAM_BUILTIN,
        families: STREAM_FAMILIES,
        short: &[("rdp_cookie", "rdp_cookie_mstshash")],
        unsupported: STREAM_UNSUPPORTED,
        captures: true,
    };

    /// Looks a name of the dialect up among the fixed variables.
    pub fn builtin(&self, name: &str) -> Option<Variable> {
        self.builtin.iter().find(|(known, _)| *known == name).map(|(_, variable)| variable.clone())
    }

    /// The variable of a family. A bare "$arg_" is one too, and has no value.
    pub fn of_family(&self, name: &str) -> Option<Variable> {
        if let Some(algorithm) = name.strip_prefix(SHADOW) {
            return registry::find(algorithm).map(|entry| Variable::UpstreamShadow(entry.name));
        }
        self.families.iter().find_map(|(prefix, variable)| Some(variable(name.strip_prefix(prefix)?.as_bytes().into())))
    }

    /// Whether NGINX has it and Balanza not.
    pub fn is_unsupported(&self, name: &str) -> bool {
        self.unsupported.iter().any(|known| if known.ends_with('_') { name.starts_with(known) } else { *known == name })
    }
}

/// The variables that every request of `http` has.
const HTTP_BUILTIN: &[(&str, Variable)] = &[
    ("ancient_browser", Variable::Client(ClientValue::AncientBrowser)),
    ("args", Variable::Args),
    ("query_string", Variable::Args),
    ("binary_remote_addr", Variable::BinaryRemoteAddr),
    ("body_bytes_sent", Variable::BodyBytesSent),
    ("bytes_sent", Variable::BytesSent),
    ("connection", Variable::Connection),
    ("connections_active", Variable::Connections(Connections::Active)),
    ("connections_reading", Variable::Connections(Connections::Reading)),
    ("connections_waiting", Variable::Connections(Connections::Waiting)),
    ("connections_writing", Variable::Connections(Connections::Writing)),
    ("connection_requests", Variable::ConnectionRequests),
    ("connection_time", Variable::ConnectionTime),
    ("content_length", Variable::ContentLength),
    ("content_type", Variable::ContentType),
    ("date_gmt", Variable::DateGmt),
    ("date_local", Variable::DateLocal),
    ("document_root", Variable::DocumentRoot),
    ("document_uri", Variable::Uri),
    ("gzip_ratio", Variable::GzipRatio),
    ("host", Variable::Host),
    ("hostname", Variable::Hostname),
    ("http2", Variable::Http2),
    // There is no HTTP/3 here.
    ("http3", Variable::CacheStatus),
    ("https", Variable::Https),
    ("invalid_referer", Variable::Client(ClientValue::InvalidReferer)),
    ("is_args", Variable::IsArgs),
    ("is_request_port", Variable::IsRequestPort),
    ("limit_conn_status", Variable::LimitConnStatus),
    ("limit_rate", Variable::LimitRate),
    ("limit_req_status", Variable::LimitReqStatus),
    ("modern_browser", Variable::Client(ClientValue::ModernBrowser)),
    ("msec", Variable::Msec),
    ("msie", Variable::Client(ClientValue::Msie)),
    ("nginx_version", Variable::NginxVersion),
    ("otel_parent_id", Variable::Trace(TraceValue::ParentId)),
    ("otel_parent_sampled", Variable::Trace(TraceValue::ParentSampled)),
    ("otel_span_id", Variable::Trace(TraceValue::SpanId)),
    ("otel_trace_id", Variable::Trace(TraceValue::TraceId)),
    ("pid", Variable::Pid),
    ("pipe", Variable::Pipe),
    ("proxy_add_x_forwarded_for", Variable::ProxyAddXForwardedFor),
    ("proxy_host", Variable::ProxyHost),
    ("proxy_port", Variable::ProxyPort),
    ("proxy_protocol_addr", Variable::Client(ClientValue::ProxyProtocolAddr)),
    ("proxy_protocol_port", Variable::Client(ClientValue::ProxyProtocolPort)),
    ("proxy_protocol_server_addr", Variable::Client(ClientValue::ProxyProtocolServerAddr)),
    ("proxy_protocol_server_port", Variable::Client(ClientValue::ProxyProtocolServerPort)),
    ("realip_remote_addr", Variable::Client(ClientValue::RealIpRemoteAddr)),
    ("realip_remote_port", Variable::Client(ClientValue::RealIpRemotePort)),
    ("realpath_root", Variable::RealpathRoot),
    ("remote_addr", Variable::RemoteAddr),
    ("remote_port", Variable::RemotePort),
    ("remote_user", Variable::RemoteUser),
    ("request", Variable::Request),
    ("request_body", Variable::RequestBody),
    ("request_body_file", Variable::RequestBodyFile),
    ("request_completion", Variable::RequestCompletion),
    ("request_filename", Variable::RequestFilename),
    ("request_id", Variable::RequestId),
    ("request_length", Variable::RequestLength),
    ("request_method", Variable::RequestMethod),
    ("request_port", Variable::RequestPort),
    ("request_time", Variable::RequestTime),
    ("request_uri", Variable::RequestUri),
    ("scheme", Variable::Scheme),
    ("secure_link", Variable::Client(ClientValue::SecureLink)),
    ("secure_link_expires", Variable::Client(ClientValue::SecureLinkExpires)),
    ("server_addr", Variable::ServerAddr),
    ("server_name", Variable::ServerName),
    ("server_port", Variable::ServerPort),
    ("server_protocol", Variable::ServerProtocol),
    ("ssl_alpn_protocol", Variable::Ssl(Ssl::AlpnProtocol)),
    ("ssl_cipher", Variable::Ssl(Ssl::Cipher)),
    ("ssl_ciphers", Variable::Ssl(Ssl::Ciphers)),
    ("ssl_client_cert", Variable::Ssl(Ssl::ClientCert)),
    ("ssl_client_escaped_cert", Variable::Ssl(Ssl::ClientEscapedCert)),
    ("ssl_client_fingerprint", Variable::Ssl(Ssl::ClientFingerprint)),
    ("ssl_client_i_dn", Variable::Ssl(Ssl::ClientIssuer)),
    ("ssl_client_i_dn_legacy", Variable::Ssl(Ssl::ClientIssuerLegacy)),
    ("ssl_client_raw_cert", Variable::Ssl(Ssl::ClientRawCert)),
    ("ssl_client_s_dn", Variable::Ssl(Ssl::ClientSubject)),
    ("ssl_client_s_dn_legacy", Variable::Ssl(Ssl::ClientSubjectLegacy)),
    ("ssl_client_serial", Variable::Ssl(Ssl::ClientSerial)),
    ("ssl_client_v_end", Variable::Ssl(Ssl::ClientEnd)),
    ("ssl_client_v_remain", Variable::Ssl(Ssl::ClientRemain)),
    ("ssl_client_v_start", Variable::Ssl(Ssl::ClientStart)),
    ("ssl_client_verify", Variable::Ssl(Ssl::ClientVerify)),
    ("ssl_curve", Variable::Ssl(Ssl::Curve)),
    ("ssl_curves", Variable::Ssl(Ssl::Curves)),
    ("ssl_early_data", Variable::Ssl(Ssl::EarlyData)),
    ("ssl_protocol", Variable::Ssl(Ssl::Protocol)),
    ("ssl_server_name", Variable::Ssl(Ssl::ServerName)),
    ("ssl_session_id", Variable::Ssl(Ssl::SessionId)),
    ("ssl_session_reused", Variable::Ssl(Ssl::SessionReused)),
    ("status", Variable::Status),
    ("tcpinfo_rcv_space", Variable::TcpInfo(TcpInfo::ReceiveSpace)),
    ("tcpinfo_rtt", Variable::TcpInfo(TcpInfo::Rtt)),
    ("tcpinfo_rttvar", Variable::TcpInfo(TcpInfo::RttVariation)),
    ("tcpinfo_snd_cwnd", Variable::TcpInfo(TcpInfo::CongestionWindow)),
    ("time_iso8601", Variable::TimeIso8601),
    ("time_local", Variable::TimeLocal),
    ("uid_got", Variable::Client(ClientValue::UidGot)),
    ("uid_set", Variable::Client(ClientValue::UidSet)),
    ("uri", Variable::Uri),
    ("upstream_addr", Variable::UpstreamAddr),
    ("upstream_bytes_received", Variable::UpstreamBytesReceived),
    ("upstream_bytes_sent", Variable::UpstreamBytesSent),
    ("upstream_cache_age", Variable::CacheStatus),
    ("upstream_cache_etag", Variable::CacheStatus),
    ("upstream_cache_key", Variable::CacheStatus),
    ("upstream_cache_last_modified", Variable::CacheStatus),
    ("upstream_cache_status", Variable::CacheStatus),
    ("upstream_choice_probability", Variable::UpstreamChoiceProbability),
    ("upstream_connect_time", Variable::UpstreamConnectTime),
    ("upstream_header_time", Variable::UpstreamHeaderTime),
    ("upstream_hedge", Variable::UpstreamHedge),
    ("upstream_experiment", Variable::UpstreamExperiment),
    ("upstream_last_addr", Variable::UpstreamLastAddr),
    ("upstream_last_server_name", Variable::UpstreamLastServerName),
    ("upstream_pick_reason", Variable::UpstreamPickReason),
    ("upstream_queue_time", Variable::UpstreamQueueTime),
    ("upstream_response_length", Variable::UpstreamResponseLength),
    ("upstream_response_time", Variable::UpstreamResponseTime),
    ("upstream_status", Variable::UpstreamStatus),
];

/// Families of variables of `http`, by what their names begin with.
const HTTP_FAMILIES: &[(&str, Family)] = &[
    ("arg_", Variable::Arg),
    ("cookie_", Variable::Cookie),
    ("http_", Variable::Http),
    ("proxy_protocol_tlv_", |name| Variable::Client(ClientValue::ProxyProtocolTlv(name))),
    ("sent_http_", Variable::SentHttp),
    ("sent_trailer_", Variable::SentTrailer),
    ("upstream_http_", Variable::UpstreamHttp),
    ("upstream_cookie_", Variable::UpstreamCookie),
    ("upstream_trailer_", Variable::UpstreamTrailer),
];

/// Variables of NGINX's `http` modules that Balanza has not; a name that ends in "_" stands for a family.
const HTTP_UNSUPPORTED: &[&str] =
    &["fastcgi_", "geoip_", "memcached_key", "proxy_internal_", "slice_range", "ssl_", "upstream_last_"];

/// The variables that every session of `stream` has.
const STREAM_BUILTIN: &[(&str, Variable)] = &[
    ("binary_remote_addr", Variable::BinaryRemoteAddr),
    ("bytes_received", Variable::BytesReceived),
    ("bytes_sent", Variable::BytesSent),
    ("connection", Variable::Connection),
    ("hostname", Variable::Hostname),
    ("limit_conn_status", Variable::LimitConnStatus),
    ("msec", Variable::Msec),
    ("nginx_version", Variable::NginxVersion),
    ("pid", Variable::Pid),
    ("protocol", Variable::Protocol),
    ("proxy_protocol_addr", Variable::Client(ClientValue::ProxyProtocolAddr)),
    ("proxy_protocol_port", Variable::Client(ClientValue::ProxyProtocolPort)),
    ("proxy_protocol_server_addr", Variable::Client(ClientValue::ProxyProtocolServerAddr)),
    ("proxy_protocol_server_port", Variable::Client(ClientValue::ProxyProtocolServerPort)),
    ("realip_remote_addr", Variable::Client(ClientValue::RealIpRemoteAddr)),
    ("realip_remote_port", Variable::Client(ClientValue::RealIpRemotePort)),
    ("remote_addr", Variable::RemoteAddr),
    ("remote_port", Variable::RemotePort),
    ("server_addr", Variable::ServerAddr),
    ("server_port", Variable::ServerPort),
    ("session_time", Variable::SessionTime),
    ("ssl_alpn_protocol", Variable::Ssl(Ssl::AlpnProtocol)),
    ("ssl_cipher", Variable::Ssl(Ssl::Cipher)),
    ("ssl_ciphers", Variable::Ssl(Ssl::Ciphers)),
    ("ssl_client_cert", Variable::Ssl(Ssl::ClientCert)),
    ("ssl_client_fingerprint", Variable::Ssl(Ssl::ClientFingerprint)),
    ("ssl_client_i_dn", Variable::Ssl(Ssl::ClientIssuer)),
    ("ssl_client_raw_cert", Variable::Ssl(Ssl::ClientRawCert)),
    ("ssl_client_s_dn", Variable::Ssl(Ssl::ClientSubject)),
    ("ssl_client_serial", Variable::Ssl(Ssl::ClientSerial)),
    ("ssl_client_v_end", Variable::Ssl(Ssl::ClientEnd)),
    ("ssl_client_v_remain", Variable::Ssl(Ssl::ClientRemain)),
    ("ssl_client_v_start", Variable::Ssl(Ssl::ClientStart)),
    ("ssl_client_verify", Variable::Ssl(Ssl::ClientVerify)),
    ("ssl_curve", Variable::Ssl(Ssl::Curve)),
    ("ssl_curves", Variable::Ssl(Ssl::Curves)),
    ("ssl_preread_alpn_protocols", Variable::Ssl(Ssl::PrereadAlpnProtocols)),
    ("ssl_preread_protocol", Variable::Ssl(Ssl::PrereadProtocol)),
    ("ssl_preread_server_name", Variable::Ssl(Ssl::PrereadServerName)),
    ("ssl_protocol", Variable::Ssl(Ssl::Protocol)),
    ("ssl_server_name", Variable::Ssl(Ssl::ServerName)),
    ("ssl_session_id", Variable::Ssl(Ssl::SessionId)),
    ("ssl_session_reused", Variable::Ssl(Ssl::SessionReused)),
    ("status", Variable::Status),
    ("time_iso8601", Variable::TimeIso8601),
    ("time_local", Variable::TimeLocal),
    ("upstream_addr", Variable::UpstreamAddr),
    ("upstream_bytes_received", Variable::UpstreamBytesReceived),
    ("upstream_bytes_sent", Variable::UpstreamBytesSent),
    ("upstream_choice_probability", Variable::UpstreamChoiceProbability),
    ("upstream_connect_time", Variable::UpstreamConnectTime),
    ("upstream_first_byte_time", Variable::UpstreamFirstByteTime),
    ("upstream_experiment", Variable::UpstreamExperiment),
    ("upstream_last_addr", Variable::UpstreamLastAddr),
    ("upstream_last_server_name", Variable::UpstreamLastServerName),
    ("upstream_pick_reason", Variable::UpstreamPickReason),
    ("upstream_session_time", Variable::UpstreamSessionTime),
];

/// Families of variables of `stream`.
const STREAM_FAMILIES: &[(&str, Family)] = &[
    ("proxy_protocol_tlv_", |name| Variable::Client(ClientValue::ProxyProtocolTlv(name))),
    ("rdp_cookie_", Variable::RdpCookie),
];

/// Variables of NGINX's `stream` modules that Balanza has not.
const STREAM_UNSUPPORTED: &[&str] = &["geoip_", "server_name", "ssl_", "upstream_last_"];
