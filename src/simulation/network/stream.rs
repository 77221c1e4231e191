//! The machine's end of a connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::event::Event;
use super::{ConnectionState, Direction, Network, State};

/// The machine's end of a connection. Its drop closes the connection.
pub(in crate::simulation) struct SimulatedStream {
    pub(super) network: Network,
    pub(super) number: u64,
}

impl AsyncRead for SimulatedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.network.with(|state, _| state.read(self.number, cx, buf))
    }
}

impl AsyncWrite for SimulatedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(self.network.with(|state, now| {
            let connection = state.connections.get(&self.number);
            if connection.is_none_or(|one| one.is_closed || one.state != ConnectionState::Open) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            state.note(now, 2 * self.number, bytes);
            let request = Event::Request(self.number, bytes.to_vec());
            state.send(self.number, Direction::Up, request, now);
            Ok(bytes.len())
        }))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.network.with(|state, now| state.close(self.number, now));
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimulatedStream {
    fn drop(&mut self) {
        self.network.with(|state, now| state.close(self.number, now));
    }
}

impl State {
    fn read(
        &mut self,
        number: u64,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(connection) = self.connections.get_mut(&number) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        };
        // A reset discards what has arrived.
        if connection.state == ConnectionState::Reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let mut has_read = false;
        while buf.remaining() > 0
            && let Some(bytes) = connection.arrived.front()
        {
            let rest = &bytes[connection.read..];
            let part = rest.len().min(buf.remaining());
            buf.put_slice(&rest[..part]);
            has_read = true;
            connection.read += part;
            if connection.read == bytes.len() {
                connection.arrived.pop_front();
                connection.read = 0;
            }
        }
        let ended = connection.is_closed || connection.state == ConnectionState::Ended;
        if has_read || ended {
            return Poll::Ready(Ok(()));
        }
        connection.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}
