//! The architecture, at a glance and enforced: which module may use which, who may name the driver,
//! what can be sent between threads, and how long a file may be. Inside a module, see `cycles`.

#[path = "structure/cycles.rs"]
mod cycles;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redlatch::kind::{LockKind, ReadWriteKind};
use redlatch::{
    Error, ErrorKind, FairLock, FencedFairLock, FencedLock, FencedLockGuard, FencedReadGuard,
    FencedReadWriteLock, FencedWriteGuard, FencingToken, Health, Holder, Inspection, Lease, Lock,
    LockClient, LockClientBuilder, LockGuard, Locks, Loss, MultiGuard, MultiLock, Outcome,
    ReadGuard, ReadWriteLock, Shutdown, Stats, WriteGuard,
};

/// Each module, and what of the crate it may use. Arrows point down, but for the two pairs in one
/// row: a client makes its builder and a builder its client, a lock makes its guards.
const MODULES: &[(&str, &str)] = &[
    ("lib", "builder client engine error guard guide inspection lease lock read_write stats token"),
    // A Redis in the process, with the feature `test-util`.
    ("test_util", "client builder simulation protocol lease"),
    // Public entry.
    ("client", "builder lock read_write stats inspection engine error"),
    ("builder", "metrics client engine transport simulation lease error events config host"),
    ("stats", "engine clock"),
    ("inspection", "engine protocol peer token error"),
    // Public handle and guard.
    ("lock", "guard acquire join engine handle possession protocol kind lease spans clock error"),
    (
        "read_write",
        "guard acquire engine handle possession protocol kind lease process token spans clock \
         error",
    ),
    (
        "guard",
        "metrics host join ready engine releaser handle possession protocol lease token spans \
         clock error",
    ),
    // The one loop, and what the modules of one client share.
    (
        "acquire",
        "metrics host join peer engine wait releaser handle token possession protocol lease \
         config spans clock error events",
    ),
    (
        "engine",
        "kind metrics host reclaim releaser handle handoff loss peer possession wait watchdog \
         signal protocol transport config lease process clock error events",
    ),
    // How a lock is given back: again, to Redis, or to the next of this client.
    ("reclaim", "host releaser handoff protocol transport backoff clock error"),
    (
        "releaser",
        "sweep host handoff wait handle possession protocol transport lease config ready spans backoff \
         clock error",
    ),
    (
        "handoff",
        "wait released loss possession protocol transport config backoff clock error events",
    ),
    // A renewal that finds a key gone wakes the waiters, like every other request that does.
    (
        "watchdog",
        "sweep stamp host join loss handle possession protocol transport lease config clock sync error \
         events",
    ),
    ("loss", "wait possession clock error events"),
    (
        "wait",
        "sweep host handle possession protocol transport lease backoff config clock sync token error",
    ),
    ("released", "host protocol transport"),
    // Who may nest, what the client has in Redis, what the wire says, and the way to Redis.
    ("handle", "sweep possession protocol kind lease"),
    ("possession", "sweep stamp host protocol kind lease token events config metrics clock error"),
    ("protocol", "host transport join peer lease config metrics clock slot token error"),
    ("transport", "host signal backoff config metrics slot clock ready error events"),
    ("simulation", "host slot clock"),
    // Leaves.
    ("backoff", ""),
    ("sweep", "host"),
    ("spans", "clock error"),
    ("lease", "stamp clock error"),
    ("events", "metrics kind error host"),
    ("config", "metrics error"),
    // With the feature of that name; else it is empty.
    ("metrics", "host clock kind process error"),
    ("clock", "host sync"),
    ("stamp", ""),
    ("peer", "host"),
    ("host", ""),
    ("signal", ""),
    ("sync", ""),
    ("process", ""),
    ("slot", ""),
    ("ready", ""),
    ("join", ""),
    ("kind", "token"),
    ("token", ""),
    ("error", ""),
    ("guide", ""),
];

/// Who may name the `redis` crate: the wire, the address in the public options, the source of an error,
/// and the commands that a guard executes.
const DRIVER: &[&str] =
    &["host", "simulation", "test_util", "transport", "protocol", "builder", "error", "guard"];

