//! The pictures in docs/simulator.md are those of the scenarios. `BALANZA_UPDATE_DOCS=1 cargo test` draws them.

mod common;

use std::path::Path;

use balanza_simulator::{Scenario, report};

use common::{ready, simulated};

const SHOWN: [&str; 6] =
    ["herd-after-reload", "cold-start", "gray-failure", "retry-storm", "metastable-collapse", "metastable-deadline"];

#[test]
fn pictures_are_those_of_the_scenarios() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = std::fs::read_to_string(docs.join("simulator.md")).unwrap();
    for name in SHOWN {
        // They show the first replication.
        let wanted = report::picture(&simulated(&Scenario { replications: 1, ..ready(name) }));
        let file = docs.join(format!("scenarios/{name}.svg"));
        if std::env::var_os("BALANZA_UPDATE_DOCS").is_some() {
            std::fs::write(&file, &wanted).unwrap();
        }
        assert!(page.contains(&format!("](scenarios/{name}.svg)")), "{name} is not shown");
        let found = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(found == wanted, "docs/scenarios/{name}.svg is not current: run BALANZA_UPDATE_DOCS=1 cargo test");
    }
}
