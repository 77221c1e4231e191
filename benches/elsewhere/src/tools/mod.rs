//! Who is measured.

mod etcd;
mod postgres;
mod redlatch;
mod rows;

use std::path::Path;

use crate::crew::{Contestant, Part};
use crate::servers::{Sites, java};
use crate::support::Result;
use crate::worker::serve as work;

use self::etcd::{Compared, Plain as Etcd};
use self::postgres::{Advisory, ForUpdate, OneUpdate, UniqueRow, Version};
use self::redlatch::{Fair, Fenced, Plain};

pub(crate) use rows::prepare as prepare_postgres;

/// The first one is what all others are compared with.
const RUST: &[(&str, Part)] = &[
    ("plain", Part::Lock),
    ("fenced", Part::Lock),
    ("fair", Part::Lock),
    ("one UPDATE", Part::Statement),
    ("version column", Part::Optimistic),
    ("FOR UPDATE", Part::Lock),
    ("advisory lock", Part::Lock),
    ("advisory lock, other session writes", Part::LateWrite),
    ("unique row", Part::Lock),
    ("etcd", Part::Lock),
    ("etcd, compared", Part::Lock),
    ("no lock", Part::Control),
];

const CURATOR: &[(&str, &str)] = &[("ZooKeeper", "plain"), ("ZooKeeper, checked", "checked")];

/// A worker with that tool.
pub(crate) async fn serve(name: &str, sites: &Sites) -> Result<()> {
    match name {
        "plain" => work::<Plain>(sites).await,
        "fenced" => work::<Fenced>(sites).await,
        "fair" => work::<Fair>(sites).await,
        "one UPDATE" => work::<OneUpdate>(sites).await,
        "version column" => work::<Version>(sites).await,
        "FOR UPDATE" => work::<ForUpdate>(sites).await,
        "advisory lock" => work::<Advisory<true>>(sites).await,
        "advisory lock, other session writes" => work::<Advisory<false>>(sites).await,
        "unique row" => work::<UniqueRow>(sites).await,
        "etcd" => work::<Etcd>(sites).await,
        "etcd, compared" => work::<Compared>(sites).await,
        "no lock" => work::<rows::Unlocked>(sites).await,
        _ => Err(format!("nobody is called {name}").into()),
    }
}

/// Those of ZooKeeper are Java, which Maven built in that directory.
pub(crate) fn all(curator: Option<&Path>) -> Result<Vec<Contestant>> {
    let program = std::env::current_exe()?.display().to_string();
    let rust = RUST.iter().map(|(name, part)| {
        let command = vec![program.clone(), "--worker".into(), (*name).into()];
        Contestant { name, command, part: *part }
    });
    let mut all: Vec<_> = rust.collect();
    let Some(target) = curator else { return Ok(all) };
    let classes = format!("{0}/contestant.jar:{0}/lib/*", target.display());
    let control = all.pop();
    all.extend(CURATOR.iter().map(|(name, tool)| {
        let words = [java(), "-cp".into(), classes.clone(), "bench.Contestant".into()];
        let command = words.into_iter().chain([(*tool).into()]).collect();
        Contestant { name, command, part: Part::Lock }
    }));
    all.extend(control);
    Ok(all)
}