/// What the tests of several modules use: only tests may use it.
const TESTS: &str = "tests";

const LONGEST_FILE: usize = 400;

struct File {
    /// Below `src`.
    path: String,
    text: String,
}

impl File {
    /// The top-level module that it belongs to.
    fn module(&self) -> &str {
        self.path.split(['/', '.']).next().unwrap()
    }

    fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs") || format!("/{}", self.path).contains("/tests/")
    }

    /// Its path as a module, as in `transport::cluster::map`.
    fn path_of_module(&self) -> String {
        self.path.trim_end_matches(".rs").replace('/', "::")
    }

    /// Whether its header has that word.
    fn says(&self, wanted: &str) -> bool {
        let header = self.text.lines().take_while(|line| line.starts_with("//!"));
        let mut words = header.flat_map(|line| line.split(|c: char| !c.is_alphanumeric()));
        words.any(|word| word == wanted)
    }

    /// Its lines without comments, and without the tests at its end.
    fn code(&self) -> impl Iterator<Item = &str> {
        let lines = self.text.lines().take_while(|line| *line != "mod tests {");
        lines.map(|line| line.split("//").next().unwrap())
    }
}

fn sources() -> Vec<File> {
    below("src")
}

/// The Rust files below a folder.
fn below(folder: &str) -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let (mut files, mut folders) = (Vec::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of sources") {
            let path: PathBuf = entry.expect("an entry").path();
            if path.is_dir() {
                // A package of its own has what it builds beside its sources.
                if !path.ends_with("target") {
                    folders.push(path);
                }
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let below = path.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/");
            files.push(File { path: below, text: fs::read_to_string(&path).expect("UTF-8") });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn word(text: &str) -> &str {
    text.split(|c: char| c != '_' && !c.is_alphanumeric()).next().unwrap()
}

/// What of the crate a file names: after `crate::`, alone or in braces, and, in the root, what it
/// re-exports. Inside `super::` a module is alone with itself.
fn used(file: &File) -> BTreeSet<String> {
    let code: String = file.code().collect::<Vec<_>>().join("\n");
    let paths = cycles::paths(&code, "crate::");
    let mut used: BTreeSet<_> = paths.iter().map(|path| word(path).to_owned()).collect();
    if file.path == "lib.rs" {
        let exported = code.lines().filter_map(|line| line.strip_prefix("pub use "));
        // The driver is no module.
        let modules = exported.map(word).filter(|name| *name != "redis");
        used.extend(modules.map(str::to_owned));
    }
    used
}

/// Whether arrows lead from one module to the other.
fn is_below(modules: &BTreeMap<&str, Vec<&str>>, from: &str, to: &str) -> bool {
    modules.get(from).is_some_and(|direct| {
        direct.contains(&to)
            || direct.iter().any(|next| *next != "builder" && is_below(modules, next, to))
    })
}

#[test]
fn arrows_point_down_only() {
    let modules = MODULES.iter().map(|(module, used)| (*module, used.split_whitespace().collect()));
    let modules: BTreeMap<&str, Vec<&str>> = modules.collect();
    let mut seen: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let files = sources();
    for file in files.iter().filter(|file| file.module() != TESTS) {
        let module = file.module();
        let allowed = modules.get(module).unwrap_or_else(|| panic!("{module} is not in the table"));
        for other in used(file) {
            if other == TESTS && (file.is_test() || module == "sync") {
                continue;
            }
            let known = modules.contains_key(&*other);
            assert!(known, "src/{}: `crate::{other}` is not a module", file.path);
            // A test may use whatever is below.
            let below = file.is_test() && is_below(&modules, module, &other);
            let fits = other == module || allowed.contains(&&*other) || below;
            assert!(fits, "src/{}: {module} may not use {other}", file.path);
            if !file.is_test() {
                seen.entry(module).or_default().insert(other);
            }
        }
    }
    for (module, allowed) in MODULES {
        for other in allowed.split_whitespace() {
            let needed = seen.get(module).is_some_and(|seen| seen.contains(other));
            assert!(needed, "{module} does not use {other}: take the arrow out of the table");
        }
    }
}

#[test]
fn the_table_of_modules_has_no_cycle_but_its_two_rows() {
    for (at, (module, allowed)) in MODULES.iter().enumerate() {
        for other in allowed.split_whitespace() {
            let to = MODULES.iter().position(|(module, _)| *module == other).expect("a module");
            let upwards = to < at && (*module, other) != ("builder", "client");
            assert!(!upwards, "{module} -> {other} points up");
        }
    }
}

#[test]
fn a_module_is_left_by_crate_and_never_by_super() {
    for file in sources() {
        let is_module = !file.path.contains('/');
        let own =
            |line: &str| line.contains("super::") && (is_module || line.contains("super::super::"));
        let line = file.code().find(|line| own(line));
        assert!(file.is_test() || line.is_none(), "src/{}: {line:?}", file.path);
    }
}

#[test]
fn only_few_modules_name_the_driver() {
    let files = sources();
    for file in files.iter().filter(|file| !file.is_test()) {
        let names = file.code().find(|line| {
            line.match_indices("redis::").any(|(at, _)| !line[..at].ends_with(['_', ':']))
        });
        let may = DRIVER.contains(&file.module());
        assert!(may || names.is_none(), "src/{}: {names:?}", file.path);
    }
    for module in DRIVER {
        let mut of_module = files.iter().filter(|file| file.module() == *module);
        assert!(of_module.any(|file| file.text.contains("redis::")), "{module} needs no driver");
    }
}

/// What only the machine may say: see `src/host.rs`. The clock has the timers of the real one, and all
/// time comes from that clock.
const MACHINE: &[&str] = &[
    "Instant::now",
    ".elapsed()",
    "SystemTime",
    "::sleep",
    "::timeout",
    "tokio::time",
    "std::thread::Builder",
    "thread::spawn",
    "std::collections::HashMap",
    "collections::HashSet",
    "RandomState",
    "new_v4",
    "get_multiplexed",
    "Handle::current",
    // It wakes its receivers in a random order: see `src/signal.rs`.
    "watch::Receiver",
    "std::net",
    "tokio::net",
];

/// How a task may be spawned: on the machine, and in the runtime, of its spawner.
const SPAWNS: &[&str] = &["here(", "fn spawn", "runtime.spawn(", " spawn("];

#[test]
fn only_the_machine_has_time_threads_connections_and_random_numbers() {
    let files = sources();
    let others = files
        .iter()
        .filter(|file| !["host", "clock", "simulation", TESTS].contains(&file.module()));
    for file in others.filter(|file| !file.is_test()) {
        for word in MACHINE {
            let line = file.code().find(|line| line.replace("clock::", "").contains(word));
            assert_eq!(line, None, "src/{}", file.path);
        }
        for line in file.code().filter(|line| line.contains("spawn(")) {
            let stays = SPAWNS.iter().any(|way| line.contains(way));
            assert!(stays, "src/{}: {line}", file.path);
        }
        // Another order of the branches would be another run.
        let code: Vec<_> = file.code().filter(|line| !line.trim().is_empty()).collect();
        for two in code.windows(2).filter(|two| two[0].contains("select! {")) {
            assert!(two[1].contains("biased;"), "src/{}: {}", file.path, two[1]);
        }
    }
}

/// What no pure file may say: that it waits, looks at a clock, or talks to somebody.
const IMPURE: &[&str] = &[
    ".await",
    "async ",
    "spawn(",
    "::sleep",
    "clock::",
    "Instant::now",
    "SystemTime",
    "redis::cmd",
    "redis::aio",
    "redis::Client",
    "std::net",
    "std::fs",
    "std::io",
    ".notify_",
];

#[test]
fn a_file_that_says_it_is_pure_neither_waits_nor_looks_at_a_clock_nor_talks_to_anybody() {
    let mut pure = 0;
    for file in sources().iter().filter(|file| !file.is_test() && file.says("pure")) {
        pure += 1;
        for word in IMPURE {
            let line = file.code().find(|line| line.contains(word));
            assert_eq!(line, None, "src/{} is pure", file.path);
        }
    }
    assert!(pure >= 5, "only {pure} found: is this test blind?");
}

/// The paths in a line, each in backquotes, as `src/lease.rs` and `src/{lease,token}.rs`.
fn paths(line: &str) -> impl Iterator<Item = String> {
    let quoted = line.split('`').skip(1).step_by(2).filter(|quoted| {
        let below = ["src/", "lua/", "tests/"].iter().any(|folder| quoted.starts_with(folder));
        below && !quoted.contains(['*', '<', ' '])
    });
    quoted.flat_map(|quoted| match quoted.split_once(['{', '}']) {
        None => vec![quoted.to_owned()],
        Some((before, rest)) => {
            let (each, after) = rest.split_once('}').expect("a brace that is closed");
            each.split(',').map(|one| format!("{before}{one}{after}")).collect()
        }
    })
}

#[test]
fn every_file_that_a_comment_or_a_page_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts: Vec<(String, String)> = Vec::new();
    for folder in ["src", "tests", "benches", "examples"] {
        for file in below(folder) {
            let comments = file.text.lines().filter_map(|line| line.split_once("//"));
            let comments: Vec<_> = comments.map(|(_, comment)| comment).collect();
            texts.push((format!("{folder}/{}", file.path), comments.join("\n")));
        }
    }
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "src/guide/promises.md"] {
        texts.push((page.to_owned(), fs::read_to_string(root.join(page)).expect("UTF-8")));
    }
    let named = texts.iter().flat_map(|(text, words)| {
        words.lines().flat_map(paths).map(move |path| (text.as_str(), path))
    });
    let named: Vec<_> = named.collect();
    let missing: Vec<_> = named.iter().filter(|(_, path)| !root.join(path).exists()).collect();
    assert!(missing.is_empty(), "named, and not there: {missing:#?}");
    assert!(named.len() > 30, "only {} found: is this test blind?", named.len());
}

