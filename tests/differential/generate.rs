//! Random steps from a seed.
//!
//! A template is a request whose words are chosen: `$k` a key, and so on (see [`WORDS`] and
//! [`Chooser::word`]); `a|b` one of these, where an empty one leaves the word out; `?a,b` these words
//! or none; `$h,$v+` these words once to three times.

use fastrand::Rng;

use super::pair::{CONNECTIONS, OBSERVER};
use super::scripts;
use super::steps::{Like, Request, Step};
use super::templates::{FLOATS, JUNK, KEYS, TEMPLATES, UNSPOILT, WORDS};

pub(crate) struct Chooser<'r> {
    pub(crate) rng: &'r mut Rng,
}

/// The steps of one run.
pub(crate) fn steps(rng: &mut Rng, many: usize) -> Vec<Step> {
    let mut chooser = Chooser { rng };
    let mut steps = vec![look(scripts::loads())];
    while steps.len() < many {
        let step = chooser.step();
        steps.push(step);
        match chooser.rng.u32(0..40) {
            0..12 => steps.push(ends()),
            12 => steps.push(contents()),
            _ => {}
        }
    }
    steps.push(contents());
    steps
}

fn look(requests: Vec<Request>) -> Step {
    Step::Ask { connection: OBSERVER, requests, cut: None }
}

fn keys() -> impl Iterator<Item = &'static str> {
    KEYS.iter().chain(&scripts::KEYS).chain(&FLOATS).copied()
}

/// A look at what is left of every key.
fn ends() -> Step {
    look(keys().map(|key| Request::new(Like::Same, ["PTTL", key])).collect())
}

/// A look at all data.
fn contents() -> Step {
    let of = |key| {
        [
            Request::new(Like::Same, ["TYPE", key]),
            Request::new(Like::Same, ["GET", key]),
            Request::new(Like::AnyOrder, ["HGETALL", key]),
            Request::new(Like::AnyOrder, ["SMEMBERS", key]),
            Request::new(Like::Same, ["LRANGE", key, "0", "-1"]),
            Request::new(Like::Same, ["ZRANGE", key, "0", "-1", "WITHSCORES"]),
        ]
    };
    look(keys().flat_map(of).collect())
}

