//! Runs on a cluster: a Python program hands them to Dask's scheduler.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail, ensure};
use balanza_sweep::{Record, Unit};

const PACKAGE: &str = "balanza_sweep";

/// Reads the address of a cluster, as Dask writes it.
pub fn address(text: &str) -> Result<String, String> {
    let place = text.strip_prefix("dask://").filter(|place| {
        place.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
    });
    place
        .map(|place| format!("tcp://{place}"))
        .ok_or_else(|| "use dask://HOST:PORT, with Dask's scheduler there".into())
}

/// A cluster, and how it is reached.
pub struct Cluster<'a> {
    pub address: &'a str,
    /// The Python with the package.
    pub python: &'a Path,
    /// This program on the workers, if it is not where it is here.
    pub binary: Option<&'a Path>,
}

impl Cluster<'_> {
    /// Performs the units there. `finished` gets the records as they come.
    ///
    /// Errors: the package is missing, the cluster cannot be used, or some runs failed; the others have been finished.
    pub fn perform(
        &self,
        count: usize,
        unit: impl Fn(usize) -> Unit + Sync,
        mut finished: impl FnMut(Record) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut child = self.start()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (mut units, records) = pipes.context("Python has no pipes")?;
        let (unit, mut left) = (&unit, count);
        let result = std::thread::scope(|scope| {
            // It reads all before it writes, unless it fails; then it says why.
            scope.spawn(move || {
                let mut line = |at| writeln!(units, "{}", serde_json::to_string(&unit(at))?);
                (0..count).try_for_each(&mut line)
            });
            BufReader::new(records).lines().try_for_each(|line| {
                let line = line?;
                let record = serde_json::from_str(&line).with_context(|| format!("no record of a run: {line}"))?;
                left = left.saturating_sub(1);
                finished(record)
            })
        });
        if result.is_err() {
            let _ = child.kill();
        }
        let status = child.wait()?;
        result?;
        if left > 0 {
            bail!("{left} of {count} runs are missing; the same command goes on with them");
        }
        ensure!(status.success(), "{} ended with {status}", self.python.display());
        Ok(())
    }

    fn start(&self) -> anyhow::Result<Child> {
        let python = self.python.display();
        let test = Command::new(self.python).arg("-c").arg(format!("import {PACKAGE}")).output();
        let test = test.with_context(|| format!("{python} does not start; --python names another one"))?;
        if !test.status.success() {
            let why = String::from_utf8_lossy(&test.stderr);
            let why = why.lines().last().unwrap_or_default().to_string();
            bail!(
                "{python} cannot use {PACKAGE} ({why}): install it with \"pip install ./python\", or name another Python with --python"
            );
        }
        let here: PathBuf = std::env::current_exe().context("the path of this program is unknown")?;
        let mut command = Command::new(self.python);
        command.args(["-m", PACKAGE, "--units", "--scheduler", self.address]).arg("--balanza").arg(&here);
        command.arg("--worker-balanza").arg(self.binary.unwrap_or(&here));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        child.with_context(|| format!("{python} does not start"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(address("dask://10.0.0.1:8786"), Ok("tcp://10.0.0.1:8786".into()));
        assert_eq!(address("dask://[::1]:1"), Ok("tcp://[::1]:1".into()));
        for wrong in ["10.0.0.1:8786", "dask://host", "dask://:1", "dask://host:x", "tcp://host:1"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
