/work/wt/me/bench-tools/release/bench-origin: /work/wt/me/benches/origin/src/main.rs
