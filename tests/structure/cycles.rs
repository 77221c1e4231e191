//! Inside a module: its files use each other without a cycle.

use std::collections::BTreeSet;

use super::{File, sources, word};

/// The paths that begin with `first`, without it: `a::b` and `a::c` for `use super::a::{b, c}`.
pub(super) fn paths(code: &str, first: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices(first) {
        if !code[..at].ends_with(|c: char| c == '_' || c == ':' || c.is_alphanumeric()) {
            branches(&code[at + first.len()..], "", &mut found);
        }
    }
    found
}

/// All branches of the path that `text` begins with. Returns what comes after it.
fn branches<'a>(text: &'a str, before: &str, found: &mut Vec<String>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        while !rest.trim_start().starts_with('}') {
            rest = branches(rest, before, found).trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        return rest.trim_start().strip_prefix('}').expect("just seen");
    }
    let name = word(text);
    let rest = &text[name.len()..];
    let path = if before.is_empty() { name.to_owned() } else { format!("{before}::{name}") };
    match rest.strip_prefix("::") {
        Some(rest) => branches(rest, &path, found),
        None => {
            found.push(path);
            // Another name for it.
            rest.find([',', '}', ';']).map_or("", |end| &rest[end..])
        }
    }
}

/// Which child of `parent` that path leads to, if it leads to one: directly, or because the parent
/// has a name of that child's at hand.
fn child<'a>(parent: &File, children: &BTreeSet<&'a str>, path: &str) -> Option<&'a str> {
    let first = word(path);
    let code = parent.code().collect::<Vec<_>>().join("\n");
    children.get(first).copied().or_else(|| {
        children.iter().copied().find(|child| {
            let at_hand = paths(&code, &format!("use {child}::"));
            at_hand.iter().any(|path| path.rsplit("::").next() == Some(first))
        })
    })
}

/// Who uses whom among the children of one module, each with all that is below it. That a child
/// uses its parent is no arrow: it is a part of it.
fn arrows_below<'a>(parent: &File, files: &'a [File]) -> BTreeSet<(&'a str, &'a str)> {
    let inside = format!("{}/", parent.path.trim_end_matches(".rs"));
    let below: Vec<(&str, &File)> = files
        .iter()
        .filter(|file| !file.is_test())
        .filter_map(|file| Some((word(file.path.strip_prefix(&inside)?), file)))
        .collect();
    let children: BTreeSet<&str> = below.iter().map(|(child, _)| *child).collect();
    let mut arrows = BTreeSet::new();
    for (from, file) in &below {
        let code = file.code().collect::<Vec<_>>().join("\n");
        let mut used = paths(&code, &format!("crate::{}::", parent.path_of_module()));
        if file.path == format!("{inside}{from}.rs") {
            used.extend(paths(&code, "super::"));
        }
        let to = used.iter().filter_map(|path| child(parent, &children, path));
        arrows.extend(to.filter(|to| to != from).map(|to| (*from, to)));
    }
    arrows
}

/// The way back to `start`, if there is one.
fn cycle<'a>(start: &'a str, arrows: &BTreeSet<(&'a str, &'a str)>) -> Option<Vec<&'a str>> {
    let mut ways = vec![vec![start]];
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop() {
        let last = *way.last().expect("a start");
        for (_, to) in arrows.iter().filter(|(from, _)| *from == last) {
            if *to == start {
                return Some(way);
            }
            if seen.insert(*to) {
                ways.push([&*way, &[*to]].concat());
            }
        }
    }
    None
}

#[test]
fn the_files_of_a_module_use_each_other_without_a_cycle() {
    let files = sources();
    let mut checked = 0;
    for parent in files.iter().filter(|file| !file.is_test()) {
        let arrows = arrows_below(parent, &files);
        checked += arrows.len();
        for (from, _) in &arrows {
            assert_eq!(cycle(from, &arrows), None, "in src/{}", parent.path);
        }
    }
    assert!(checked >= 30, "only {checked} arrows found: is this test blind?");
}
