/work/wt/me/bench-tools/release/deps/bench_distance-128b1e11d1a0dda8.d: distance/src/main.rs

/work/wt/me/bench-tools/release/deps/bench_distance-128b1e11d1a0dda8: distance/src/main.rs

distance/src/main.rs:
