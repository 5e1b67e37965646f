//! A connection with time limits for its client.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A connection whose client has to read and, with `silent`, to write within a time limit.
pub struct Patient<S> {
    stream: S,
    stalled: Wait,
    silent: Option<Wait>,
}

impl<S> Patient<S> {
    /// `stalled`: how long the client may read nothing of the written data. `silent`: how long it
    /// may send nothing.
    pub fn new(stream: S, stalled: Duration, silent: Option<Duration>) -> Self {
        Self { stream, stalled: Wait::new(stalled), silent: silent.map(Wait::new) }
    }
}

/// A time limit that starts when an operation has to wait, and resets when it proceeds.
struct Wait {
    limit: Duration,
    end: Option<Pin<Box<Sleep>>>,
}

impl Wait {
    fn new(limit: Duration) -> Self {
        Self { limit, end: None }
    }

    /// Returns `tried`, or a timeout error if it has been pending for too long.
    fn check<T>(
        &mut self,
        context: &mut Context<'_>,
        tried: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if tried.is_ready() {
            self.end = None;
            return tried;
        }
        let limit = self.limit;
        let end = self.end.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(end.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let tried = Pin::new(&mut this.stream).poll_read(context, buffer);
        match &mut this.silent {
            Some(silent) => silent.check(context, tried),
            None => tried,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let tried = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.stalled.check(context, tried)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let tried = Pin::new(&mut this.stream).poll_write_vectored(context, parts);
        this.stalled.check(context, tried)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
