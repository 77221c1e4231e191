//! A private PostgreSQL, from Debian's package, with a superuser `postgres` who needs no password.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::guardian::{Guardian, directory, run};
use crate::support::Result;

/// As `initdb` configures it, so `fsync` and `synchronous_commit` are on.
pub(crate) fn postgres(port: u16) -> Result<Guardian> {
    let bin = newest_postgres()?;
    let directory = directory("postgres")?;
    let user = user_for_postgres(&directory)?;
    let data = directory.join("data").display().to_string();

    // A locale of the environment need not be there; and what `initdb` writes has to outlive no power failure.
    let alike = ["--no-locale", "-E", "UTF8", "--no-sync"];
    let options = [&["-A", "trust", "-U", "postgres", "-D", &data], &alike[..]].concat();
    let init = command(&user, &bin.join("initdb"), &options);
    run(Command::new(&init[0]).args(&init[1..]).current_dir("/").stdout(Stdio::null()))?;

    let port_option = port.to_string();
    let options = ["-D", &data, "-p", &port_option, "-h", "127.0.0.1", "-k", "", "-N", "300"];
    let serve = command(&user, &bin.join("postgres"), &options);
    Guardian::start("PostgreSQL", port, "QUIT", &directory, &serve)
}

/// What makes a command one of the user `postgres`, where this is root: PostgreSQL refuses that.
fn user_for_postgres(directory: &Path) -> Result<Vec<&'static str>> {
    if Command::new("id").arg("-u").output()?.stdout != b"0\n" {
        return Ok(Vec::new());
    }
    run(Command::new("chown").arg("postgres:postgres").arg(directory))?;
    Ok(vec!["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"])
}

fn command(before: &[&str], program: &Path, options: &[&str]) -> Vec<String> {
    let program = program.display().to_string();
    [before, &[&*program], options].concat().into_iter().map(str::to_owned).collect()
}

fn newest_postgres() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .map_err(|e| format!("PostgreSQL is not installed: {e}"))?;
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.filter_map(|entry| Some(entry.ok()?.path())).max_by_key(number);
    Ok(newest.ok_or("PostgreSQL is not installed")?.join("bin"))
}