/// Such as `Waiters::bring_entry`: a type, and a function or a field of it.
#[test]
fn every_function_that_the_page_on_the_architecture_names_is_there() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    let page = fs::read_to_string(page).expect("UTF-8");
    let named: Vec<_> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|quoted| quoted.split_once("::"))
        .filter(|(of, name)| {
            of.starts_with(char::is_uppercase) && name.starts_with(char::is_lowercase)
        })
        .collect();
    let files = sources();
    let has = |text: &str| files.iter().any(|file| file.code().any(|line| line.contains(text)));
    let missing = named.iter().filter(|(of, name)| {
        let starts = ["(", "<"].iter().any(|next| has(&format!("fn {name}{next}")));
        !has(of) || !starts && !has(&format!("{name}: "))
    });
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "named, and not there: {missing:?}");
    assert!(named.len() > 20, "only {} found: is this test blind?", named.len());
}

#[test]
fn the_versions_on_the_page_of_questions_are_those_that_tests_have() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("UTF-8");
    let page = read("src/guide/faq.md");
    let says = |what: String| assert!(page.contains(&what), "the page does not say: {what}");
    // The list of those that begin with a word, in a file of tests.
    let list = |path: &str, begin: &str| -> Vec<String> {
        let text = read(path);
        let line = text.lines().find(|line| line.starts_with(begin)).expect("a list");
        line.split('"').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let servers = list("tests/versions/run", "TESTED = ");
    let (valkey, redis): (Vec<_>, Vec<_>) =
        servers.iter().partition(|version| version.starts_with("valkey-"));
    let redis: Vec<_> = redis.into_iter().map(String::as_str).collect();
    let valkey: Vec<_> =
        valkey.into_iter().filter_map(|name| name.strip_prefix("valkey-")).collect();
    says(format!("Redis {}; Valkey {} |", redis.join(", "), valkey.join(", ")));
    let minor = |version: &String| version.rsplit_once('.').expect("a patch").0.to_owned();
    let mut redisson: Vec<_> =
        list("tests/redisson/main.rs", "const VERSIONS").iter().map(minor).collect();
    let newest = redisson.remove(0);
    redisson.reverse();
    says(format!("Redisson {} and {newest}", redisson.join(", ")));
    says(format!("Rust {} or newer", env!("CARGO_PKG_RUST_VERSION")));
    says(format!("{} is the first one", env!("CARGO_PKG_VERSION")));
}

