//! How the scripts are put together.

use super::super::texts::{FILES, text};
use super::SCRIPTS;

fn read(file: &str) -> String {
    file.to_owned()
}

#[test]
fn a_script_is_sent_without_its_comments_and_its_lines_keep_their_numbers() {
    for (name, _) in SCRIPTS.named() {
        let (_, file) = FILES.iter().find(|(file, _)| *file == name).expect("a file");
        let text = text(name, read);
        assert_eq!(text.lines().count(), file.lines().count(), "{name}");
        assert!(text.starts_with(&format!("-- {name}: ")), "{name}");
        for (number, (sent, line)) in text.lines().zip(file.lines()).enumerate().skip(2) {
            let is_comment = line.trim_start().starts_with("--");
            assert_eq!(sent, if is_comment { "" } else { line }, "{name}, line {}", number + 1);
        }
        assert!(!text.lines().nth(1).expect("a second line").contains("--"), "{name}");
    }
}

#[test]
fn a_script_comes_behind_what_it_calls_and_no_more() {
    for (script, functions) in [
        ("acquire", "holder_of draw"),
        ("release", "lost"),
        ("renew", "lost"),
        ("inspect", "holder_of"),
        ("batch", "holder_of lost draw acquire release"),
    ] {
        let text = text(script, read);
        let second = text.lines().nth(1).expect("a second line");
        let before: Vec<&str> = second
            .split("local function ")
            .filter_map(|rest| rest.split_once('('))
            .map(|(name, _)| name)
            .collect();
        assert_eq!(before.join(" "), functions, "{script}");
    }
}
