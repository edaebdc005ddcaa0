/work/wt/me/bench-tools/release/bench-distance: /work/wt/me/benches/distance/src/main.rs
