//! Control messages: allocating, sealing, finding and freeing regions, one message at a time.

use std::time::Instant;

use outercore_core::{Bytes, Error, ErrorKind, Result};

use super::Server;
use super::session::Session;
use crate::data_plane::{Access, MAX_BLOB};
use crate::protocol::{self, MessageHeader, Reply, Request, StatusPage};
use crate::region::{Region, RegionKey};
use crate::socket::Socket;

/// Bytes of a status message for the list of regions; the rest is for the other fields.
const LIST_ROOM: usize = 48 << 10;

/// Serves one client until it disconnects, falls silent or violates the protocol.
pub(super) fn serve(server: &Server, session: &Session, socket: &Socket) -> Result<()> {
    loop {
        let (header, body) = receive(server, socket)?;
        // A request that cannot be decoded is refused; later requests are still valid.
        let answered = Request::decode(header.kind, &body).and_then(|request| {
            let mut alive = || {
                let message = protocol::working(header.kind, header.id);
                Ok(socket.write_before(&message, deadline(server))?)
            };
            answer(server, session, request, &mut alive)
        });
        let message = match answered.and_then(|reply| reply.encode(header.kind, header.id)) {
            Ok(message) => message,
            Err(error) => protocol::refusal(header.kind, header.id, &error),
        };
        socket.write_before(&message, deadline(server))?;
    }
}

fn deadline(server: &Server) -> Instant {
    Instant::now() + server.config.session_timeout
}

fn receive(server: &Server, socket: &Socket) -> Result<(MessageHeader, Vec<u8>)> {
    let deadline = deadline(server);
    let mut header = [0; protocol::MESSAGE_HEADER];
    socket.read_before(&mut header, deadline)?;
    let header = MessageHeader::decode(&header)?;
    let mut body = vec![0; header.len as usize];
    socket.read_before(&mut body, deadline)?;
    Ok((header, body))
}

fn answer(
    server: &Server,
    session: &Session,
    request: Request,
    alive: &mut dyn FnMut() -> Result<()>,
) -> Result<Reply> {
    let seen = |region: &super::regions::Region| Region { key: region.key, len: Bytes(region.len) };
    match request {
        Request::Allocate { len, name } => {
            let region = server.regions.allocate(session.id, len, name.as_deref(), alive)?;
            Ok(Reply::Region(Some(seen(&region))))
        }
        Request::Seal { key, keep } => {
            let _order = server.plane_order();
            server.regions.check_seal(session.id, key, keep)?;
            withdraw(server, key)?;
            server.regions.seal(session.id, key, keep)?;
            Ok(Reply::Done)
        }
        Request::Find { name } => {
            Ok(Reply::Region(server.regions.find(&name).map(|region| seen(&region))))
        }
        Request::Free { key } => {
            let _order = server.plane_order();
            let freed = server.regions.free(session.id, key)?;
            withdraw(server, key).inspect_err(|_| server.regions.write_off(freed))?;
            Ok(Reply::Done)
        }
        Request::Status { after } => {
            let mut status = server.status();
            let (regions, next) = server.regions.list(session.id, after, LIST_ROOM);
            status.regions = regions;
            Ok(Reply::Status(StatusPage { status, next }))
        }
        Request::Ping => Ok(Reply::Done),
        Request::Offer => blob(plane(server)?.offer(session.id)?),
        Request::Grant { key } => grant(server, session, key),
    }
}

fn withdraw(server: &Server, key: RegionKey) -> Result<()> {
    server.plane.as_ref().map_or(Ok(()), |plane| plane.withdraw(key))
}

fn plane(server: &Server) -> Result<&dyn crate::data_plane::PlaneListener> {
    server.plane.as_deref().ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "this server has no data plane")
            .hint("connect to HOST:PORT instead of fabric://HOST:PORT")
    })
}

fn grant(server: &Server, session: &Session, key: RegionKey) -> Result<Reply> {
    let plane = plane(server)?;
    let _order = server.plane_order();
    let (region, access) = match server.regions.writable(session.id, key) {
        Ok(region) => (region, Access::ReadWrite),
        Err(_) => (server.regions.readable(session.id, key)?, Access::Read),
    };
    let memory = std::os::fd::AsFd::as_fd(&*region);
    blob(plane.grant(session.id, key, memory, Bytes(region.len), access)?)
}

fn blob(bytes: Vec<u8>) -> Result<Reply> {
    if bytes.len() > MAX_BLOB {
        return Err(Error::internal(format!("the data plane says {} bytes", bytes.len())));
    }
    Ok(Reply::Blob(bytes))
}
