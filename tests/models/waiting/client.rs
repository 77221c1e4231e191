//! How a client asks, and takes an answer and the lack of one.

use super::state::{Call, Client, Health, InFlight, Reply, Request, Subscription};
use super::{Bug, Waiting};

impl Waiting {
    /// `Acquisition::try_once` (`src/acquire/ask.rs`), up to the request.
    pub(super) fn ask(&self, client: &mut Client) {
        client.call = match client.call {
            Call::Parked => Call::Asking { by_time: !client.again },
            call => call,
        };
        (client.again, client.due, client.counted) = (false, false, true);
        client.in_flight = Some(InFlight::new(Request::Acquire));
    }

    /// The answer to the request in flight arrives.
    pub(super) fn answer(&self, client: &mut Client) {
        let Some(InFlight { reply: Some(reply), .. }) = client.in_flight.take() else { return };
        match reply {
            Reply::Granted(mut term) => {
                term.believed |= self.bug == Some(Bug::DeadlineFromReply);
                client.hold = Some(term);
                client.leave_queue();
            }
            Reply::Refused => {
                client.counted = false;
                if client.call == Call::Trying {
                    client.subscription = Subscription::Asked;
                }
                client.call = Call::Parked;
            }
            Reply::Released => client.counted = false,
        }
        // The deadline of what is granted may have passed.
        client.to_release = client.is_pending();
    }

    /// The connection is cut, the sender notices, and sends again what was not answered. An
    /// acquire that was ahead is not sent again, only its undo.
    pub(super) fn cut(&self, client: &mut Client) {
        if let Some(in_flight) = &mut client.in_flight {
            (in_flight.ahead, in_flight.reply, in_flight.repeated) = (false, None, true);
        }
    }

    /// No answer in time: the caller gets an error, or asks again if it is in the wait queue, and
    /// what may have been executed is undone on another connection.
    pub(super) fn give_up(&self, client: &mut Client) {
        client.in_flight = None;
        match client.call {
            Call::None | Call::Parked => {}
            Call::Trying => client.call = Call::None,
            Call::Asking { .. } => (client.call, client.again) = (Call::Parked, true),
        }
        client.to_release = client.is_pending();
    }

    /// The connection of the client's own thread is cut: what was subscribed is subscribed again.
    pub(super) fn cut_own(&self, client: &mut Client) {
        let again = self.bug != Some(Bug::NoResubscription);
        client.subscription = if again { Subscription::Asked } else { Subscription::Off };
        client.message = false;
    }

    /// The call's future is dropped. What it has sent is undone behind it, on the same
    /// connection.
    pub(super) fn cancel(&self, client: &mut Client) {
        client.leave_queue();
        let Some(InFlight { request: Request::Acquire, reply, .. }) = client.in_flight else {
            return;
        };
        client.in_flight = None;
        let mut ahead = reply.is_none();
        if self.bug == Some(Bug::NoUndo) {
            client.counted = false;
        }
        if ahead && matches!(self.bug, Some(Bug::NoUndo | Bug::UndoOvertakes)) {
            client.add_late(Request::Acquire);
            ahead = false;
        }
        if client.counted {
            release_pending(client);
            client.in_flight = client.in_flight.map(|undo| InFlight { ahead, undo: true, ..undo });
        }
    }
}

/// `release_in_background` (`src/releaser.rs`), up to the request.
pub(super) fn release_pending(client: &mut Client) {
    client.to_release = false;
    client.in_flight = Some(InFlight::new(Request::Release));
}

pub(super) fn crash(client: &mut Client) {
    let mut after = Client::new(false);
    after.health = Health::Crashed { holding: client.believes() };
    // What is in the sockets may still arrive.
    if let Some(InFlight { ahead, request, reply, .. }) = client.in_flight {
        let ahead = ahead.then_some(Request::Acquire);
        let request = Some(request).filter(|_| reply.is_none());
        [ahead, request].into_iter().flatten().for_each(|r| after.add_late(r));
    }
    client.late.into_iter().flatten().for_each(|request| after.add_late(request));
    *client = after;
}
