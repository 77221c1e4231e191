//! The library's scripts of single requests, for those who have to say them to a server: as they are sent.

#[path = "../../src/protocol/texts.rs"]
pub(crate) mod texts;

pub(crate) const ALL: [fn() -> String; 5] = [acquire, release, renew, update, execute];

macro_rules! script {
    ($name:ident) => {
        pub(crate) fn $name() -> String {
            texts::text(stringify!($name), str::to_owned)
        }
    };
}

script!(acquire);
script!(release);
script!(renew);
script!(update);
script!(execute);