#[test]
fn what_the_client_logs_above_debug_is_in_one_file() {
    for file in sources().iter().filter(|file| !file.is_test()) {
        let levels = ["::info!", "::warn!", "::error!", "::Level"];
        let line = file.code().find(|line| levels.iter().any(|level| line.contains(level)));
        assert_eq!(line.is_some(), file.path == "events.rs", "src/{}: {line:?}", file.path);
    }
}

#[test]
fn every_public_type_has_an_example() {
    let mut types = 0;
    // The simulation is hidden from the documentation: `test_util` is the part for users.
    for file in sources().iter().filter(|file| !file.is_test() && file.module() != "simulation") {
        let lines: Vec<&str> = file.text.lines().collect();
        let words = ["pub struct ", "pub enum ", "pub type ", "pub trait "];
        let public = |line: &str| words.iter().any(|word| line.starts_with(word));
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| public(line)) {
            types += 1;
            let above = lines[..at].iter().rev();
            let mut docs =
                above.take_while(|line| line.starts_with("///") || line.starts_with('#'));
            let has_one = docs.any(|line| line.trim_end() == "/// # Examples");
            assert!(has_one, "src/{}: {line}", file.path);
        }
    }
    assert!(types >= 18, "only {types} found: is this test blind?");
}

#[test]
fn no_file_is_longer_than_a_reader_bears() {
    for file in sources() {
        let lines = file.text.lines().count();
        assert!(lines <= LONGEST_FILE, "src/{} has {lines} lines", file.path);
    }
}

