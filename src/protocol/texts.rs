//! The scripts of `lua/`, as they are sent: without their comments, which are more than half of them. A
//! server that knows no scripts is sent all of them by each client, over a network that may be narrow.
//!
//! This file imports nothing, so that the tests and the benchmarks compose the scripts with it, too.

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../lua/", $name, ".lua")))),*]
    };
}

/// What the files are called, and what is in them.
pub(crate) const FILES: &[(&str, &str)] = files! {
    "acquire" "batch" "execute" "fair_acquire" "fair_elsewhere" "fair_force_unlock" "fair_leave"
    "fair_place" "fair_prolong" "fair_refresh" "fair_release" "fair_turn" "force_unlock" "inspect"
    "lib" "prolong" "release" "renew" "rewrite"
};

/// A script, behind the others that its header names and the functions of `lib` that it and they name. Those
/// are functions, too, and all on the second line. So the lines of the file keep their numbers, by which an error
/// of the server names them. `read` has the last word on what is in a file.
pub(crate) fn text(name: &str, read: impl Fn(&str) -> String + Copy) -> String {
    let (own, lib) = (file(name, read), file("lib", read));
    let others = own.lines().find_map(|line| line.strip_prefix("-- Behind   "));
    let others = others.into_iter().flat_map(|others| others.split(", "));
    let mut before: Vec<String> = others.map(|other| function(other, read)).collect();
    for leaf in lib.rsplit("\n\n").filter(|part| part.contains("\nlocal function ")) {
        let leaf = one_line(leaf);
        let name = words(&leaf).nth(2);
        if before
            .iter()
            .chain([&one_line(&own)])
            .any(|code| words(code).any(|word| Some(word) == name))
        {
            before.insert(0, leaf);
        }
    }
    let mut lines = own.lines();
    let title = lines.next().unwrap_or_default();
    let second = lines.next().map(|_| before.join(" ")).unwrap_or_default();
    let code = lines.map(|line| if is_comment(line) { "" } else { line });
    [title, &second].into_iter().chain(code).flat_map(|line| [line, "\n"]).collect()
}

/// A script as a function, on one line.
fn function(name: &str, read: impl Fn(&str) -> String) -> String {
    let code = one_line(&file(name, read));
    format!("local function {}(KEYS, ARGV) {code} end", name.trim_start_matches("fair_"))
}

fn one_line(file: &str) -> String {
    let code = file.lines().filter(|line| !is_comment(line)).map(str::trim);
    code.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

fn file(name: &str, read: impl Fn(&str) -> String) -> String {
    let file = FILES.iter().find(|(file, _)| *file == name);
    file.map(|(_, text)| read(text)).unwrap_or_else(|| panic!("BUG: no script is called {name}"))
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
    code.split(move |char| !is_part(char)).filter(|word| !word.is_empty())
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("--")
}
