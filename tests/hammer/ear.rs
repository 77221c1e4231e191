//! Hears every command that the server carries out, for a short while: MONITOR costs it a lot.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::history::{Command, Heard};
use crate::names::Names;
use crate::record::now;
use crate::support::Server;
use crate::witness::owner;

pub(crate) struct Ear {
    stream: TcpStream,
    from: u64,
    offset: u64,
    thread: JoinHandle<Vec<Command>>,
}

impl Ear {
    pub(crate) fn listen(server: &Server, names: Names) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        // Connections with a name are spared by the nemesis.
        stream.write_all(b"CLIENT SETNAME witness\r\nMONITOR\r\n").expect("asking");
        let mut lines = BufReader::new(stream.try_clone().expect("a second end"));
        let mut line = String::new();
        for _ in 0..2 {
            lines.read_line(&mut line).expect("being heard");
        }
        let offset = offset();
        let thread = std::thread::spawn(move || {
            let mut commands = Vec::new();
            for line in lines.lines().map_while(Result::ok) {
                commands.extend(command(&line, names, offset));
            }
            commands
        });
        Self { stream, from: now(), offset, thread }
    }

    pub(crate) fn heard(self) -> Heard {
        let Self { stream, from, offset: before, thread } = self;
        let to = now();
        // What happened until now may still be on its way.
        std::thread::sleep(Duration::from_millis(100));
        let _ = stream.shutdown(Shutdown::Both);
        let commands = thread.join().expect("the ear failed");
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
/// an acquire; `+... [0 lua] "HSET" "name-3" "<owner>" "1"`, for what a script writes.
fn command(line: &str, names: Names, offset: u64) -> Option<Command> {
    let (time, rest) = line.strip_prefix('+')?.split_once(' ')?;
    let (seconds, micros) = time.split_once('.')?;
    let nanos = seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1000;
    let (whence, rest) = rest.split_once("] ")?;
    let words: Vec<&str> = rest.split('"').skip(1).step_by(2).collect();
    let (key, who, wrote) = match *words {
        ["HSET", key, who, _] if whence.ends_with("lua") => (key, who, true),
        ["EVALSHA", _, "1", key, who, _, _] | ["EVALSHA", _, "2", key, _, who, _, _] => {
            (key, who, false)
        }
        _ => return None,
    };
    // The other scripts have no owner in that place.
    let owner = Some(owner(who)).filter(|owner| *owner != Default::default())?;
    let key = names.all().find(|number| names.name(*number) == key)?;
    Some(Command { t: nanos - offset, key, owner, wrote })
}

pub(crate) fn only_acquires_and_writes_are_heard() {
    let names = Names::new(30);
    let uuid = "00000000-0000-0000-0000-00000000000a";
    let heard = |line: &str| command(line, names, 1_000_000_000);
    let acquire =
        format!("+2.000005 [0 127.0.0.1:9] \"EVALSHA\" \"s\" \"1\" \"name-3\" \"{uuid}:7\"");
    let (t, key, owner) = (1_000_005_000, 3, (10, 7));
    let asked = Command { t, key, owner, wrote: false };
    assert_eq!(heard(&format!("{acquire} \"600\" \"1\"")), Some(asked));
    let write = format!("+2.000005 [0 lua] \"HSET\" \"name-3\" \"{uuid}:7\" \"1\"");
    assert_eq!(heard(&write), Some(Command { wrote: true, ..asked }));
    let renew =
        format!("\"EVALSHA\" \"s\" \"2\" \"name-3\" \"name-6\" \"600\" \"{uuid}:7\" \"{uuid}:8\"");
    assert_eq!(heard(&format!("+2.000005 [0 127.0.0.1:9] {renew}")), None);
    let release = format!("{acquire} \"0\" \"1\" \"channel\"");
    assert_eq!(heard(&release), None);
}
