//! A lock that Redis granted to this client without a request, because it had its turn.
//!
//! 1. **No such grant is believed for longer than it lasts**, and no clock of a server has to agree
//!    with that of a client. The message says at which time of the server the grant began. Once
//!    before, the server said its time in an answer: so the grant began no earlier after the request
//!    for that answer than the server's clock has gone on since.
//! 2. What the message says of others is news of then: of waiters that came up to a round trip later, however late it
//!    is heard.
//! 3. If the server's clock is set ahead in between, the grant seems to begin later than it did. If that
//!    is later than its message came, it is not believed: so it is believed for too long by no more
//!    than the message was on its way.
//! 4. A message can get lost. Then Redis refuses this client because of its own grant, and the refusal says
//!    of the grant what the message would have said. A client that leaves the queue before the message comes hears the
//!    same.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use super::{Names, OldestForeignWaiter};
use crate::config::QUEUE_TERM;
use crate::lease::{MAX_LEASE, valid_until, whole_millis};
use crate::token::{FencingToken, TokenBlock};

/// The server's time, as an answer said it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerClock {
    /// When the request was sent.
    pub(crate) asked: Instant,
    /// In microseconds.
    pub(crate) said: u64,
    /// How long the answer took.
    pub(crate) round_trip: Duration,
}

impl ServerClock {
    /// A time that is not after that of the server, and how long after this one that is. `None` if the
    /// server's clock was set back, or ahead.
    fn at(self, micros: u64, now: Instant) -> Option<(Instant, Duration)> {
        let since = Duration::from_micros(micros.checked_sub(self.said)?);
        let at = self.asked.checked_add(since)?;
        // Invariant 3, and two clocks that do not run equally fast.
        (at <= now.checked_add(since / 100)?).then_some((at.min(now), since))
    }
}

/// A lock that this client has, under an owner that no handle is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) names: Names,
    pub(crate) owner: String,
    pub(crate) lease: Duration,
    /// Until when the grant is valid; `None` if the client does not know that.
    pub(crate) until: Option<Instant>,
    /// Who waits in other clients, if the client knows when the grant began.
    pub(crate) foreign: Option<OldestForeignWaiter>,
    /// The tokens that Redis drew with the grant.
    pub(crate) tokens: TokenBlock,
}

impl Grant {
    /// The grant because of which Redis has refused a request of this client, sent at `sent`, when its oldest
    /// waiter had come at `came`. `None` if the holder is another owner, be it one under which this client leaves
    /// a lock in Redis for a while: the number of that is no time.
    ///
    /// It is not believed if that waiter came after it: it was granted to an older one, which has left, and one in
    /// another client may have come before this one. The client that released the lock chose its grace.
    pub(crate) fn of_refusal(
        names: &Names,
        holder: &str,
        remaining: Option<Duration>,
        came: Instant,
        sent: Instant,
        clock: Option<ServerClock>,
    ) -> Option<Self> {
        let at: u64 = holder.strip_prefix(names.client())?.strip_prefix(":-")?.parse().ok()?;
        let since = Duration::from_micros(clock?.said.checked_sub(at)?);
        let remaining = remaining.filter(|_| since <= QUEUE_TERM)?;
        let until = Some(valid_until(sent, remaining)).filter(|_| came + since <= sent);
        let lease = whole_millis(since + remaining);
        let (names, owner) = (names.clone(), holder.to_owned());
        Some(Self { names, owner, lease, until, foreign: None, tokens: TokenBlock::default() })
    }
}

/// A message on the channel of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TurnMessage<'a> {
    /// The client has to ask, after that time.
    Ask(Duration),
    /// The client has the lock.
    Granted { key: &'a str, at: u64, lease: Duration, others: i64, tokens: TokenBlock },
}

impl<'a> TurnMessage<'a> {
    /// A message that is nothing else is that of a release.
    pub(crate) fn of(payload: &'a [u8]) -> Self {
        let text = std::str::from_utf8(payload).unwrap_or_default();
        Self::granted(text)
            .unwrap_or_else(|| Self::Ask(Duration::from_millis(text.parse().unwrap_or_default())))
    }

    fn granted(text: &'a str) -> Option<Self> {
        let mut parts = text.splitn(6, ' ');
        let at = parts.next()?.parse().ok()?;
        let lease = Duration::from_millis(parts.next()?.parse().ok()?);
        // With more, the time of its end could not be computed.
        (lease <= MAX_LEASE).then_some(())?;
        let others = parts.next()?.parse().ok()?;
        let last: u64 = parts.next()?.parse().ok()?;
        let many = parts.next()?.parse().ok()?;
        let last = NonZeroU64::new(last).map(FencingToken::new);
        let tokens = last.map(|last| TokenBlock::up_to(last, many)).unwrap_or_default();
        Some(Self::Granted { key: parts.next()?, at, lease, others, tokens })
    }

