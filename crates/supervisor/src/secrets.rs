//! Private keys on their way to the worker: in memory of the system that both processes have a descriptor of, never in a message
//! and never in a file.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use balanza_config::Secrets;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use zeroize::Zeroizing;

/// Writes secrets where a worker can read them by the descriptor, and nobody can change them; none without secrets.
///
/// # Errors
/// No memory or no descriptors are left.
pub fn store(secrets: &Secrets) -> io::Result<Option<OwnedFd>> {
    if secrets.is_empty() {
        return Ok(None);
    }
    let mut file = File::from(memfd_create("secrets", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?);
    file.write_all(&secrets.encode())?;
    let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(Some(file.into()))
}

/// Reads what [`store`] has written, as often as a worker starts.
///
/// # Errors
/// Something else has written it.
pub fn read(descriptor: OwnedFd) -> io::Result<Secrets> {
    let file = File::from(descriptor);
    let length = file.metadata()?.len();
    let mut bytes = Zeroizing::new(vec![0; usize::try_from(length).map_err(io::Error::other)?]);
    // The position is the other processes' as well.
    file.read_exact_at(&mut bytes, 0)?;
    Secrets::decode(&bytes)
}

#[cfg(test)]
mod tests {
    use balanza_config::{FileSystem, Recorder, Source};

    use super::*;

    #[test]
    fn a_worker_reads_what_the_supervisor_has_stored() {
        let key = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(key.path(), "a private key").unwrap();
        let recorder = Recorder::new(FileSystem);
        recorder.secret(key.path()).unwrap();
        let (_, secrets) = recorder.into_parts();
        let stored = store(&secrets).unwrap().unwrap();
        // Two workers, one after the other.
        for _ in 0..2 {
            assert_eq!(read(stored.try_clone().unwrap()).unwrap(), secrets);
        }
        assert!(File::from(stored).write_all(b"another").is_err(), "it is sealed");
        assert!(store(&Secrets::default()).unwrap().is_none());
    }
}