#[test]
fn what_a_test_build_replaces_is_in_one_file() {
    for file in sources().iter().filter(|file| file.path != "sync.rs") {
        let lines: Vec<_> = file.text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.contains("cfg(test)")) {
            let next = lines.get(at + 1).copied().unwrap_or_default();
            let is_tests = *line == "#[cfg(test)]" && next.starts_with("mod tests");
            assert!(is_tests, "src/{}:{}: {line} {next}", file.path, at + 1);
        }
        let replaced =
            lines.iter().find(|line| line.contains("cfg(not(test") || line.contains("(test,"));
        assert_eq!(replaced, None, "src/{}", file.path);
    }
}

/// The public methods of a file that a caller awaits, each with its documentation.
fn awaited(file: &File) -> Vec<(String, String)> {
    let (mut found, mut docs) = (Vec::new(), String::new());
    for line in file.text.lines().map(str::trim) {
        if let Some(doc) = line.strip_prefix("///") {
            docs += doc.trim();
            docs.push('\n');
        } else if let Some(name) = line.strip_prefix("pub async fn ") {
            found.push((word(name).to_owned(), std::mem::take(&mut docs)));
        } else if !line.starts_with("#[") {
            docs.clear();
        }
    }
    found
}

#[test]
fn every_call_that_is_awaited_says_what_a_cancellation_costs_and_when_it_panics() {
    let mut calls = 0;
    for file in sources() {
        for (name, docs) in awaited(&file) {
            calls += 1;
            let said = docs.split_once("# Cancel safety\n").map(|(_, said)| said.trim());
            let says = said.is_some_and(|said| said.len() > 20);
            assert!(says, "src/{}: {name} has no `# Cancel safety` section", file.path);
            let panics = docs.contains("\n# Panics\n");
            assert!(panics, "src/{}: {name} has no `# Panics` section", file.path);
        }
    }
    assert!(calls >= 15, "only {calls} found: is this test blind?");
}

fn is_shared<T: Send + Sync + Unpin + 'static>() {}

fn can_be_spawned<F: Future + Send>(_: F) {}

