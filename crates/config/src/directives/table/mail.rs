//! `mail`, which Balanza does not have.

use crate::directives::Directive;
use crate::directives::row::{FLAG, MAIL, MAIL_SERVER, MAIN, MM, NONE, ONE, TWO, at_least, between, refused};

pub(super) const MODULES: &[(&str, &[Directive])] = &[
    ("ngx_mail_auth_http_module", MAIL_AUTH_HTTP),
    ("ngx_mail_core_module", MAIL_CORE),
    ("ngx_mail_imap_module", MAIL_IMAP),
    ("ngx_mail_pop3_module", MAIL_POP3),
    ("ngx_mail_proxy_module", MAIL_PROXY),
    ("ngx_mail_realip_module", MAIL_REALIP),
    ("ngx_mail_smtp_module", MAIL_SMTP),
    ("ngx_mail_ssl_module", MAIL_SSL),
];

const MAIL_AUTH_HTTP: &[Directive] = &[
    refused("auth_http", MM, ONE),
    refused("auth_http_header", MM, TWO),
    refused("auth_http_pass_client_cert", MM, FLAG),
    refused("auth_http_timeout", MM, ONE),
];

const MAIL_CORE: &[Directive] = &[
    refused("error_log", MM, at_least(1)),
    refused("listen", MAIL_SERVER, at_least(1)),
    refused("mail", MAIN, NONE.block()),
    refused("max_errors", MM, ONE),
    refused("protocol", MAIL_SERVER, ONE),
    refused("resolver", MM, at_least(1)),
    refused("resolver_timeout", MM, ONE),
    refused("server", MAIL, NONE.block()),
    refused("server_name", MM, ONE),
    refused("timeout", MM, ONE),
];

const MAIL_IMAP: &[Directive] = &[
    refused("imap_auth", MM, at_least(1)),
    refused("imap_capabilities", MM, at_least(1)),
    refused("imap_client_buffer", MM, ONE),
];

const MAIL_POP3: &[Directive] = &[refused("pop3_auth", MM, at_least(1)), refused("pop3_capabilities", MM, at_least(1))];

const MAIL_PROXY: &[Directive] = &[
    refused("proxy", MM, FLAG),
    refused("proxy_buffer", MM, ONE),
    refused("proxy_pass_error_message", MM, FLAG),
    refused("proxy_protocol", MM, FLAG),
    refused("proxy_smtp_auth", MM, FLAG),
    refused("proxy_timeout", MM, ONE),
    refused("xclient", MM, FLAG),
];

const MAIL_REALIP: &[Directive] = &[refused("set_real_ip_from", MM, ONE)];

const MAIL_SMTP: &[Directive] = &[
    refused("smtp_auth", MM, at_least(1)),
    refused("smtp_capabilities", MM, at_least(1)),
    refused("smtp_client_buffer", MM, ONE),
    refused("smtp_greeting_delay", MM, ONE),
];

const MAIL_SSL: &[Directive] = &[
    refused("ssl_certificate", MM, ONE),
    refused("ssl_certificate_compression", MM, FLAG),
    refused("ssl_certificate_key", MM, ONE),
    refused("ssl_ciphers", MM, ONE),
    refused("ssl_client_certificate", MM, ONE),
    refused("ssl_conf_command", MM, TWO),
    refused("ssl_crl", MM, ONE),
    refused("ssl_dhparam", MM, ONE),
    refused("ssl_ecdh_curve", MM, ONE),
    refused("ssl_password_file", MM, ONE),
    refused("ssl_prefer_server_ciphers", MM, FLAG),
    refused("ssl_protocols", MM, at_least(1)),
    refused("ssl_session_cache", MM, between(1, 2)),
    refused("ssl_session_ticket_key", MM, ONE),
    refused("ssl_session_tickets", MM, FLAG),
    refused("ssl_session_timeout", MM, ONE),
    refused("ssl_trusted_certificate", MM, ONE),
    refused("ssl_verify_client", MM, ONE),
    refused("ssl_verify_depth", MM, ONE),
    refused("starttls", MM, ONE),
];
