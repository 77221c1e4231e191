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

fn scripts() -> Vec<Script> {
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

    /// The first word of each reply that the body returns. A table is an array and what is put into it; the result
    /// of a protected call is returned as an error, which is no reply.
    fn replies(&self) -> Words {
        let code = || self.body.lines().map(|line| line.split("--").next().unwrap().trim());
        let returned = code().filter_map(|line| line.strip_prefix("return "));
        returned
            .flat_map(|value| match value {
                "nil" => vec!["nil".to_owned()],
                _ if let Some(number) = leading_number(value) => vec![number],
                _ if value.starts_with("redis.call('GET'") => vec!["string".to_owned()],
                _ if value.starts_with("redis.call(") => vec!["integer".to_owned()],
                "granted" => vec!["2".to_owned(), "an".to_owned()],
                _ if value.starts_with("elsewhere(") || value.starts_with("math.") => {
                    vec!["number".to_owned()]
                }
                _ if self.body.contains(&format!("local {value} = redis.pcall(")) => vec![],
                _ if let Some(error) = value.strip_prefix("redis.error_reply('") => {
                    vec![format!("-{}", error.split(' ').next().unwrap())]
                }
                _ => match value.strip_prefix("redis.status_reply('") {
                    Some(status) => vec![format!("+{}", status.trim_end_matches("')"))],
                    None => iter::once("an".to_owned())
                        .chain(code().filter_map(|line| {
                            Some(
                                line.strip_prefix(&format!("{value}["))?
                                    .split_once("] = ")?
                                    .1
                                    .into(),
                            )
                        }))
                        .collect(),
                },
            })
            .collect()
    }
}

/// The number that a value is, or to which something is added.
fn leading_number(value: &str) -> Option<String> {
    let number = value.split(" + ").next()?;
    number.parse::<i64>().ok().map(|number| number.to_string())
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
    let there: Words = scripts().into_iter().map(|script| script.name).collect();
    let used = FILES.iter().map(|(name, _)| format!("{name}.lua")).collect();
    assert_eq!(there, used);
}
