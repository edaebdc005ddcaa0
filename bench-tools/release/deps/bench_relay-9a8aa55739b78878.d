/work/wt/me/bench-tools/release/deps/bench_relay-9a8aa55739b78878.d: relay/src/main.rs

/work/wt/me/bench-tools/release/deps/bench_relay-9a8aa55739b78878: relay/src/main.rs

relay/src/main.rs:
