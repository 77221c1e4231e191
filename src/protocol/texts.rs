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
    "acquire" "acquire_all" "batch" "execute" "fair" "fair_acquire" "fair_force_unlock" "fair_leave"
    "fair_refresh" "fair_release" "fair_update" "force_unlock" "inspect" "lib" "release" "renew"
    "rewrite" "rw_acquire" "rw_force_unlock" "rw_inspect" "rw_leave" "rw_release" "rw_renew"
    "rw_rewrite" "rw_update" "update"
};

/// A script. Where its file says what it is behind, that is: other scripts, as functions, or the file `fair`.
/// Of `fair` and of `lib`, which is on the second line, it has the functions that are named. Each is on one line,
/// so that the lines of the file keep their numbers, by which an error of the server names them. `read` has the
/// last word on what is in a file.
pub(crate) fn text(name: &str, read: impl Fn(&str) -> String + Copy) -> String {
    let own = file(name, read);
    let mut lines: Vec<String> = Vec::new();
    for line in own.lines().rev() {
        let code = if is_comment(line) { "" } else { line };
        let behind = line.trim_start().strip_prefix("-- Behind   ").map(|others| {
            let others = others.split(", ").map(|other| match other {
                "fair" => named(other, &lines, read),
                _ => function(other, read),
            });
            others.collect::<String>()
        });
        lines.push(behind.unwrap_or_else(|| code.to_owned()));
    }
    lines.reverse();
    let lib = named("lib", &lines, read);
    if let [title, second, ..] = &mut *lines {
        *title = own.lines().next().unwrap_or_default().to_owned();
        *second = lib;
    }
    lines.iter().flat_map(|line| [line.trim_end(), "\n"]).collect()
}

/// The text of those functions of a file that the lines name, and what is between them.
fn named(name: &str, lines: &[String], read: impl Fn(&str) -> String) -> String {
    let mut code = lines.join("\n");
    let mut all = String::new();
    for part in file(name, read).split("\n\n").map(one_line).collect::<Vec<_>>().iter().rev() {
        let function = part.strip_prefix("local function ").and_then(|rest| words(rest).next());
        if function.is_none_or(|name| words(&code).any(|word| word == name)) {
            code.push_str(part);
            all.insert_str(0, part);
        }
    }
    all
}

/// A script as a function, on one line.
fn function(name: &str, read: impl Fn(&str) -> String) -> String {
    format!("local function {name}(KEYS, ARGV) {}end ", one_line(&file(name, read)))
}

/// With a blank at the end, if there is any code.
fn one_line(file: &str) -> String {
    let code = file.lines().filter(|line| !is_comment(line)).map(str::trim);
    code.filter(|line| !line.is_empty()).flat_map(|line| [line, " "]).collect()
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
