//! Which of x509-limbo's chains `--tls-client-ca` lets pass.
//!
//! usage: `limbo FOLDER`
//!
//! `cargo xtask conform limbo` runs it. Each case is a folder with the authorities, the chain that a
//! client shows, and the time in Unix seconds; a line says what becomes of it.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Duration;

use gannet_server::tls::clients::{Demand, Verifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("limbo FOLDER")?;
    for case in fs::read_dir(folder)? {
        let case = case?;
        let name = case.file_name();
        match accepted(&case.path()) {
            Ok(()) => println!("{} accepted", name.display()),
            Err(why) => println!("{} refused: {why}", name.display()),
        }
    }
    Ok(())
}

/// Reads the authorities as the server does at its start, and the chain as it does in a handshake.
fn accepted(case: &Path) -> Result<(), Box<dyn Error>> {
    let now: i64 = fs::read_to_string(case.join("now"))?.parse()?;
    let authorities = [case.join("authorities.pem")];
    let verifier = Verifier::read(&authorities, Demand::Required, now, &mut Vec::new())?;
    let verifier = verifier.ok_or("no authorities")?;
    let chain: Vec<_> =
        CertificateDer::pem_file_iter(case.join("chain.pem"))?.collect::<Result<_, _>>()?;
    let (leaf, others) = chain.split_first().ok_or("no certificate")?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.try_into()?));
    verifier.library().verify_client_cert(leaf, others, now)?;
    Ok(())
}
