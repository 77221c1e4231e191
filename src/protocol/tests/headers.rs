//! Every script opens with its contract. These tests compare it with what the body does.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, iter};

use super::super::texts::FILES;

type Words = BTreeSet<String>;

struct Script {
    name: String,
    /// The comment that the file opens with, without its dashes.
    header: Vec<String>,
    body: String,
}

/// The file of the functions that stand in front of scripts.
const LIB: &str = "lib.lua";

fn scripts() -> Vec<Script> {
    scripts_and_lib().into_iter().filter(|script| script.name != LIB).collect()
}

fn scripts_and_lib() -> Vec<Script> {
    let lua = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
    let mut scripts: Vec<Script> = fs::read_dir(lua)
        .expect("the directory lua/")
        .map(|entry| {
            let path = entry.expect("an entry of lua/").path();
            let text = fs::read_to_string(&path).expect("a script");
            let header = text.lines().map_while(|line| line.strip_prefix("--")).map(str::to_owned);
            let header: Vec<String> = header.collect();
            let body = text.lines().skip(header.len()).collect::<Vec<_>>().join("\n");
            Script { name: path.file_name().unwrap().to_str().unwrap().to_owned(), header, body }
        })
        .collect();
    scripts.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(!scripts.is_empty());
    scripts
}

/// `KEYS[...]` and `ARGV[...]` in a text, without blanks.
fn parameters(text: &str) -> Words {
    let mut found = Words::new();
    for array in ["KEYS", "ARGV"] {
        for (at, _) in text.match_indices(array) {
            let index = text[at + array.len()..].strip_prefix('[').and_then(|t| t.split_once(']'));
            // All of an array, as in `ipairs(KEYS)`, is as much as each of it.
            let index = index.map_or("i", |(index, _)| index);
            found.insert(format!("{array}[{}]", index.replace(' ', "")));
        }
    }
    found
}

impl Script {
    fn documented_parameters(&self) -> Words {
        let declares = |line: &&String| line.starts_with(" KEYS[") || line.starts_with(" ARGV[");
        self.header
            .iter()
            .filter(declares)
            .flat_map(|line| parameters(line.split_whitespace().next().unwrap()))
            .collect()
    }

    /// The first word of each reply that is documented.
    fn documented_replies(&self) -> Words {
        let from = self.header.iter().position(|line| line.starts_with(" Replies  "));
        let from = from.unwrap_or_else(|| panic!("{}: no replies are documented", self.name));
        self.header[from..]
            .iter()
            .take_while(|line| !line.trim().is_empty())
            .map(|line| &line[" Replies  ".len()..])
            .filter(|reply| !reply.starts_with(' '))
            .map(|reply| reply.split_whitespace().next().unwrap().to_owned())
            .collect()
    }

    /// The first word of each reply that the body returns.
    fn replies(&self) -> Words {
        self.code()
            .filter_map(|line| line.strip_prefix("return "))
            .flat_map(|it| self.reply(it))
            .collect()
    }

    fn code(&self) -> impl Iterator<Item = &str> {
        self.body.lines().map(|line| line.split("--").next().unwrap().trim())
    }

    /// What is returned in these words. A table is an array and what is put into it; the result of a protected
    /// call is returned as an error, which is no reply.
    fn reply(&self, value: &str) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let is_given = |call: &str| self.body.contains(&format!("local {value} = {call}("));
        let lost = value == "failed" && self.body.contains("= lost(");
        match value {
            "redis.status_reply(holder and 'TAKEN' or 'GONE')" => words(&["+GONE", "+TAKEN"]),
            _ if lost => words(&["+GONE", "+TAKEN"]),
            "failed" => words(&["-WRONGTYPE"]),
            "token" => words(&["nil", "string"]),
            "nil" => words(&["nil"]),
            _ if value.parse::<i64>().is_ok() => words(&[value]),
            _ if is_given("redis.pcall") || is_given("place") => Vec::new(),
            _ if let Some(other) = value.strip_prefix("failed or ") => {
                [self.reply("failed"), self.reply(other)].concat()
            }
            _ if let Some(status) = value.strip_prefix("redis.status_reply('") => {
                vec![format!("+{}", status.trim_end_matches("')"))]
            }
            _ if let Some(error) = value.strip_prefix("redis.error_reply('") => {
                vec![format!("-{}", error.split(' ').next().unwrap())]
            }
            _ if ["tonumber(", "math.", "elsewhere("]
                .iter()
                .any(|call| value.starts_with(call)) =>
            {
                words(&["number"])
            }
            _ => {
                let put = format!("{value}[");
                let put =
                    self.code().filter_map(|line| line.strip_prefix(&put)?.split_once("] = "));
                let put = put.flat_map(|(_, it)| it.split(" or ")).flat_map(|it| match it {
                    "failed" => self.reply(it),
                    "renewed" => words(&["+OK"]),
                    _ => words(&[it]),
                });
                iter::once("an".to_owned()).chain(put).collect()
            }
        }
    }
}

/// The functions that stand in front of scripts, each with the comment above it.
fn functions() -> Vec<(String, String)> {
    let lib = scripts_and_lib().into_iter().find(|script| script.name == LIB).expect("the file");
    let mut comment = String::new();
    let mut functions = Vec::new();
    for line in lib.body.lines() {
        if let Some(more) = line.strip_prefix("-- ") {
            comment += more;
        } else if let Some(rest) = line.strip_prefix("local function ") {
            let (name, _) = rest.split_once('(').expect("a function");
            functions.push((name.to_owned(), std::mem::take(&mut comment)));
        }
    }
    functions
}

#[test]
fn every_script_documents_its_parameters_and_uses_all_of_them() {
    for script in scripts() {
        let (said, used) = (script.documented_parameters(), parameters(&script.body));
        assert_eq!(said, used, "{}: documented on the left, used on the right", script.name);
    }
}

#[test]
fn every_script_documents_its_replies_and_gives_all_of_them() {
    for script in scripts() {
        let (said, given) = (script.documented_replies(), script.replies());
        assert_eq!(said, given, "{}: documented on the left, given on the right", script.name);
    }
}

#[test]
fn every_script_opens_with_its_verb_and_says_why_it_is_atomic() {
    for script in scripts() {
        let verb = format!(" {}: ", script.name.trim_end_matches(".lua"));
        assert!(script.header[0].starts_with(&verb), "{}: {:?}", script.name, script.header[0]);
        let why = script.header.iter().any(|line| line.starts_with(" Why atomic: "));
        assert!(why, "{}: why is it atomic?", script.name);
    }
}

#[test]
fn every_script_is_used_by_the_protocol() {
    let there: Words = scripts_and_lib().into_iter().map(|script| script.name).collect();
    let used = FILES.iter().map(|(name, _)| format!("{name}.lua")).collect();
    assert_eq!(there, used);
}

#[test]
fn every_function_in_front_of_scripts_says_what_it_is_and_is_called() {
    let functions = functions();
    assert!(functions.len() > 2, "{functions:?}");
    for (name, comment) in functions {
        assert!(comment.starts_with(&format!("{name}: ")), "{name}: {comment}");
        let called = scripts().iter().any(|script| script.body.contains(&name));
        assert!(called, "{name} is called by no script");
    }
}
