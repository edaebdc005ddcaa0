//! balanza-http1
