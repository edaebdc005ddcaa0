//! balanza-balancing
