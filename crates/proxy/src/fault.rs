//! Faults for tests, at named places of the running program. Only builds with debug assertions have them.
//!
//! `BALANZA_FAULTS` names a directory. A file in it with the name of a place is one fault: the first thread that
//! reaches the place removes the file and does what it contains: `panic` or `stall SECONDS`.

/// A place where a test may ask for a fault.
#[inline(always)]
pub fn point(place: &str) {
    #[cfg(debug_assertions)]
    wanted::act(place);
    #[cfg(not(debug_assertions))]
    let _ = place;
}

#[cfg(debug_assertions)]
mod wanted {
    use std::path::PathBuf;
    use std::sync::OnceLock;
    use std::time::Duration;

    static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();

    pub fn act(place: &str) {
        let Some(directory) = DIRECTORY.get_or_init(|| std::env::var_os("BALANZA_FAULTS").map(PathBuf::from)) else {
            return;
        };
        let file = directory.join(place);
        let Ok(what) = std::fs::read_to_string(&file) else { return };
        // Only the thread whose removal succeeds acts.
        if std::fs::remove_file(&file).is_err() {
            return;
        }
        match what.trim().split_once(' ') {
            None => panic!("a test asked for this fault: {place}"),
            Some((_, seconds)) => std::thread::sleep(Duration::from_secs_f64(seconds.parse().unwrap_or(0.0))),
        }
    }
}
