//! A server of a few lines, which answers like one of another version. It is no Redis: it knows
//! nothing but what is said before the first lock.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::support::proxy::resp::command;
use crate::support::{listen, unpoisoned as lock};

/// What a server of that version says, in its own words.
#[derive(Clone, Copy)]
pub(crate) struct Says {
    /// To `HELLO`: who it is, and its version; nothing if it does not know that command.
    hello: Option<(&'static str, &'static str)>,
    /// To `CLIENT INFO`.
    client_info: &'static str,
}

const NO_SUBCOMMAND: &str =
    "-ERR Unknown subcommand or wrong number of arguments for 'INFO'. Try CLIENT HELP\r\n";

impl Says {
    pub(crate) const VERSION_5: Self = Self { hello: None, client_info: NO_SUBCOMMAND };
    pub(crate) const VERSION_6_0: Self =
        Self { hello: Some(("redis", "6.0.16")), client_info: NO_SUBCOMMAND };
    pub(crate) const VERSION_6_2: Self = Self {
        hello: Some(("redis", "6.2.14")),
        client_info: "+id=7 addr=127.0.0.1:4711 laddr=127.0.0.1:6379\r\n",
    };
    pub(crate) const ANOTHER_1_0: Self =
        Self { hello: Some(("another", "1.0.0")), client_info: NO_SUBCOMMAND };

    fn answer(&self, command: &[String]) -> String {
        let arguments = || command[1..].iter().map(|word| format!("`{word}`, "));
        let unknown = || {
            let with = arguments().collect::<String>();
            format!("-ERR unknown command `{}`, with args beginning with: {with}\r\n", command[0])
        };
        match (command[0].as_str(), self.hello) {
            ("HELLO", Some(_)) if command.len() == 1 => {
                "-ERR wrong number of arguments for 'hello' command\r\n".to_owned()
            }
            ("HELLO", Some((server, version))) => format!(
                "%3\r\n$6\r\nserver\r\n${}\r\n{server}\r\n$7\r\nversion\r\n${}\r\n{version}\r\n\
                 $5\r\nproto\r\n:3\r\n",
                server.len(),
                version.len(),
            ),
            ("CLIENT", _) if command[1] == "INFO" => self.client_info.to_owned(),
            ("CLIENT", _) => NO_SUBCOMMAND.replace("INFO", &command[1]),
            _ => unknown(),
        }
    }
}

pub(crate) struct Script {
    port: u16,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    says: Says,
    heard: BTreeMap<String, u64>,
    open: Vec<TcpStream>,
}

impl Script {
    pub(crate) fn start(says: Says) -> Self {
        let listener = listen();
        let port = listener.local_addr().expect("an address").port();
        let shared = Shared { says, heard: BTreeMap::new(), open: Vec::new() };
        let shared = Arc::new(Mutex::new(shared));
        let here = shared.clone();
        // It ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                lock(&here).open.push(stream.try_clone().expect("a second handle"));
                let shared = here.clone();
                thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { port, shared }
    }

    pub(crate) fn url(&self, password: &str) -> String {
        format!("redis://:{password}@127.0.0.1:{}/", self.port)
    }

    /// Another server takes its place: every connection breaks.
    pub(crate) fn becomes(&self, says: Says) {
        let mut shared = lock(&self.shared);
        shared.says = says;
        for stream in shared.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// How often a command came.
    pub(crate) fn heard(&self, verb: &str) -> u64 {
        lock(&self.shared).heard.get(verb).copied().unwrap_or(0)
    }
}

fn serve(mut stream: TcpStream, shared: &Mutex<Shared>) {
    let (mut buffer, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = stream.read(&mut chunk) {
        buffer.extend_from_slice(&chunk[..length]);
        while let Some((words, end)) = command(&buffer) {
            let words = words.into_iter().map(|word| String::from_utf8_lossy(word).into_owned());
            let words: Vec<_> = words.collect();
            let answer = {
                let mut shared = lock(shared);
                *shared.heard.entry(words[0].clone()).or_default() += 1;
                shared.says.answer(&words)
            };
            buffer.drain(..end);
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}
