//! The calls of server and client to a data plane, and their order.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_far::{
    Access, Arrivals, Connection, DataPlane, FarAddress, FarOptions, PlaneClient, PlaneControl,
    PlaneListener, Queue, RegionKey, Remote, ServerConfig, Token, serve,
};

/// A plane that moves nothing and records its calls. With `true` it cannot withdraw a region.
#[derive(Clone, Debug, Default)]
struct Told(Arc<Mutex<Vec<String>>>, bool);

impl Told {
    fn say(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Waits for the call `last`.
    fn wait_for(&self, last: &str) -> Vec<String> {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if self.0.lock().unwrap().iter().any(|said| said == last) {
                return self.take();
            }
            assert!(Instant::now() < end, "{last}: {:?}", self.take());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl DataPlane for Told {
    fn listen(&self, host: &str, queues_per_session: usize) -> Result<Box<dyn PlaneListener>> {
        self.say(format!("listen {host} {queues_per_session}"));
        Ok(Box::new(self.clone()))
    }

    fn connect(
        &self,
        _server: &FarAddress,
        _timeout: Duration,
        control: Arc<dyn PlaneControl>,
    ) -> Result<Box<dyn PlaneClient>> {
        Ok(Box::new(Client { told: self.clone(), control }))
    }
}

impl PlaneListener for Told {
    fn offer(&self, _session: u64) -> Result<Vec<u8>> {
        self.say("offer");
        Ok(b"offered".to_vec())
    }

    fn grant(
        &self,
        _session: u64,
        _key: RegionKey,
        _memory: BorrowedFd<'_>,
        len: Bytes,
        access: Access,
    ) -> Result<Vec<u8>> {
        self.say(format!("grant {access:?} {len}"));
        Ok(b"granted".to_vec())
    }

    fn withdraw(&self, _key: RegionKey) -> Result<()> {
        self.say("withdraw");
        if self.1 { Err(Error::new(ErrorKind::Io, "stuck")) } else { Ok(()) }
    }

    fn session_ended(&self, _session: u64) {
        self.say("session_ended");
    }
}

#[derive(Debug)]
struct Client {
    told: Told,
    control: Arc<dyn PlaneControl>,
}

impl PlaneClient for Client {
    fn open_queue(
        &self,
        length: usize,
        _chunk: Bytes,
        _arrivals: &Arrivals,
    ) -> Result<Box<dyn Queue>> {
        assert_eq!(self.control.offer()?, b"offered");
        self.told.say(format!("queue {length}"));
        let missing = self.control.grant(RegionKey(1)).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        Err(Error::new(ErrorKind::Unsupported, "nothing moves"))
    }

    fn forget(&self, key: RegionKey) {
        self.told.say("forget");
        // A sealed region is granted again, but only for reading; a freed one is not.
        match self.control.grant(key) {
            Ok(grant) => assert_eq!(grant, b"granted"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
        }
    }
}

#[test]
fn a_plane_learns_of_regions_before_they_change_and_of_sessions_that_end() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    let token = Token::create_file(&file).unwrap();
    let told = Told::default();
    let listen = "fabric://127.0.0.1:0".parse().unwrap();
    let server = serve(ServerConfig {
        data_plane: Some(Arc::new(told.clone())),
        queues_per_session: 5,
        ..ServerConfig::new(listen, Bytes::mib(1), token)
    })
    .unwrap();
    assert_eq!(told.take(), ["listen 127.0.0.1 5"]);

    let options =
        FarOptions { token_file: Some(file), ..FarOptions::new(server.addresses()[0].clone()) };
    let connection = Connection::build_with(&options, Some(&told)).unwrap();
    let error = connection.open_queue(3, Bytes::kib(4), &Arrivals::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(told.take(), ["offer", "queue 3"]);

    let region = connection.allocate(Bytes(5000), Some("x")).unwrap();
    connection.seal(&region, false).unwrap();
    assert_eq!(told.take(), ["withdraw", "forget", "grant Read 4.9 KiB"]);
    connection.free(&region).unwrap();
    assert_eq!(told.take(), ["withdraw", "forget"]);

    connection.allocate(Bytes(1), None).unwrap();
    drop(connection);
    assert_eq!(told.wait_for("withdraw"), ["session_ended", "withdraw"]);
    server.stop();
}

#[test]
fn a_region_that_its_plane_holds_on_to_is_neither_sealed_nor_lent_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    let token = Token::create_file(&file).unwrap();
    let listen = "fabric://127.0.0.1:0".parse().unwrap();
    let stuck = Told(Arc::default(), true);
    let server = serve(ServerConfig {
        data_plane: Some(Arc::new(stuck.clone())),
        ..ServerConfig::new(listen, Bytes::mib(1), token)
    })
    .unwrap();
    let options =
        FarOptions { token_file: Some(file), ..FarOptions::new(server.addresses()[0].clone()) };
    let connection = Connection::build_with(&options, Some(&stuck)).unwrap();
    let region = connection.allocate(Bytes(4096), Some("x")).unwrap();
    let error = connection.seal(&region, true).unwrap_err();
    assert!(error.to_string().contains("stuck"), "{error}");
    assert_eq!(connection.find("x").unwrap(), None);
    let error = connection.free(&region).unwrap_err();
    assert!(error.to_string().contains("stuck"), "{error}");
    assert_eq!(server.status().used, Bytes(4096));
    connection.allocate(Bytes(8192), None).unwrap();
    stuck.take();
    drop(connection);
    stuck.wait_for("withdraw");
    assert_eq!(server.status().used, Bytes(4096 + 8192));
}

#[test]
fn a_server_without_a_plane_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    let token = Token::create_file(&file).unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let server = serve(ServerConfig::new(listen, Bytes::mib(1), token)).unwrap();
    let FarAddress::Tcp(at) = &server.addresses()[0] else { unreachable!() };
    let address = FarAddress::Fabric(at.clone());
    let options = FarOptions { token_file: Some(file), ..FarOptions::new(address) };
    let connection = Connection::build_with(&options, Some(&Told::default())).unwrap();
    let error = connection.open_queue(1, Bytes::kib(4), &Arrivals::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("no data plane"), "{error}");
}
