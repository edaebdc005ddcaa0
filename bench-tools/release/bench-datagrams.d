/work/wt/me/bench-tools/release/bench-datagrams: /work/wt/me/benches/datagrams/src/main.rs
