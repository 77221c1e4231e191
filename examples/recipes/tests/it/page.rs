//! The page and the files that its code is from say the same.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn page() -> String {
    read("../../src/guide/recipes.md")
}

/// Each block of code, and the file that the page has named last before it.
fn blocks(page: &str) -> Vec<(String, String)> {
    let (mut blocks, mut file) = (Vec::new(), String::new());
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let named = line.split('`').skip(1).step_by(2).filter(|w| w.ends_with(".rs")).last();
        file = named.map_or(file, str::to_owned);
        if line.starts_with("```") {
            assert_eq!(line, "```rust,ignore", "rustdoc would not take it for what it is");
            let code = lines.by_ref().take_while(|line| *line != "```");
            blocks.push((file.clone(), code.collect::<Vec<_>>().join("\n")));
        }
    }
    blocks
}

#[test]
fn each_block_of_the_page_is_a_part_of_the_file_that_it_names() {
    let page = page();
    for (file, code) in blocks(&page) {
        // From the beginning of a line to the end of one.
        let source = format!("\n{}", read(&format!("src/{file}")));
        assert!(source.contains(&format!("\n{code}\n")), "{file} does not have this:\n{code}");
    }
}

#[test]
fn the_page_shows_a_part_of_each_file() {
    let shown: BTreeSet<String> = blocks(&page()).into_iter().map(|(file, _)| file).collect();
    let lib = read("src/lib.rs");
    let modules = lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let files: BTreeSet<String> = modules.map(|module| format!("{module}.rs")).collect();
    assert_eq!(shown, files);
}

#[test]
fn the_links_inside_of_the_page_lead_to_its_headings() {
    let page = page();
    let id = |heading: &str| -> String {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
    let headings: BTreeSet<String> = headings.map(id).collect();
    let links = page.split("](#").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    let links: BTreeSet<String> = links.map(str::to_owned).collect();
    assert_eq!(links, headings, "each section is in the list at the top");
}

#[test]
fn the_page_names_the_versions_that_are_tested() {
    let (page, manifest) = (page().replace('\n', " "), read("Cargo.toml"));
    let version = |name: &str| -> String {
        let line = manifest.lines().find(|line| line.starts_with(&format!("{name} = ")));
        let version = line.and_then(|line| line.split('"').nth(1)).expect("a version");
        version.split('.').take(2).collect::<Vec<_>>().join(".")
    };
    let all = ["actix-web", "apalis", "axum", "sqlx", "tokio-cron-scheduler"];
    let all: Vec<String> = all.iter().map(|name| format!("{name} {}", version(name))).collect();
    let says = format!("The versions are {} and tonic {}.", all.join(", "), version("tonic"));
    assert!(page.contains(&says), "the page does not say: {says}");
    let says = format!("sqlx 0.9 takes Rust {};", version("rust-version"));
    assert!(page.contains(&says), "the page does not say: {says}");
}
