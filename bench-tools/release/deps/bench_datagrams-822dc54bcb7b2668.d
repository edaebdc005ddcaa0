/work/wt/me/bench-tools/release/deps/bench_datagrams-822dc54bcb7b2668.d: datagrams/src/main.rs

/work/wt/me/bench-tools/release/deps/bench_datagrams-822dc54bcb7b2668: datagrams/src/main.rs

datagrams/src/main.rs:
