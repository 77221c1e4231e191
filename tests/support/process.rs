//! The process of a server, or of a test's child, and the ports that are free for one.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the range from which systems take the ports of outgoing connections, so that a server
/// that was stopped finds its port free again. So is a cluster's bus.
const FIRST_PORT: u16 = 15_000;
const PORTS: u16 = 7_500;

/// So far above its port a node of a cluster talks to the others.
const BUS: u16 = 10_000;

/// A process, and a shell that outlives us if we are killed and then ends it, too, be it stopped or not.
pub(super) struct Process {
    pub(super) child: Child,
    heir: Option<Child>,
}

impl Process {
    pub(super) fn new(child: Child) -> Self {
        // It reads from us until we are gone, whichever way that comes about: what ends us when a terminal is closed must
        // not end it, too.
        let script = format!("trap '' HUP INT QUIT TERM; read -r _; kill -9 {}", child.id());
        let heir = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self { child, heir: heir.ok() }
    }

    pub(super) fn signal(&self, signal: &str) {
        let pid = self.child.id();
        // The shell's own `kill`: the program of that name is not everywhere.
        let script = format!("kill -{signal} {pid}");
        let status = Command::new("sh").args(["-c", &script]).status().expect("running sh");
        assert!(status.success(), "could not send SIG{signal} to process {pid}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The heir first: it must not kill another process that gets the child's number.
        for child in self.heir.iter_mut().chain([&mut self.child]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The next port on which, and on whose bus, nobody listens. Test binaries may run side by side:
/// each starts at another place. No test of this binary is given that port again for long, and the system gives it to
/// nobody who asks for any port: so it is one at which nobody will listen, too, where a test lets a client dial.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let offset = (std::process::id() as u16).wrapping_mul(97);
    let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(offset);
        let port = FIRST_PORT + next % PORTS;
        if is_free(port) && is_free(port + BUS) {
            return port;
        }
    }
}

/// Listens at a port that no client of another test still dials. One that the system chooses may have been that of a
/// listener that has ended, which its clients go on dialling.
pub(crate) fn listen() -> TcpListener {
    loop {
        // Another program of the suite may have taken it meanwhile.
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())) {
            return listener;
        }
    }
}