    /// The grant of a message that came on that channel at `now`. `None` if it is no grant.
    pub(crate) fn into_grant(
        self,
        channel: &str,
        clock: Option<ServerClock>,
        now: Instant,
    ) -> Option<Grant> {
        let Self::Granted { key, at, lease, others, tokens } = self else { return None };
        let names = Names::of_client(channel, key)?;
        let owner = format!("{}:-{at}", names.client());
        let begun = clock.and_then(|clock| clock.at(at, now));
        // Invariant 1: the clocks run equally fast up to the margin of a lease, for both times.
        let until =
            begun.and_then(|(begun, since)| valid_until(begun, lease).checked_sub(since / 100));
        let foreign = clock.zip(begun).and_then(|(clock, (begun, _))| {
            OldestForeignWaiter::known(begun, now.min(begun + clock.round_trip), others)
        });
        Some(Grant { names, owner, lease, until, foreign, tokens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const CLIENT: &str = "0c2b5a3e-7a4e-4d56-9f0e-1d2c3b4a5968";
    const GRACE: Duration = Duration::from_secs(1);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn grant(clock: Option<ServerClock>, at: u64, now: Instant) -> Grant {
        let text = format!("{at} 1000 -1 0 0 lock of mine");
        let channel = format!("redisson_lock__channel:{{lock of mine}}:{CLIENT}");
        TurnMessage::of(text.as_bytes()).into_grant(&channel, clock, now).expect("a grant")
    }

    #[test]
    fn a_grant_is_believed_from_no_later_than_it_began() {
        let asked = clock::now();
        let clock = ServerClock { asked, said: 5_000_000, round_trip: ms(5) };
        // The server said its time when the request was there; the client knows when it left.
        let grant = |at, now| grant(Some(clock), at, now).until.expect("a deadline");
        let later = asked + ms(10_000);
        assert_eq!(grant(5_000_000, later), asked + GRACE - ms(11));
        assert_eq!(grant(7_000_000, later), asked + ms(2_000) + GRACE - ms(11 + 20));
        // A clock that runs a little faster: not after the message.
        let now = asked + ms(3_980);
        assert_eq!(grant(9_000_000, now), now + GRACE - ms(11 + 40));
    }

    #[test]
    fn what_a_grant_says_of_others_is_news_of_then() {
        let asked = clock::now();
        let clock = ServerClock { asked, said: 5_000_000, round_trip: ms(5) };
        let foreign = |now| grant(Some(clock), 5_010_000, now).foreign.expect("news");
        let news = foreign(asked + ms(300));
        assert_eq!((news.as_of, news.answered), (asked + ms(10), asked + ms(15)));
        assert_eq!(foreign(asked + ms(12)).answered, asked + ms(12));
    }

    #[test]
    fn a_grant_of_unknown_age_is_not_believed() {
        let now = clock::now();
        assert_eq!(grant(None, 1, now).until, None);
        let clock = ServerClock { asked: now, said: 2, round_trip: ms(5) };
        assert_eq!(grant(Some(clock), 1, now).until, None, "the clock was set back");
        let at = 2 + 60_000_000;
        assert_eq!(grant(Some(clock), at, now + ms(300)).until, None, "it was set ahead");
        assert_eq!(grant(Some(clock), u64::MAX, now).until, None);
    }

    #[test]
    fn a_refusal_says_which_grant_it_was_and_an_owner_of_another_kind_is_none() {
        let sent = clock::now();
        let names = Names::new("", "lock").with_own_channel(CLIENT);
        let of = |holder: &str, said, remaining| {
            let clock = Some(ServerClock { asked: sent, said, round_trip: ms(5) });
            Grant::of_refusal(&names, holder, remaining, sent - ms(400), sent, clock)
        };
        let holder = format!("{CLIENT}:-50000000");
        let grant = of(&holder, 50_300_000, Some(ms(700))).expect("a grant");
        assert_eq!(grant.owner, holder);
        assert_eq!((grant.until, grant.lease), (Some(valid_until(sent, ms(700))), GRACE));
        let young = of(&holder, 50_500_000, Some(ms(500))).expect("a grant");
        assert_eq!(young.until, None, "the waiter came after it");
        assert_eq!(of(&holder, 50_300_000, None), None, "without an end");
        assert_eq!(of(&holder, 60_000_001, Some(ms(700))), None, "longer ago than any grace");
        assert_eq!(of(&holder, 49_900_000, Some(ms(700))), None, "later than now");
        for other in [format!("{CLIENT}:-7"), format!("{CLIENT}:7"), "x:-50000000".into()] {
            assert_eq!(of(&other, 50_300_000, Some(ms(700))), None, "{other}");
        }
    }

    #[test]
    fn a_message_names_the_key_and_the_owner_has_the_time_in_its_name() {
        let now = clock::now();
        let grant = grant(None, 17, now);
        assert_eq!((grant.names.key(), &*grant.owner), ("lock of mine", &*format!("{CLIENT}:-17")));
        let channel = format!("redisson_lock__channel:{{a}}b:{CLIENT}");
        let of = |key: &str| {
            let text = format!("17 1000 5 21 3 {key}");
            TurnMessage::of(text.as_bytes()).into_grant(&channel, None, now)
        };
        let mut grant = of("{a}b").expect("a grant");
        assert_eq!(grant.names.key(), "{a}b");
        let tokens: Vec<u64> = std::iter::from_fn(|| grant.tokens.draw()).map(u64::from).collect();
        assert_eq!(tokens, [19, 20, 21]);
        assert_eq!(of("c"), None, "another lock");
        // A forged one: the last token that there is, and none was drawn.
        for drawn in [0, 1] {
            let text = format!("17 1000 5 {} {drawn} {{a}}b", u64::MAX);
            let forged = TurnMessage::of(text.as_bytes()).into_grant(&channel, None, now);
            let mut tokens = forged.expect("a grant").tokens;
            let all = [tokens.draw(), tokens.draw()].map(|token| token.map(u64::from));
            assert_eq!(all, [(drawn == 1).then_some(u64::MAX), None]);
        }
        for (text, millis) in [
            ("0", 0),
            ("1001", 1001),
            ("", 0),
            ("x", 0),
            ("1 2 3 4 x y", 0),
            ("1 18446744073709551615 5 0 0 key", 0),
        ] {
            assert_eq!(TurnMessage::of(text.as_bytes()), TurnMessage::Ask(ms(millis)), "{text}");
        }
    }
}
