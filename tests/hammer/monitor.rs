//! Hears every command that the server carries out, for a short while: MONITOR costs it a lot.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::nemesis::WITNESS;
use crate::prelude::*;
use crate::support::Server;
use crate::witness::owner;

pub(crate) struct Monitor {
    stream: TcpStream,
    from: u64,
    offset: u64,
    thread: JoinHandle<Vec<Command>>,
}

impl Monitor {
    pub(crate) fn listen(server: &Server, names: Names) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        // The nemesis spares it.
        write!(stream, "CLIENT SETNAME {WITNESS}\r\nMONITOR\r\n").expect("asking");
        let mut lines = BufReader::new(stream.try_clone().expect("a second end"));
        let mut line = String::new();
        for _ in 0..2 {
            lines.read_line(&mut line).expect("being heard");
        }
        let offset = offset();
        let thread = std::thread::spawn(move || {
            let mut all = Vec::new();
            for line in lines.lines().map_while(Result::ok) {
                all.extend(commands(&line, names, offset));
            }
            all
        });
        Self { stream, from: now(), offset, thread }
    }

    pub(crate) fn heard(self) -> Heard {
        let Self { stream, from, offset: before, thread } = self;
        let to = now();
        // What happened until now may still be on its way.
        std::thread::sleep(Duration::from_millis(100));
        let _ = stream.shutdown(Shutdown::Both);
        let commands = thread.join().expect("the monitor failed");
        // If the wall clock was set meanwhile, nobody knows when anything was.
        if offset().abs_diff(before) > 1_000_000 {
            return Heard::default();
        }
        Heard { from, to, commands }
    }
}

/// By how much the wall clock, which the server tells, is ahead of ours.
fn offset() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    u64::try_from(wall.as_nanos()).expect("a time before 2500").saturating_sub(now())
}

/// `+1700000000.123456 [0 127.0.0.1:1234] "EVALSHA" "<sha>" "1" "name-3" "<owner>" "600" "1"`, for
/// an acquire, a release, or several in one call, or a hand-off; `+... [0 lua] "HSET" "name-3" "<owner>"
/// "1"`, for what a script writes.
fn commands(line: &str, names: Names, offset: u64) -> Vec<Command> {
    let Some((t, whence, words)) = words(line) else { return Vec::new() };
    let command = |key: &str, who: &str, what| {
        // The other scripts have no owner in that place.
        let owner = Some(owner(who)).filter(|owner| *owner != Default::default())?;
        let key = names.all().find(|number| names.name(*number) == key)?;
        Some(Command { t: t - offset, key, owner, what })
    };
    match words[..] {
        ["HSET", key, who, _] | ["HSET", key, "mode", _, who, _] if whence.ends_with("lua") => {
            command(key, who, What::Wrote).into_iter().collect()
        }
        ["EVALSHA", _, keys, ref rest @ ..] => {
            let keys = keys.parse().ok().filter(|keys| *keys <= rest.len());
            let (keys, args) = rest.split_at(keys.unwrap_or_default());
            let asked = asked(keys, args).into_iter();
            asked.filter_map(|(key, who, what)| command(key, who, what)).collect()
        }
        _ => Vec::new(),
    }
}

fn words(line: &str) -> Option<(u64, &str, Vec<&str>)> {
    let (time, rest) = line.strip_prefix('+')?.split_once(' ')?;
    let (seconds, micros) = time.split_once('.')?;
    let nanos = seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1000;
    let (whence, rest) = rest.split_once("] ")?;
    Some((nanos, whence, rest.split('"').skip(1).step_by(2).collect()))
}

