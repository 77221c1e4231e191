//! Mutants: each is the library with one bug, and shows that a test or the hammer can go red. A
//! mutant is a file, its right text and its wrong text. It is never in the library itself, only in a
//! copy of it.
//!
//! ```sh
//! cargo test --test mutants                        # that each has its place in today's sources
//! cargo test --test mutants -- list                # their names
//! cargo test --test mutants -- write <directory>   # a copy of the project with all of them in it
//! tests/mutants/run                                # what catches each
//! ```
//!
//! All are in one copy. `BUG` in a wrong text stands for "the environment variable `REDLATCH_MUTANT`
//! names this mutant". A script has no `BUG` in it: the copy chooses its text when it runs. The copy
//! has `switch.rs` as its module `mutants`, for both.

mod table;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use libtest_mimic::{Arguments, Failed, Trial};

use table::mutants;

struct Mutant {
    bug: &'static str,
    /// Below the project's root.
    file: &'static str,
    right: &'static str,
    wrong: &'static str,
}

/// What a build of the library reads, and its tests.
const COPIED: [&str; 8] =
    ["Cargo.toml", "Cargo.lock", "README.md", "src", "lua", "tests", "examples", "benches"];

/// The module that only the copy has.
const SWITCH: &str = include_str!("switch.rs");

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [write, to] = &*args
        && write == "write"
    {
        return match write_copy(Path::new(to)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{to}: {error}");
                ExitCode::FAILURE
            }
        };
    }
    if args == ["list"] {
        mutants().for_each(|mutant| println!("{}", mutant.bug));
        return ExitCode::SUCCESS;
    }
    let trials = vec![
        Trial::test("every_mutant_has_its_place_and_a_name_of_its_own", have_places),
        Trial::test("a_test_that_exists_has_caught_each_mutant", are_caught),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn have_places() -> Result<(), Failed> {
    let mut names = BTreeSet::new();
    for Mutant { bug, file, right, wrong } in mutants() {
        let text = fs::read_to_string(root().join(file)).map_err(|error| error.to_string())?;
        let places = text.matches(right).count();
        if places != 1 {
            return Err(format!("{bug}: {places} places in {file} for:\n{right}").into());
        }
        let switched = wrong.contains("BUG") != file.ends_with(".lua");
        if right == wrong || !switched || !names.insert(bug) {
            return Err(format!("{bug}: changes nothing, has no switch, or is there twice").into());
        }
    }
    Ok(())
}

/// Looks only at names: `tests/mutants/run` runs the tests.
fn are_caught() -> Result<(), Failed> {
    let mut sources = String::new();
    for folder in ["src", "tests"] {
        read_all(&root().join(folder), &mut sources)?;
    }
    let bugs: BTreeSet<&str> = mutants().map(|mutant| mutant.bug).collect();
    let mut caught = BTreeSet::new();
    for line in include_str!("caught").lines() {
        let (bug, test) = line.split_once(' ').ok_or("a line without a test")?;
        let function = test.rsplit("::").next().unwrap_or(test);
        if !sources.contains(&format!("fn {function}(")) {
            return Err(format!("{bug}: there is no test {test}").into());
        }
        caught.insert(bug);
    }
    match bugs.symmetric_difference(&caught).next() {
        None => Ok(()),
        Some(bug) => Err(format!("{bug} is no mutant, or no test has caught it").into()),
    }
}

/// The text of all sources below that folder.
fn read_all(folder: &Path, to: &mut String) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read_all(&path, to)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            *to += &fs::read_to_string(&path)?;
        }
    }
    Ok(())
}

fn write_copy(to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for name in COPIED {
        copy(&root().join(name), &to.join(name))?;
    }
    let mut scripts = String::new();
    for Mutant { bug, file, right, wrong } in mutants() {
        if file.ends_with(".lua") {
            let text = format!("include_str!({:?})", format!("../{file}"));
            scripts += &format!("    ({bug:?}, {text}, {right:?}, {wrong:?}),\n");
            continue;
        }
        let switch = format!("crate::mutants::is_on({bug:?})");
        let places = replace(&to.join(file), right, &wrong.replace("BUG", &switch))?;
        if places != 1 {
            let message = format!("{bug}: {places} places, since another mutant is in {file}");
            return Err(io::Error::other(message));
        }
    }
    let table = format!("= &[\n{scripts}];");
    fs::write(to.join("src/mutants.rs"), SWITCH.replacen("= &[];", &table, 1))?;
    let lib = to.join("src/lib.rs");
    fs::write(&lib, fs::read_to_string(&lib)? + "mod mutants;\n")?;
    let read = "stringify!($name), str::to_owned)";
    let switched = "stringify!($name), crate::mutants::script)";
    match replace(&to.join("src/protocol/scripts.rs"), read, switched)? {
        1 => Ok(()),
        _ => Err(io::Error::other("where are the scripts made?")),
    }
}

/// Returns in how many places.
fn replace(path: &Path, right: &str, wrong: &str) -> io::Result<usize> {
    let text = fs::read_to_string(path)?;
    fs::write(path, text.replace(right, wrong))?;
    Ok(text.matches(right).count())
}

/// Without what the builds of parts have left behind.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        return fs::copy(from, to).map(drop);
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        if name != "target" {
            copy(&from.join(&name), &to.join(&name))?;
        }
    }
    Ok(())
}
