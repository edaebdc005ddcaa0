/work/wt/me/bench-tools/release/deps/bench_origin-d45ec9bf8c15f8dc.d: origin/src/main.rs

/work/wt/me/bench-tools/release/deps/bench_origin-d45ec9bf8c15f8dc: origin/src/main.rs

origin/src/main.rs:
