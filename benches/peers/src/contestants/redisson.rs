//! Redisson itself, where `benches/run` could build it: a Java program that understands the same
//! orders.

use std::path::Path;

use crate::harness::{Contestant, Sends};
use crate::support::Result;

/// From the directory that Maven built in, with that kind of lock.
pub(crate) fn redisson(target: &Path, kind: &str, name: &'static str) -> Result<Contestant> {
    let jar = target.join("contestant.jar");
    if !jar.is_file() {
        return Err(format!("{} is not there", jar.display()).into());
    }
    let separator = if cfg!(windows) { ";" } else { ":" };
    let mut classes = jar.into_os_string();
    classes.push(separator);
    classes.push(target.join("lib").join("*"));
    let java = match std::env::var_os("JAVA_HOME") {
        Some(home) => Path::new(&home).join("bin").join("java").into_os_string(),
        None => "java".into(),
    };
    let kind = format!("-Dkind={kind}").into();
    let command = vec![java, kind, "-cp".into(), classes, "bench.Contestant".into()];
    // It deletes a key of its own after each release, whose script deletes the lock and publishes.
    let sends = Sends { also: &["del"], called_with: &["publish"] };
    Ok(Contestant { name, command, sends })
}
