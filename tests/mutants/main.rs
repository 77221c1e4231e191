//! Mutants: each is the library with one bug, and shows that a test or the hammer can go red. A
//! mutant is a file, its right text and its wrong text. It is never in the library itself, only in a
//! copy of it.
//!
//! `table/*.diff` has them: a line with the name and the file, and a difference. The lines behind `-`
//! and ` ` are the right text, which is in the file exactly once, and those behind `+` and ` ` the wrong
//! one; the first and the last of them may be a part of a line. A line behind `#` is a comment. Where
//! the text has moved to another file, the entry needs that file's name, and nothing else.
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

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use libtest_mimic::{Arguments, Failed, Trial};

#[derive(Default)]
struct Mutant {
    name: String,
    /// Below the project's root.
    file: String,
    right: String,
    wrong: String,
}

fn mutants() -> io::Result<Vec<Mutant>> {
    let mut tables = fs::read_dir(root().join("tests/mutants/table"))?
        .map(|entry| fs::read_to_string(entry?.path()))
        .collect::<io::Result<Vec<String>>>()?;
    tables.sort();
    let mut all: Vec<Mutant> = Vec::new();
    for line in tables.iter().flat_map(|table| table.lines()) {
        let (is_right, is_wrong) = match line.chars().next() {
            None | Some('#') => continue,
            Some(' ') => (true, true),
            Some('-') => (true, false),
            Some('+') => (false, true),
            Some(_) => {
                let (name, file) = line.split_once(' ').unwrap_or((line, ""));
                all.push(Mutant { name: name.into(), file: file.into(), ..Mutant::default() });
                continue;
            }
        };
        let mutant = all.last_mut().ok_or_else(|| io::Error::other(format!("whose? {line}")))?;
        for (text, has) in [(&mut mutant.right, is_right), (&mut mutant.wrong, is_wrong)] {
            if has {
                *text += &line[1..];
                text.push('\n');
            }
        }
    }
    for text in all.iter_mut().flat_map(|mutant| [&mut mutant.right, &mut mutant.wrong]) {
        text.pop();
    }
    Ok(all)
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
        mutants().expect("the table").iter().for_each(|mutant| println!("{}", mutant.name));
        return ExitCode::SUCCESS;
    }
    let trials = vec![
        Trial::test("every_mutant_has_its_place_and_a_name_of_its_own", have_places),
        Trial::test("a_test_that_exists_has_caught_each_mutant", are_caught),
        Trial::test("what_worlds_do_not_find_of_a_mutant_has_a_reason", have_reasons),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn have_places() -> Result<(), Failed> {
    let (mut names, mut wrongs) = (BTreeSet::new(), Vec::new());
    let mut sources = Vec::new();
    for folder in ["src", "lua"] {
        read_all(&root().join(folder), &mut sources)?;
    }
    // As in the copy, where all mutants of a source stand side by side.
    let mut copies: BTreeMap<String, String> = BTreeMap::new();
    for Mutant { name, file, right, wrong } in mutants()? {
        let text = fs::read_to_string(root().join(&file)).unwrap_or_default();
        let places = text.matches(&right).count();
        let copy = copies.entry(file.clone()).or_insert(text);
        if places == 1 && !copy.contains(&right) {
            wrongs.push(format!("{name}: another mutant has its place in {file}\n"));
        }
        if !file.ends_with(".lua") {
            *copy = copy.replace(&right, &wrong);
        }
        if places != 1 {
            let has = sources.iter().filter(|(_, text)| text.contains(&right));
            let has: Vec<&str> = has.map(|(file, _)| &**file).collect();
            wrongs.push(format!("{name}: {places} places in {file}, now in {has:?}:\n{right}\n"));
        }
        let switched = wrong.contains("BUG") != file.ends_with(".lua");
        if right == wrong || !switched || !names.insert(name.clone()) {
            wrongs.push(format!("{name}: changes nothing, has no switch, or is there twice\n"));
        }
    }
    if wrongs.is_empty() { Ok(()) } else { Err(wrongs.join("\n").into()) }
}

/// Looks only at names: `tests/mutants/run` runs the tests.
fn are_caught() -> Result<(), Failed> {
    let mut sources = Vec::new();
    for folder in ["src", "tests"] {
        read_all(&root().join(folder), &mut sources)?;
    }
    let names: BTreeSet<String> = mutants()?.into_iter().map(|mutant| mutant.name).collect();
    let mut caught = BTreeSet::new();
    for line in include_str!("caught").lines() {
        let (name, test) = line.split_once(' ').ok_or("a line without a test")?;
        let function = test.rsplit("::").next().unwrap_or(test);
        let definition = format!("fn {function}(");
        if !sources.iter().any(|(_, text)| text.contains(&definition)) {
            return Err(format!("{name}: there is no test {test}").into());
        }
        caught.insert(name.to_owned());
    }
    match names.symmetric_difference(&caught).next() {
        None => Ok(()),
        Some(name) => Err(format!("{name} is no mutant, or no test has caught it").into()),
    }
}

fn have_reasons() -> Result<(), Failed> {
    let names: BTreeSet<String> = mutants()?.into_iter().map(|mutant| mutant.name).collect();
    let (head, lines): (Vec<&str>, Vec<&str>) =
        include_str!("simulated").lines().partition(|line| line.starts_with('#'));
    let reasons = head.iter().filter_map(|line| line[2..].split_once("  "));
    let reasons: BTreeSet<&str> = reasons.map(|(it, _)| it).filter(|it| !it.is_empty()).collect();
    for line in lines {
        let [name, rule, after] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("not a name, the rules and the seconds: {line}").into());
        };
        if !names.contains(name) {
            return Err(format!("{name} is no mutant").into());
        }
        if rule == "-" && !reasons.contains(after) {
            return Err(format!("{name} was not found: say why, by one of {reasons:?}").into());
        }
    }
    Ok(())
}

/// All sources below that folder: the path below the project's root, and the text.
fn read_all(folder: &Path, to: &mut Vec<(String, String)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read_all(&path, to)?;
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "lua")
        {
            let below = path.strip_prefix(root()).map_err(io::Error::other)?;
            to.push((below.display().to_string(), fs::read_to_string(&path)?));
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
    for Mutant { name, file, right, wrong } in mutants()? {
        if file.ends_with(".lua") {
            let text = format!("include_str!({:?})", format!("../{file}"));
            scripts += &format!("    ({name:?}, {text}, {right:?}, {wrong:?}),\n");
            continue;
        }
        let switch = format!("crate::mutants::is_on({name:?})");
        let places = replace(&to.join(&file), &right, &wrong.replace("BUG", &switch))?;
        if places != 1 {
            let message = format!("{name}: {places} places, since another mutant is in {file}");
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
