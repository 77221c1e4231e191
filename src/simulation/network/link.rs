//! The way between one machine and one server.

use std::time::Duration;

use tokio::time::Instant;

use crate::simulation::Random;

/// How far away something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Distance {
    /// How long each way takes.
    pub each_way: Duration,
    /// By how much longer a way may take, at random.
    pub jitter: Duration,
    /// Bytes a second, each way; `None` for any number.
    pub bandwidth: Option<u64>,
}

/// From a machine to a server, or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the server.
    Up,
    /// To the machine.
    Down,
}

/// What a way does with what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flow {
    /// What is sent arrives.
    #[default]
    Open,
    /// What is sent is held, and arrives when the way is open again. Neither end learns of it.
    Held,
}

pub(super) struct Link<E, T> {
    /// `None` for that of the network.
    pub(super) distance: Option<Distance>,
    pub(super) up: Way<E>,
    pub(super) down: Way<E>,
    /// Whether connections are refused.
    pub(super) refuses: bool,
    pub(super) traps: Vec<T>,
}

pub(super) struct Way<E> {
    pub(super) flow: Flow,
    /// What is held, in order.
    pub(super) held: Vec<E>,
    /// Until when the bytes before take up the bandwidth.
    busy_until: Option<Instant>,
}

impl<E, T> Default for Link<E, T> {
    fn default() -> Self {
        let (up, down) = (Way::default(), Way::default());
        Self { distance: None, up, down, refuses: false, traps: Vec::new() }
    }
}

impl<E> Default for Way<E> {
    fn default() -> Self {
        Self { flow: Flow::Open, held: Vec::new(), busy_until: None }
    }
}

impl<E, T> Link<E, T> {
    pub(super) fn way(&mut self, direction: Direction) -> &mut Way<E> {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }
}

impl<E> Way<E> {
    /// When so many bytes arrive that are sent now.
    pub(super) fn arrival(
        &mut self,
        bytes: usize,
        distance: &Distance,
        random: &mut Random,
        now: Instant,
    ) -> Instant {
        let mut sent = now;
        if let Some(bandwidth) = distance.bandwidth {
            let micros = bytes as u64 * 1_000_000 / bandwidth.max(1);
            sent =
                self.busy_until.map_or(now, |until| until.max(now)) + Duration::from_micros(micros);
            self.busy_until = Some(sent);
        }
        let jitter =
            if distance.jitter.is_zero() { Duration::ZERO } else { random.up_to(distance.jitter) };
        sent + distance.each_way + jitter
    }
}
