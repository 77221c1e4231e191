//! Every script opens with its contract. These tests compare it with what the body does.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::super::texts::FILES;

type Words = BTreeSet<String>;

struct Script {
    name: String,
    /// The comment that the file opens with, without its dashes.
    header: Vec<String>,
    body: String,
}

/// The files of what stands in front of scripts.
const SHARED: [&str; 2] = ["fair.lua", "lib.lua"];

fn scripts() -> Vec<Script> {
    files().into_iter().filter(|file| !SHARED.contains(&&*file.name)).collect()
}

fn files() -> Vec<Script> {
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
        let returned = self.code().filter_map(|line| line.strip_prefix("return "));
        returned.flat_map(|value| self.reply(value)).collect()
    }

    fn code(&self) -> impl Iterator<Item = &str> {
        self.body.lines().map(|line| line.split("--").next().unwrap().trim())
    }

    /// What is returned in these words. A table is an array and what is put into it; the error of a protected
    /// call is no reply.
    fn reply(&self, value: &str) -> Vec<String> {
        let owned = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
        if let Some((failed, other)) = value.split_once(" or ").filter(|(one, _)| *one == "failed")
        {
            return [self.reply(failed), self.reply(other)].concat();
        }
        if let Some(error) = value.strip_prefix("redis.error_reply('") {
            return vec![format!("-{}", error.split(' ').next().unwrap())];
        }
        if value.starts_with("redis.status_reply(") {
            return statuses(value);
        }
        if ["left ~= -2", "refused("].iter().any(|own| value.starts_with(own)) {
            // Of a function of the script's own, or what that returns, which is an array.
            return Vec::new();
        }
        match value {
            "failed" if self.body.contains(" = lost") => owned("+GONE +TAKEN"),
            "failed" => owned("-WRONGTYPE"),
            "updated" => owned("+GONE +TAKEN"),
            "acquire({KEYS[1]}, {owner, lease, count})" => owned("nil +GONE +TAKEN"),
            "expires" | "granted" | "look" | "refused" | "marked" => Vec::new(),
            "token" => owned("nil string"),
            "free()" => owned("number"),
            "nil" => owned("nil"),
            "0" => owned("number"),
            _ if value.starts_with("tonumber(") => owned("number"),
            _ => {
                let table = value.trim_matches(['{', '}']).split(',').next().unwrap();
                let (put, insert) = (format!("{table}["), format!("table.insert({table}, "));
                let put = self.code().filter_map(|line| {
                    let put = line.strip_prefix(&put).and_then(|rest| rest.split_once("] = "));
                    put.map(|(_, put)| put).or_else(|| line.strip_prefix(&insert))
                });
                let put = put.flat_map(|put| match put {
                    "failed or renewed" => owned("+GONE +TAKEN +OK"),
                    "redis.status_reply(state))" => self
                        .code()
                        .filter(|line| line.contains("state = "))
                        .flat_map(statuses)
                        .collect(),
                    put => owned(put),
                });
                ["an".to_owned()].into_iter().chain(put).collect()
            }
        }
    }
}

/// The words that stand in quotes.
fn statuses(code: &str) -> Vec<String> {
    code.split('\'').skip(1).step_by(2).map(|word| format!("+{word}")).collect()
}

#[test]
fn every_script_documents_its_parameters_and_uses_all_of_them() {
    for script in files() {
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
    let there: Words = files().into_iter().map(|script| script.name).collect();
    let used = FILES.iter().map(|(name, _)| format!("{name}.lua")).collect();
    assert_eq!(there, used);
}

#[test]
fn every_function_in_front_of_scripts_says_what_it_is_and_is_called() {
    let (mut functions, files) = (0, files());
    for file in files.iter().filter(|file| SHARED.contains(&&*file.name)) {
        let parts = file.body.split("\n\n").filter(|part| part.contains("local function "));
        for part in parts.map(str::trim_start) {
            let (comment, code) = part.split_once("local function ").expect("a function");
            let name = code.split('(').next().expect("its name");
            assert!(comment.starts_with(&format!("-- {name}: ")), "{name}: {comment}");
            let of_its_own = part.matches(name).count();
            let named: usize = files.iter().map(|file| file.body.matches(name).count()).sum();
            assert!(named > of_its_own, "{name} is called by no script");
            functions += 1;
        }
    }
    assert!(functions >= 10, "{functions} found: is this test blind?");
}

/// The names that a text declares: with `local` in the lines that `is_meant` accepts.
fn declared(text: &str, is_meant: impl Fn(&str) -> bool) -> Words {
    let mut found = Words::new();
    for line in text.lines().filter(|line| is_meant(line)) {
        let Some((_, names)) = line.split_once("local ") else { continue };
        let names = names.trim_start_matches("function ");
        let names = names.split(['=', '(']).next().unwrap_or_default();
        found.extend(names.split(',').map(|name| name.trim().to_owned()));
    }
    found
}

/// The words of a text that could be names, without those in comments and between quotes.
fn words(text: &str) -> Words {
    let code = text.lines().map(|line| line.split("--").next().unwrap_or_default());
    let unquoted = code.flat_map(|line| line.split('\'').step_by(2));
    let is_of_a_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    unquoted
        .flat_map(|part| part.split(|letter| !is_of_a_name(letter)))
        .map(str::to_owned)
        .collect()
}

/// A script stands around a text that it shares. Where one of them takes a name of the other for its own, it reads
/// the wrong value, and Lua says nothing.
#[test]
fn no_name_of_a_script_means_something_else_in_what_it_shares() {
    let is_local = |line: &str| line.trim_start().starts_with("local ");
    let mut seen = 0;
    for shared in ["fair", "lib"] {
        let file = files().into_iter().find(|file| file.name == format!("{shared}.lua"));
        let text = file.expect("it is there").body;
        let of_all = declared(&text, |line| line.starts_with("local "));
        let of_functions = declared(&text, is_local);
        let parameters = text.lines().filter(|line| line.contains("function"));
        let parameters: Words = parameters.flat_map(words).collect();
        let used: Words = words(&text).difference(&of_functions).cloned().collect();
        let used: Words = used.difference(&parameters).cloned().collect();
        for script in scripts() {
            let stands_behind = format!("Behind   {shared}");
            if shared == "lib" || script.body.contains(&stands_behind) {
                let mut own = declared(&script.body, is_local);
                own.remove("_");
                let hidden: Vec<_> = own.intersection(&of_all).collect();
                assert!(hidden.is_empty(), "{} hides {hidden:?} of {shared}.lua", script.name);
                let taken: Vec<_> = own.intersection(&used).collect();
                assert!(taken.is_empty(), "{shared}.lua uses {taken:?} of {}", script.name);
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "{seen} found: is this test blind?");
}
