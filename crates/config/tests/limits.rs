//! What is too large, too deep or not a file is refused with an error that says so, in little time and memory.

use std::path::Path;

use balanza_config::{Bundle, Diagnostic, FileSystem, Options, Severity, load};

fn problems(files: &Bundle) -> Vec<Diagnostic> {
    let (config, problems) = load(files, &Options::new("/", "/nginx.conf"));
    assert_eq!(config.is_none(), problems.iter().any(|problem| problem.severity == Severity::Error));
    problems
}

fn of(text: impl Into<Vec<u8>>) -> Vec<Diagnostic> {
    let mut files = Bundle::default();
    files.add_file("/nginx.conf", text);
    problems(&files)
}

#[test]
fn errors_are_counted() {
    let unknown = of("events { } x;\n".to_owned() + &"x;\n".repeat(50_000));
    assert_eq!(unknown.len(), 1001);
    assert_eq!(unknown[999].message, "unknown directive \"x\"");
    assert_eq!(unknown[1000].message, "too many errors, only the first 1000 are shown");
    let lexical = of("}".repeat(50_000));
    assert_eq!(lexical.len(), 1001);
    assert_eq!(lexical[1000].message, "too many errors, only the first 1000 are shown");
    assert_eq!(of(";".repeat(3_000_000)).len(), 1001);
}

#[test]
fn warnings_do_not_stop_a_configuration() {
    let types: String = (0..1_501).map(|i| format!("a/b x{i}; a/b x{i}; ")).collect();
    let problems = of(format!("events {{ }} http {{ types {{ {types} }} server {{ listen 8080; }} }}"));
    assert_eq!(problems.len(), 1001);
    assert!(problems.iter().all(|problem| problem.severity == Severity::Warning));
    assert_eq!(problems[1000].message, "1501 warnings, only the first 1000 are shown");
}

#[test]
fn what_is_the_same_in_several_places_is_said_once() {
    let missing = "server { listen 8080; gzip_vary on; image_filter_buffer 1m; }\n".repeat(5_000);
    let mut problems = of(format!("events {{ }}\nhttp {{\n{missing} }}"));
    problems.retain(|problem| problem.message.contains("gzip_vary") || problem.message.contains("image_filter_buffer"));
    let lines = problems.iter().map(|problem| (problem.places, problem.place.as_ref().map(|place| place.line)));
    assert!(!problems.is_empty() && lines.into_iter().all(|line| line == (5_000, Some(3))), "{problems:?}");
}

#[test]
fn words_are_counted() {
    let problems = of("events { } ".to_owned() + &"x ".repeat(4_000_000));
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].message, "the configuration has more than 2000000 words");
    assert!(problems[0].hint.is_some());
    // A line of megabytes is not shown whole.
    assert!(problems[0].render(false).len() < 3_000);
    assert_eq!(problems[0].place.as_ref().unwrap().column, 12);
}

#[test]
fn long_lines_are_shown_around_the_place() {
    let problems = of("events { } ".to_owned() + &" ".repeat(100_000) + "nonsense;" + &" ".repeat(100_000));
    let place = problems[0].place.as_ref().unwrap();
    assert_eq!((place.line, place.column, place.length), (1, 100_012, 8));
    let text = problems[0].render(false);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[3].find("nonsense"), lines[4].find("^^^^^^^^"), "{text}");
    assert!(text.len() < 3_000);
}

#[test]
fn blocks_are_counted_across_files() {
    let mut files = Bundle::default();
    let nest = |inner: &str| format!("{}{inner}{}", "location / { ".repeat(60), "}".repeat(60));
    files.add_file("/nginx.conf", format!("events {{ }} http {{ server {{ {} }} }}", nest("include a;")));
    files.add_file("/a", nest("include b;"));
    files.add_file("/b", nest(""));
    let problems = problems(&files);
    assert!(problems.iter().any(|problem| problem.message == "blocks are nested too deeply"), "{problems:?}");
    assert!(of("x{".repeat(1_000_000)).iter().any(|problem| problem.message == "blocks are nested too deeply"));
}

#[test]
fn the_total_is_limited() {
    let mut files = Bundle::default();
    files.add_file("/nginx.conf", "events { } ".to_owned() + &"include large; ".repeat(100));
    files.add_file("/large", "#".repeat(10 << 20));
    let problems = problems(&files);
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].message, "the configuration is larger than 64 MB");
}

/// What is on the machine's disk. None of these may block or fill memory.
#[test]
fn only_regular_files_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    std::fs::File::create(at("large")).unwrap().set_len(1 << 40).unwrap();
    let not_regular = "(not a regular file)";
    let table = [
        (at("fifo"), not_regular),
        ("/dev/zero".into(), not_regular),
        ("/dev/null".into(), not_regular),
        (at("large"), "(27: File too large)"),
        (directory.path().to_path_buf(), "(21: Is a directory)"),
        (at("socket"), "(6: No such device or address)"),
    ];
    for (path, reason) in table {
        let message = format!("open() \"{}\" failed {reason}", path.display());
        let refused = |file: &Path| {
            let (config, problems) = load(&FileSystem, &Options::new(directory.path(), file));
            assert!(config.is_none());
            assert_eq!(problems[0].message, message);
            assert!(problems[0].hint.is_some() || problems[0].place.is_some());
        };
        refused(&path);
        std::fs::write(at("main"), format!("include {};", path.display())).unwrap();
        refused(&at("main"));
    }
}
