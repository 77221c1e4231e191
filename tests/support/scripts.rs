//! The library's scripts of single requests, for whoever has to say them to a server: as they are sent, with
//! the first line and no other comment.

pub(crate) const ALL: [fn() -> String; 5] = [acquire, release, renew, prolong, execute];

macro_rules! script {
    ($name:ident) => {
        pub(crate) fn $name() -> String {
            let script = include_str!(concat!("../../lua/", stringify!($name), ".lua"));
            let (name, rest) = script.split_once('\n').expect("several lines");
            let is_comment = |line: &str| line.trim_start().starts_with("--");
            let code = rest.lines().map(|line| if is_comment(line) { "" } else { line });
            code.fold(name.to_owned(), |script, line| script + "\n" + line) + "\n"
        }
    };
}

script!(acquire);
script!(release);
script!(renew);
script!(prolong);
script!(execute);
