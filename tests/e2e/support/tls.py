"""A client that speaks TLS, by Python's binding of OpenSSL."""

import socket
import ssl

from . import certificates
from .client import Client


def context(*, by="authority", certificate=None, versions=None, alpn=(), ciphers=None, verify=True):
    """What a client trusts, shows and offers."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.load_verify_locations(certificates.authority(by).certificate)
    if not verify:
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    if certificate:
        made.load_cert_chain(certificate.certificate, certificate.key)
    if versions:
        made.minimum_version = made.maximum_version = versions
    if alpn:
        made.set_alpn_protocols(list(alpn))
    if ciphers:
        made.set_ciphers(ciphers)
    return made


class TlsClient(Client):
    """A client of HTTP over TLS."""

    def __init__(self, port, *, name="a.test", tls=None, session=None, timeout=30, **options):
        super().__init__(port, timeout=timeout, **options)
        tls = tls or context()
        self.use(tls.wrap_socket(self.sock, server_hostname=name, session=session))

    @property
    def tls(self):
        return self.sock


def fetch(port, target="/", *, host=None, name="a.test", tls=None, headers=(), method="GET", body=b"", session=None):
    """One request on a connection of its own; the answer."""
    with TlsClient(port, name=name, tls=tls, session=session) as client:
        client.request(method, target, host=host or name or "a.test", headers=headers, body=body)
        return client.response(method)


def text(*arguments, **options):
    return fetch(*arguments, **options).body.decode()


def refused(port, **options):
    """Why a handshake, or the first read after it, fails."""
    try:
        fetch(port, **options)
    except (ssl.SSLError, ConnectionError, EOFError, AssertionError, socket.timeout) as error:
        return str(error) or type(error).__name__
    raise AssertionError("the handshake succeeded")
