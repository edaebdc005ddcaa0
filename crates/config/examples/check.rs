//! Reads a configuration and prints what is wrong with it: `cargo run -p balanza-config --example check -- FILE`.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(file) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: check FILE");
        return ExitCode::FAILURE;
    };
    let directory = std::env::current_dir().unwrap_or_default();
    let options = balanza_config::Options::new(&directory, directory.join(file)).with_process();
    let (config, problems) = balanza_config::load(&balanza_config::FileSystem, &options);
    for problem in &problems {
        eprint!("{}", problem.render(true));
    }
    if let Some(config) = &config
        && std::env::args().any(|argument| argument == "--dump")
    {
        println!("{config:#?}");
    }
    if config.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