impl Chooser<'_> {
    fn step(&mut self) -> Step {
        let connection = self.rng.usize(0..CONNECTIONS);
        match self.rng.u32(0..100) {
            0..12 => return Step::Later(self.pause()),
            12 => return Step::Reconnect(connection),
            _ => {}
        }
        let many = if self.rng.u32(0..5) == 0 { self.rng.usize(2..6) } else { 1 };
        let mut requests: Vec<Request> = (0..many).map(|_| self.request()).collect();
        if requests.iter().any(|request| request.like != Like::Same) {
            requests.truncate(1);
        }
        let cut = (self.rng.u32(0..20) == 0).then(|| self.rng.usize(1..60));
        // What comes of these depends on what was sent before, and a server may read two pieces as one.
        let is_touchy =
            |request: &Request| [&b"AUTH"[..], b"HELLO", b"CLIENT"].contains(&&*request.words[0]);
        let cut = cut.filter(|_| !requests.iter().any(is_touchy));
        Step::Ask { connection, requests, cut }
    }

    /// In microseconds.
    fn pause(&mut self) -> u64 {
        match self.rng.u32(0..10) {
            0..5 => self.rng.u64(1..3_000),
            5..9 => self.rng.u64(1_000..200_000),
            _ => self.rng.u64(1_000_000..40_000_000),
        }
    }

    fn request(&mut self) -> Request {
        let mut request = if self.rng.u32(0..100) < 30 {
            scripts::request(self)
        } else {
            let (like, template) = self.one_of(TEMPLATES);
            Request { words: self.fill(template), like }
        };
        let may_spoil = !UNSPOILT.iter().any(|name| request.words[0] == name.as_bytes());
        if self.rng.u32(0..30) == 0 && may_spoil {
            self.spoil(&mut request);
            if request.words.len() == 1 && request.words[0].ends_with(b"UNSUBSCRIBE") {
                request.like = Like::Columns;
            }
        }
        request
    }

    /// Makes a mistake in a request.
    fn spoil(&mut self, request: &mut Request) {
        let many = request.words.len();
        let at = self.rng.usize(1..many + 1);
        match self.rng.u32(0..4) {
            0 if at < many => drop(request.words.remove(at)),
            1 if at < many => {
                let word = request.words[at].clone();
                request.words.insert(at, word);
            }
            2 if at < many => request.words[at] = self.one_of(JUNK).to_vec(),
            _ => {
                let word = self.one_of(JUNK).to_vec();
                request.words.insert(at, word);
            }
        }
    }

    pub(crate) fn fill(&mut self, template: &str) -> Vec<Vec<u8>> {
        let mut words = Vec::new();
        for part in template.split(' ').filter(|part| !part.is_empty()) {
            if let Some(part) = part.strip_prefix('?') {
                if self.rng.bool() {
                    words.extend(part.split(',').map(|word| self.word(word)));
                }
            } else if let Some(part) = part.strip_suffix('+').filter(|part| part.contains('$')) {
                for _ in 0..self.rng.usize(1..4) {
                    words.extend(part.split(',').map(|word| self.word(word)));
                }
            } else if part.contains('|') {
                let choices: Vec<&str> = part.split('|').collect();
                let word = self.one_of(&choices);
                if !word.is_empty() {
                    words.push(self.word(word));
                }
            } else {
                words.push(self.word(part));
            }
        }
        words
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.rng.usize(0..all.len())]
    }

    /// One that is rarely meant, or another one.
    fn odd(&mut self, odd: &[&str], usual: impl FnOnce(&mut Rng) -> String) -> Vec<u8> {
        if self.rng.u32(0..12) == 0 {
            self.one_of(odd).into()
        } else {
            usual(self.rng).into_bytes()
        }
    }

    /// The word that a template's word stands for.
    pub(crate) fn word(&mut self, word: &str) -> Vec<u8> {
        const LARGEST: &str = "9223372036854775807";
        const SMALLEST: &str = "-9223372036854775808";
        if let Some((_, all)) = WORDS.iter().find(|(name, _)| *name == word) {
            return self.one_of(all).into();
        }
        match word {
            "$v" => match self.rng.u32(0..10) {
                0..4 => self.word("$V"),
                4..8 => self.word("$w"),
                8 => self.one_of(&[LARGEST, SMALLEST]).into(),
                _ => b"\x00\xfe\r\n binary".to_vec(),
            },
            "$w" => self.rng.i32(-20..100).to_string().into_bytes(),
            "$i" => self.odd(&[LARGEST, SMALLEST, "x", "1.0"], |rng| rng.i32(-6..12).to_string()),
            "$j" => self.rng.i32(-6..12).to_string().into_bytes(),
            "$n" => self.rng.u32(0..6).to_string().into_bytes(),
            "$f" => self.odd(&["inf", "-inf", "nan", "x", "+1.5", "1e2"], |rng| match rng.bool() {
                true => rng.i32(-5..8).to_string(),
                false => format!("{}.{}", rng.i32(-4..9), rng.u32(0..100)),
            }),
            // In quarters: see `WANTED`.
            "$q" => self.odd(&["x", "", "+1.5", "-0"], |rng| {
                format!("{}", f64::from(rng.i32(-9..99)) / 4.0)
            }),
            "$b" => self.odd(&["-inf", "+inf", "(3", "(1.5", "x", "("], |rng| {
                format!("{}{}", if rng.u32(0..6) == 0 { "(" } else { "" }, rng.i32(-5..8))
            }),
            // Milliseconds, and seconds.
            "$t" => self.odd(&["0", "-1", "abc", "0.5", LARGEST, SMALLEST], |rng| {
                if rng.bool() { rng.u32(1..300) } else { rng.u32(300..40_000) }.to_string()
            }),
            "$s" => self.odd(&["0", "-1", "abc", LARGEST, "9223372036854775"], |rng| {
                rng.u32(1..40).to_string()
            }),
            // The same as points in time.
            "$T" => (1_764_000_000_000 + self.rng.u64(0..100_000)).to_string().into_bytes(),
            "$S" => (1_764_000_000 + self.rng.u64(0..100)).to_string().into_bytes(),
            "$a" => format!("<address {}>", self.rng.usize(0..CONNECTIONS)).into_bytes(),
            // A bar would separate choices.
            other if other.starts_with(['+', '-']) => other.replace(':', "|").into_bytes(),
            other => other.as_bytes().to_vec(),
        }
    }
}
