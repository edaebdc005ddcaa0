//! balanza-lab
