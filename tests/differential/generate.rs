//! Random steps from a seed.
//!
//! A template is a request whose words are chosen: `$k` a key, and so on (see [`Chooser::word`]);
//! `a|b` one of these, where an empty one leaves the word out; `?a,b` these words or none;
//! `$h,$v+` these words once to three times.

use fastrand::Rng;

use super::pair::{CONNECTIONS, OBSERVER};
use super::scripts;
use super::steps::{Like, Request, Step};
use super::templates::{CHANNELS, KEYS, TEMPLATES};

pub(crate) struct Chooser<'r> {
    pub(crate) rng: &'r mut Rng,
}

/// The steps of one run.
pub(crate) fn steps(rng: &mut Rng, many: usize) -> Vec<Step> {
    let mut chooser = Chooser { rng };
    let mut steps = scripts::loads();
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

/// A look at what is left of every key.
fn ends() -> Step {
    let look = |key: &&str| Request::new(Like::Same, ["PTTL", *key]);
    let requests = KEYS.iter().chain(&scripts::KEYS).map(look).collect();
    Step::Ask { connection: OBSERVER, requests, cut: None }
}

/// A look at all data.
fn contents() -> Step {
    let mut requests = Vec::new();
    for key in KEYS.iter().chain(&scripts::KEYS) {
        requests.push(Request::new(Like::Same, ["TYPE", *key]));
        requests.push(Request::new(Like::Same, ["GET", *key]));
        requests.push(Request::new(Like::AnyOrder, ["HGETALL", *key]));
        requests.push(Request::new(Like::AnyOrder, ["SMEMBERS", *key]));
        requests.push(Request::new(Like::Same, ["LRANGE", *key, "0", "-1"]));
        requests.push(Request::new(Like::Same, ["ZRANGE", *key, "0", "-1", "WITHSCORES"]));
        requests.push(Request::new(Like::Same, ["XRANGE", *key, "-", "+"]));
    }
    Step::Ask { connection: OBSERVER, requests, cut: None }
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
        let is_touchy = |request: &Request| {
            let name = String::from_utf8_lossy(&request.words[0]);
            ["AUTH", "HELLO", "CLIENT"].contains(&&*name)
        };
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
            let (like, template) = TEMPLATES[self.rng.usize(0..TEMPLATES.len())];
            Request { words: self.fill(template), like }
        };
        if self.rng.u32(0..30) == 0 && request.words[0] != b"CONFIG" {
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
            2 if at < many => request.words[at] = self.junk(),
            _ => {
                let word = self.junk();
                request.words.insert(at, word);
            }
        }
    }

    fn junk(&mut self) -> Vec<u8> {
        const JUNK: [&[u8]; 14] = [
            b"",
            b"x",
            b"-1",
            b"0",
            b"1.5",
            b"nan",
            b"9223372036854775808",
            b"+3",
            b" 1",
            b"\x00\xff\r\n",
            b"GET",
            b"NX",
            b"-",
            b"*",
        ];
        JUNK[self.rng.usize(0..JUNK.len())].to_vec()
    }

    fn fill(&mut self, template: &str) -> Vec<Vec<u8>> {
        let mut words = Vec::new();
        for part in template.split(' ') {
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
                let word = choices[self.rng.usize(0..choices.len())];
                if !word.is_empty() {
                    words.push(self.word(word));
                }
            } else {
                words.push(self.word(part));
            }
        }
        words
    }

    fn one_of<T: ToString>(&mut self, all: &[T]) -> Vec<u8> {
        all[self.rng.usize(0..all.len())].to_string().into_bytes()
    }

    /// The word that a template's word stands for.
    pub(crate) fn word(&mut self, word: &str) -> Vec<u8> {
        match word {
            "$k" => self.one_of(KEYS),
            "$h" => self.one_of(&["f1", "f2", "f3", "us:1"]),
            "$m" => self.one_of(&["a", "b", "c", "d", "aa", ""]),
            "$v" => match self.rng.u32(0..10) {
                0..4 => self.one_of(&["0", "1", "10", "-3", "3.5", "0.1", "abc", "", "007", "1e3"]),
                4..8 => self.rng.i32(-20..100).to_string().into_bytes(),
                8 => self.one_of(&[i64::MAX, i64::MIN]),
                _ => b"\x00\xfe\r\n binary".to_vec(),
            },
            "$i" => match self.rng.u32(0..12) {
                0 => self.one_of(&["9223372036854775807", "-9223372036854775808", "x", "1.0"]),
                _ => self.rng.i32(-6..12).to_string().into_bytes(),
            },
            "$j" => self.rng.i32(-6..12).to_string().into_bytes(),
            "$n" => self.rng.u32(0..6).to_string().into_bytes(),
            "$f" => match self.rng.u32(0..12) {
                0 => self.one_of(&["inf", "-inf", "nan", "x", "+1.5", "1e2"]),
                1..6 => self.rng.i32(-5..8).to_string().into_bytes(),
                _ => format!("{}.{}", self.rng.i32(-4..9), self.rng.u32(0..100)).into_bytes(),
            },
            // Few digits: see `WANTED`.
            "$d" => match self.rng.u32(0..12) {
                0 => self.one_of(&["x", "", "+1.5", "-0"]),
                _ => format!("{}.{}", self.rng.i32(0..9), self.rng.u32(0..100)).into_bytes(),
            },
            "$b" => match self.rng.u32(0..4) {
                0 => self.one_of(&["-inf", "+inf", "(3", "(1.5", "x", "("]),
                _ => self.rng.i32(-5..8).to_string().into_bytes(),
            },
            // Milliseconds, and seconds.
            "$t" => match self.rng.u32(0..14) {
                0 => self.one_of(&[
                    "0",
                    "-1",
                    "abc",
                    "0.5",
                    "9223372036854775807",
                    "-9223372036854775808",
                ]),
                1..9 => self.rng.u32(1..300).to_string().into_bytes(),
                _ => self.rng.u32(300..40_000).to_string().into_bytes(),
            },
            "$s" => match self.rng.u32(0..14) {
                0 => self.one_of(&["0", "-1", "abc", "9223372036854775807", "9223372036854775"]),
                _ => self.rng.u32(1..40).to_string().into_bytes(),
            },
            // The same as points in time.
            "$T" => (1_764_000_000_000 + self.rng.u64(0..100_000)).to_string().into_bytes(),
            "$S" => (1_764_000_000 + self.rng.u64(0..100)).to_string().into_bytes(),
            "$g" => {
                self.one_of(&["*", "k*", "k?", "k[1-3]", "k[^1]", "c*", "", "[k]1", "\\k1", "*1*"])
            }
            "$c" => self.one_of(CHANNELS),
            "$u" => self.one_of(&["alice", "bob", "default", "nobody"]),
            "$a" => format!("<address {}>", self.rng.usize(0..CONNECTIONS)).into_bytes(),
            // A bar would separate choices.
            other if other.starts_with(['+', '-']) => other.replace(':', "|").into_bytes(),
            other => other.as_bytes().to_vec(),
        }
    }
}
