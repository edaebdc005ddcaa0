//! balanza-config
