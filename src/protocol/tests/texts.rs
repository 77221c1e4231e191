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
            let (is_comment, place) = (line.trim_start().starts_with("--"), number + 1);
            if line.trim_start().starts_with("-- Behind   ") {
                assert!(
                    sent.starts_with("local ") && !sent.contains("--"),
                    "{name}, line {place}: {sent}"
                );
            } else {
                assert_eq!(sent, if is_comment { "" } else { line }, "{name}, line {place}");
            }
        }
        assert!(!text.lines().nth(1).expect("a second line").contains("--"), "{name}");
    }
}

/// The functions that are made on a line.
fn functions(line: &str) -> Vec<&str> {
    let rest = line.split("local function ").skip(1).filter_map(|rest| rest.split_once('('));
    rest.map(|(name, _)| name).collect()
}

#[test]
fn a_script_comes_behind_what_it_calls_and_no_more() {
    for (script, at, expected) in [
        ("acquire", 1, "holder_of draw"),
        ("release", 1, "lost"),
        ("renew", 1, "lost"),
        ("inspect", 1, "holder_of"),
        ("batch", 1, "holder_of lost draw"),
        ("batch", 2, "acquire release"),
        ("fair_refresh", 1, "now_us"),
        ("fair_release", 1, "lost draw now_us"),
    ] {
        let text = text(script, read);
        let line = text.lines().filter(|line| line.contains("function ")).nth(at - 1);
        assert_eq!(functions(line.expect("a line of functions")).join(" "), expected, "{script}");
    }
    let leave = text("fair_leave", read);
    let fair =
        leave.lines().find(|line| line.starts_with("local lock, ")).expect("the line of fair");
    assert_eq!(functions(fair).join(" "), "notify drop tell_end grant give_turn");
}
