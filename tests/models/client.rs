//! How a client takes an answer, and the lack of one.

use crate::protocol::{Bug, Late, Protocol, release_pending};
use crate::state::{Call, Client, InFlight, Reply, Request, Subscription};

impl Protocol {
    /// The answer to the request in flight arrives.
    pub(crate) fn answer(&self, client: &mut Client) {
        let Some(InFlight { request, reply: Some(reply), repeated, .. }) = client.in_flight.take()
        else {
            return;
        };
        match (request, reply) {
            (Request::Acquire { count, .. }, Reply::Granted(mut term)) => {
                term.believed |= self.bug == Some(Bug::DeadlineFromReply);
                client.server = count;
                let free = client.live.iter_mut().find(|hold| hold.is_none());
                *free.expect("BUG: more than two holds") = Some(term);
                client.leave_queue();
            }
            (Request::Acquire { .. }, Reply::Refused) => {
                client.server = 0;
                client.freeing = false;
                if client.call == Call::Trying {
                    client.subscription = Subscription::Asked;
                }
                client.call = Call::Parked;
            }
            (Request::Acquire { .. }, Reply::Gone) => {
                client.gone();
                // The next try of the loop is for a first hold.
                client.call = Call::Trying;
            }
            (Request::Release { count, .. }, Reply::Nothing) if !repeated || count > 0 => {
                client.gone();
            }
            (Request::Release { count, .. }, _) => {
                client.server = client.server.min(count);
                client.freeing = false;
            }
            (request, reply) => unreachable!("{reply:?} to {request:?}"),
        }
        // A guard may have been given back meanwhile, or its deadline passed.
        client.to_release = client.pending().is_some();
    }

    /// The connection is cut, the sender notices, and sends again what was not answered. An
    /// acquire that was ahead is not sent again, only its undo.
    pub(crate) fn cut(&self, client: &mut Client) {
        self.abandon(client);
        if let Some(in_flight) = &mut client.in_flight {
            in_flight.ahead = None;
            in_flight.reply = None;
            in_flight.repeated = true;
        }
    }

    /// No answer in time: the caller gets an error, or asks again if it is in the wait queue, and
    /// what may have been executed is undone on another connection.
    pub(crate) fn give_up(&self, client: &mut Client) {
        self.abandon(client);
        client.in_flight = None;
        match client.call {
            Call::None | Call::Parked => {}
            Call::Trying => client.call = Call::None,
            Call::Asking { .. } => {
                client.call = Call::Parked;
                client.again = true;
            }
        }
        client.to_release = client.pending().is_some();
    }

    /// What the server has not read yet goes with the connection, or comes late.
    fn abandon(&self, client: &mut Client) {
        client.unanswered |= self.late == Late::NewNumber;
        if self.late == Late::Never {
            return;
        }
        if let Some(InFlight { ahead, request, reply, .. }) = client.in_flight {
            let request = Some(request).filter(|_| reply.is_none());
            [ahead, request].into_iter().flatten().for_each(|r| client.add_late(r));
        }
    }

    /// The connection of the client's own thread is cut: what was sent is sent again, what was
    /// subscribed is subscribed again.
    pub(crate) fn cut_own(&self, client: &mut Client) {
        if client.subscription != Subscription::Off {
            let again = self.bug != Some(Bug::NoResubscription);
            client.subscription = if again { Subscription::Asked } else { Subscription::Off };
            client.message = false;
        }
        if let Some(renewal) = &mut client.renewal {
            renewal.reply = None;
        }
    }

    /// The call's future is dropped. What it has sent is undone behind it, on the same
    /// connection.
    pub(crate) fn cancel(&self, client: &mut Client) {
        client.leave_queue();
        let Some(InFlight { request: request @ Request::Acquire { .. }, reply, .. }) =
            client.in_flight
        else {
            return;
        };
        if self.bug == Some(Bug::NoUndo) {
            client.in_flight = None;
            client.server = client.holds();
            if reply.is_none() {
                client.add_late(request);
            }
            return;
        }
        client.in_flight = None;
        let mut ahead = Some(request).filter(|_| reply.is_none());
        if self.bug == Some(Bug::UndoOvertakes) {
            ahead.take().into_iter().for_each(|request| client.add_late(request));
        }
        release_pending(client, ahead);
        match (&mut client.in_flight, ahead) {
            (Some(in_flight), _) => in_flight.undo = true,
            // A renewal has said that there is nothing left to undo. It is on its way all the same.
            (None, Some(request)) => client.add_late(request),
            (None, None) => {}
        }
    }
}