#[test]
fn every_public_type_can_be_shared_between_threads_and_outlives_its_maker() {
    is_shared::<LockClient>();
    is_shared::<LockClientBuilder>();
    is_shared::<Lock>();
    is_shared::<LockGuard>();
    is_shared::<FairLock>();
    is_shared::<FencedFairLock>();
    is_shared::<FencedLock>();
    is_shared::<FencedLockGuard>();
    is_shared::<ReadWriteLock>();
    is_shared::<ReadGuard>();
    is_shared::<WriteGuard>();
    is_shared::<FencedReadWriteLock>();
    is_shared::<FencedReadGuard>();
    is_shared::<FencedWriteGuard>();
    is_shared::<FencingToken>();
    is_shared::<Lease>();
    is_shared::<Error>();
    is_shared::<ErrorKind>();
    is_shared::<Outcome>();
    is_shared::<Loss>();
    is_shared::<Inspection>();
    is_shared::<Holder>();
    is_shared::<Locks>();
    is_shared::<MultiLock>();
    is_shared::<MultiGuard>();
    is_shared::<Stats>();
    is_shared::<Health>();
    is_shared::<Shutdown>();
    #[cfg(feature = "test-util")]
    is_shared::<redlatch::test_util::Redis>();
}

/// Compiled and never run: there is no server.
#[expect(dead_code, reason = "that it compiles is the test")]
fn every_future_can_be_spawned(client: LockClient, lock: &'static Lock, guard: LockGuard) {
    const SECOND: Duration = Duration::from_secs(1);
    can_be_spawned(LockClient::connect("redis://127.0.0.1/"));
    can_be_spawned(LockClient::builder().connect());
    let closed = client.clone();
    can_be_spawned(async move { closed.close().await });
    let inspects = client.clone();
    can_be_spawned(async move { inspects.inspect("name").await });
    can_be_spawned(async move { client.shutdown(Duration::ZERO).await });
    can_be_spawned(lock.lock());
    can_be_spawned(lock.lock_with_lease(SECOND));
    can_be_spawned(lock.try_lock(SECOND, SECOND));
    can_be_spawned(lock.try_lock(SECOND, Lease::Watchdog));
    can_be_spawned(lock.try_lock_now());
    can_be_spawned(lock.is_locked());
    can_be_spawned(lock.is_held());
    can_be_spawned(lock.hold_count());
    can_be_spawned(lock.remaining_lease());
    can_be_spawned(lock.force_unlock());
    can_be_spawned(lock.with(async |guard| guard.lost().await));
    can_be_spawned(lock.try_with(SECOND, SECOND, async |guard| guard.lost().await));
    can_be_spawned(async move {
        guard.lost().await;
        let _ = guard.run_until_lost(async {}).await;
        let _ = guard.extend(SECOND).await;
        let _: Result<(), Error> = guard.execute(&redlatch::redis::pipe()).await;
        guard.unlock().await
    });
}

/// Compiled and never run: there is no server.
#[expect(dead_code, reason = "that it compiles is the test")]
fn every_future_of_a_read_write_lock_can_be_spawned<K: ReadWriteKind>(
    lock: &'static ReadWriteLock<K>,
    reading: ReadGuard<K>,
    writing: WriteGuard<K>,
) {
    const SECOND: Duration = Duration::from_secs(1);
    can_be_spawned(lock.read());
    can_be_spawned(lock.write());
    can_be_spawned(lock.read_with_lease(SECOND));
    can_be_spawned(lock.write_with_lease(SECOND));
    can_be_spawned(lock.try_read(SECOND, Lease::Watchdog));
    can_be_spawned(lock.try_write(SECOND, SECOND));
    can_be_spawned(lock.try_read_now());
    can_be_spawned(lock.try_write_now());
    can_be_spawned(lock.is_read_locked());
    can_be_spawned(lock.is_write_locked());
    can_be_spawned(lock.force_unlock());
    can_be_spawned(async move {
        reading.lost().await;
        let _ = reading.run_until_lost(async {}).await;
        let _ = writing.extend(SECOND).await;
        let _ = reading.try_upgrade().await;
        let reading = writing.downgrade().await?;
        reading.unlock().await
    });
}

