/work/wt/me/bench-tools/release/bench-relay: /work/wt/me/benches/relay/src/main.rs
