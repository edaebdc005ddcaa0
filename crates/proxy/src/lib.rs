//! balanza-proxy