/// What a program keeps: no type needs a parameter.
struct Kept {
    locks: (Lock, FairLock, FencedLock, FencedFairLock),
    guards: Vec<LockGuard>,
    fenced: Option<FencedLockGuard>,
}

impl Kept {
    fn new(client: &LockClient) -> Self {
        let lock: Lock = client.lock("a");
        let fenced: FencedLock = client.fenced_lock("a");
        let locks = (lock, client.fair_lock("a"), fenced, client.fenced_fair_lock("a"));
        Self { locks, guards: Vec::new(), fenced: None }
    }

    /// The guard of a fair lock is that of a plain one, and those of the fenced locks are of one type.
    async fn acquire(&mut self) -> Result<Option<FencingToken>, Error> {
        const SECOND: Duration = Duration::from_secs(1);
        let (lock, fair, fenced, fenced_fair) = &self.locks;
        self.guards = vec![lock.lock().await?, fair.lock_with_lease(SECOND).await?];
        self.guards.extend(FairLock::try_lock_now(fair).await?);
        self.fenced = Some(FencedLock::lock(fenced).await?);
        let other: Option<FencedLockGuard> = fenced_fair.try_lock(SECOND, SECOND).await?;
        fair.with(async |_: &LockGuard| ()).await?;
        fenced.with(async |guard: &FencedLockGuard| guard.token()).await?;
        fenced_fair.try_with(SECOND, SECOND, async |guard| guard.token()).await?;
        let lost = self.guards.iter().all(LockGuard::is_lost) || lock.clone().is_held().await?;
        Ok(other.as_ref().map(FencedLockGuard::token).filter(|_| lost))
    }
}

/// Code that does not care which kind it is.
async fn any_kind<K: LockKind>(lock: Lock<K>) -> Result<(), Error> {
    let guard = lock.lock().await?;
    lock.with(async |inner| inner.lost().await).await?;
    println!("{lock:?} {guard:?}");
    LockGuard::unlock(guard).await
}

async fn any_read_write_kind<K: ReadWriteKind>(lock: ReadWriteLock<K>) -> Result<(), Error> {
    let guard: ReadGuard<K> = lock.write().await?.downgrade().await?;
    println!("{lock:?} {guard:?}");
    guard.unlock().await
}

/// What a program keeps of read-write locks: no type needs a parameter.
async fn kept_sides(client: LockClient) -> Result<Option<FencingToken>, Error> {
    let plain: ReadWriteLock = client.read_write_lock("a");
    let fenced: FencedReadWriteLock = client.fenced_read_write_lock("a");
    let _: (ReadGuard, WriteGuard) =
        (plain.read().await?, ReadWriteLock::write(&plain.clone()).await?);
    let writing: FencedWriteGuard = fenced.write().await?;
    let token: FencingToken = writing.token();
    let reading: FencedReadGuard = fenced.read().await?;
    Ok(reading.token().filter(|last| *last == token))
}

/// Compiled and never run: there is no server.
#[expect(dead_code, reason = "that it compiles is the test")]
fn every_kind_can_be_used_alike(client: &LockClient) {
    can_be_spawned(any_read_write_kind(client.read_write_lock("a")));
    can_be_spawned(any_read_write_kind(client.fenced_read_write_lock("a")));
    can_be_spawned(kept_sides(client.clone()));
    let mut kept = Kept::new(client);
    can_be_spawned(any_kind(kept.locks.0.clone()));
    can_be_spawned(any_kind(kept.locks.1.clone()));
    can_be_spawned(any_kind(kept.locks.2.clone()));
    can_be_spawned(any_kind(kept.locks.3.clone()));
    can_be_spawned(async move { kept.acquire().await });
}

#[test]
fn the_table_of_futures_names_every_call_that_is_awaited() {
    let table = include_str!("structure.rs");
    for file in sources() {
        // The name of a delegated call is that of the call to which it leads.
        for (name, _) in awaited(&file).iter().filter(|(name, _)| !name.is_empty()) {
            let call = [".", "::"].iter().any(|dot| table.contains(&format!("{dot}{name}(")));
            assert!(call, "src/{}: can the future of {name} be spawned?", file.path);
        }
    }
}