/// For whom a script asks for which lock, says that it is there, or gives it back.
pub(crate) fn asked<'a>(keys: &[&'a str], args: &[&'a str]) -> Vec<(&'a str, &'a str, What)> {
    let is_number = |arg: &&str| arg.bytes().all(|byte| byte.is_ascii_digit());
    match (keys, args) {
        // Of several locks, all or none.
        (_, [lease, who @ ..])
            if who.len() == 2 * keys.len()
                && is_number(lease)
                && who.iter().skip(1).step_by(2).all(is_number) =>
        {
            let all = keys.iter().zip(who.chunks(2));
            all.map(|(key, who)| (*key, who[0], What::Asked)).collect()
        }
        // Requests that share a call.
        (_, ["acquire" | "fenced" | "release", ..]) => {
            let (mut keys, mut args, mut all) = (keys, args, Vec::new());
            while let ([key, ..], [verb, who, ..]) = (keys, args) {
                let (of_keys, of_args, what) = match *verb {
                    "release" => (1, 4, What::GivenBack),
                    "fenced" => (2, 5, What::Asked),
                    _ => (1, 4, What::Asked),
                };
                all.push((*key, *who, what));
                keys = keys.get(of_keys..).unwrap_or_default();
                args = args.get(of_args..).unwrap_or_default();
            }
            all
        }
        // A lock of this client is updated: what it has is said again.
        ([key] | [key, _], [who, _, _, _, channel, _, _, _])
            if channel.starts_with("redisson_lock__") =>
        {
            vec![(*key, *who, What::Told)]
        }
        // Of a fair or a read-write lock, behind what each request says of its client: a release, an update
        // and an acquire.
        ([key, queue, ..], [_, _, _, _, _, _, _, _, _, _, rest @ ..])
            if queue.starts_with("redlatch_queue:") || queue.starts_with("redlatch_rw_queue:") =>
        {
            match rest {
                [who] | [who, _] => vec![(*key, *who, What::GivenBack)],
                [who, _, _] | [who, _, _, _] => vec![(*key, *who, What::Told)],
                // A writer that may have a reader beside it.
                [who, _, _, _, reader] if reader.contains(':') => vec![(*key, *who, What::Told)],
                [who, _, _, _, _, ..] => vec![(*key, *who, What::Asked)],
                _ => Vec::new(),
            }
        }
        ([key], [who, channel, _]) if channel.starts_with("redisson_lock__") => {
            vec![(*key, *who, What::GivenBack)]
        }
        ([key], [who, _, _]) | ([key, _], [who, _, _, _]) => vec![(*key, *who, What::Asked)],
        _ => Vec::new(),
    }
}

pub(crate) fn acquires_releases_and_writes_are_heard() {
    let names = Names::new(30);
    let channel = "redisson_lock__channel:{name-3}";
    let fair = "3 name-3 redlatch_queue:{name-3} redlatch_waiting:{name-3} \
                c - 0 grant 10000 1000 channel PUBLISH 1 0";
    // `U` is a client, and `-` an empty word.
    let heard = |whence: &str, words: &str| {
        let words = words.replace("FAIR", fair).replace("CHANNEL", channel);
        let words = words.replace("U:", "00000000-0000-0000-0000-00000000000a:");
        let quoted =
            words.split(' ').map(|word| format!("\"{}\"", if word == "-" { "" } else { word }));
        let line = format!("+2.000005 [0 {whence}] {}", quoted.collect::<Vec<_>>().join(" "));
        commands(&line, names, 1_000_000_000)
    };
    let asked = Command { t: 1_000_005_000, key: 3, owner: (10, 7), what: What::Asked };
    let [given_back, told, wrote] =
        [What::GivenBack, What::Told, What::Wrote].map(|what| Command { what, ..asked });
    let other = Command { key: 6, owner: (10, 2), ..asked };
    let released = Command { key: 8, owner: (10, 1), ..given_back };
    assert_eq!(heard("lua", "HSET name-3 U:7 1"), [wrote]);
    for (request, expected) in [
        ("1 name-3 U:7 600 1", vec![asked]),
        ("1 name-3 U:7 CHANNEL PUBLISH", vec![given_back]),
        ("1 name-3 U:7 1 600 0 CHANNEL NUMSUB PUBLISH 1", vec![told]),
        // Several, and a renewal of several.
        ("2 name-3 name-6 600 U:7 1 U:2 1", vec![asked, other]),
        ("2 name-3 name-6 600 U:7 U:8", vec![]),
        (
            "4 name-8 name-3 token name-6 release U:1 channel PUBLISH fenced U:7 600 1 1 acquire U:2 600 1",
            vec![released, asked, other],
        ),
        ("FAIR U:7", vec![given_back]),
        ("FAIR U:7 -", vec![given_back]),
        ("FAIR U:7 1 600 0", vec![told]),
        ("FAIR U:7 1 600 - U:6", vec![told]),
        ("FAIR U:7 600 1 0 -", vec![asked]),
    ] {
        assert_eq!(heard("127.0.0.1:9", &format!("EVALSHA s {request}")), expected, "{request}");
    }
}
