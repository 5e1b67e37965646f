//! Batches do not depend on the content of far memory, nor on failures of its server.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use common::{base, deliver};
use outercore_core::{Bytes, ErrorKind, Result};
use outercore_far::{Contents, FarAddress, FarOptions, FarTier, ServerConfig, Token, serve};
use outercore_io::{Engine, EngineConfig};
use outercore_pipeline::{Advance, Counters, Loader, LoaderConfig, TopologyMode};
use outercore_store::dataset::DataSet;
use outercore_testkit::{Csc, HeapRemote};

fn options() -> FarOptions {
    let options = FarOptions::new("10.0.0.9:7411".parse().unwrap());
    FarOptions { chunk: Bytes::kib(16), queue_length: 4, ..options }
}

fn tier(server: &HeapRemote, options: &FarOptions) -> Arc<FarTier> {
    Arc::new(FarTier::over_remote(Arc::new(server.client()), options).unwrap())
}

fn loader(root: &Path, config: &LoaderConfig) -> Loader {
    Loader::new(DataSet::open(root).unwrap(), None, config.clone()).unwrap()
}

/// Few row slots, so that every batch reads rows; the topology is on disk.
fn config() -> LoaderConfig {
    let topology = TopologyMode::Paged;
    LoaderConfig { constant_share: Some(0.1), group: Some(2), topology, ..base() }
}

fn graph(root: &Path) {
    common::write(root, &Csc::power_law(3000, 30_000, 1));
}

fn served(counters: Counters) -> (u64, u64) {
    let far = counters.far.unwrap();
    (far.far_requests, far.disk_requests)
}

#[test]
fn batches_are_the_same_however_much_the_server_holds() {
    let directory = tempfile::tempdir().unwrap();
    graph(directory.path());
    for topology in [TopologyMode::Resident, TopologyMode::Paged] {
        let config = LoaderConfig { topology, ..config() };
        let expected = deliver(&mut loader(directory.path(), &config), 0, 0);
        for (size, queues) in [(4, 1), (70, 1), (200, 2), (10_000, 1)] {
            let server = HeapRemote::new(Bytes::kib(size));
            let options = FarOptions { queues, ..options() };
            let mut loader = loader(directory.path(), &config).through(tier(&server, &options));
            let plan = loader.plan().unwrap().far.unwrap();
            assert_eq!(plan.placed, server.used(), "{size} KiB");
            let all_fit = plan.placed.0 + plan.refused.0 <= size << 10;
            assert_eq!(plan.refused == Bytes(0), all_fit, "{plan:?}");
            assert!(deliver(&mut loader, 0, 0) == expected, "{size} KiB, {topology:?}");
            let (far, disk) = served(loader.take_counters().0);
            assert_eq!(far > 0, size > 4, "{size} KiB");
            if size == 10_000 {
                // Files that stay in memory are read once, from the disk.
                assert!(far > disk, "{far} far, {disk} from the disk");
            }
            drop(loader);
            assert_eq!(server.used(), Bytes(0));
        }
    }
}

#[test]
fn what_others_have_kept_is_found_and_not_copied() {
    let directory = tempfile::tempdir().unwrap();
    graph(directory.path());
    let dataset = DataSet::open(directory.path()).unwrap();
    let server = HeapRemote::new(Bytes::mib(10));
    let giver = tier(&server, &options());
    let mut engine = Engine::open(EngineConfig::default()).unwrap();
    for key in ["nodes/node/x", "edges/edge/offsets", "edges/edge/sources", "edges/edge/ids"] {
        let array = dataset.array(key).unwrap();
        let contents = Contents {
            name: &array.content_name(),
            checksum: &array.checksum,
            data: array.data_offset..array.data_offset + array.data_len(),
        };
        giver.keep(&array.path, &contents, &mut engine, &mut |_, _| Ok(())).unwrap();
    }
    drop(giver);
    let kept = server.used();
    let expected = deliver(&mut loader(directory.path(), &config()), 0, 0);
    let mut loader = loader(directory.path(), &config()).through(tier(&server, &options()));
    let plan = loader.plan().unwrap().far.unwrap();
    assert_eq!((plan.found, plan.placed, plan.refused), (kept, Bytes(0), Bytes(0)));
    assert!(deliver(&mut loader, 0, 0) == expected);
    let (far, disk) = served(loader.take_counters().0);
    assert!(far > 0 && disk == 0, "{far} far, {disk} from the disk");
    drop(loader);
    assert_eq!(server.used(), kept);
}

#[test]
fn progress_goes_to_the_end_and_may_stop_it() {
    let directory = tempfile::tempdir().unwrap();
    graph(directory.path());
    let server = HeapRemote::new(Bytes::mib(10));
    let mut copied = loader(directory.path(), &config()).through(tier(&server, &options()));
    let mut steps = Vec::new();
    let mut watch = |done, total| {
        steps.push((done, total));
        Ok(())
    };
    let placed = copied.plan_with(&mut watch).unwrap().far.unwrap().placed.0;
    assert!(steps.is_sorted());
    assert_eq!(steps.last(), Some(&(placed, placed)));

    let mut stopped = loader(directory.path(), &config()).through(tier(&server, &options()));
    let mut stop = |_, _| Err(outercore_core::Error::new(ErrorKind::Interrupted, "stop"));
    assert_eq!(stopped.plan_with(&mut stop).unwrap_err().kind(), ErrorKind::Interrupted);
}

/// Delivers the batches of an epoch; the server dies after `after` of them.
fn deliver_with_a_death(root: &Path, fallback: bool, after: usize) -> (Loader, Result<usize>) {
    let server = HeapRemote::new(Bytes::mib(10));
    let options = FarOptions { fallback, ..options() };
    let mut loader = loader(root, &config()).through(tier(&server, &options));
    let mut run = loader.epoch(0, 0).unwrap();
    let mut batches = 0;
    let outcome = loop {
        if batches == after {
            server.die_after(0);
        }
        match run.advance(common::PATIENCE) {
            Ok(Advance::Batch) => batches += 1,
            Ok(Advance::End) => break Ok(batches),
            Ok(Advance::NotYet) => panic!("no batch within {:?}", common::PATIENCE),
            Err(error) => break Err(error),
        }
    };
    loader.finish(run).unwrap();
    (loader, outcome)
}

#[test]
fn an_epoch_goes_on_from_the_disk_when_the_server_dies() {
    let directory = tempfile::tempdir().unwrap();
    graph(directory.path());
    let expected = deliver(&mut loader(directory.path(), &config()), 1, 0);
    for after in [0, 5, 50] {
        let (mut loader, outcome) = deliver_with_a_death(directory.path(), true, after);
        assert_eq!(outcome.unwrap() as u64, loader.num_batches());
        let far = loader.take_counters().0.far.unwrap();
        assert!(far.lost.unwrap().contains("memory server tcp://10.0.0.9:7411"));
        assert!(far.failed_over > 0 && far.disk_requests >= far.failed_over);
        assert!(deliver(&mut loader, 1, 0) == expected, "after {after} batches");
    }
}

#[test]
fn an_epoch_without_fallback_ends_with_an_error_that_names_server_and_file() {
    let directory = tempfile::tempdir().unwrap();
    graph(directory.path());
    let (_, outcome) = deliver_with_a_death(directory.path(), false, 5);
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    let text = error.to_string();
    assert!(text.contains("memory server tcp://10.0.0.9:7411"), "{text}");
    assert!(text.contains(".npy"), "{text}");
}

#[test]
fn batches_from_a_memory_server_are_the_same_also_when_it_is_stopped() {
    let directory = tempfile::tempdir().unwrap();
    graph(directory.path());
    let secrets = tempfile::tempdir().unwrap();
    let token_file = secrets.path().join("token");
    let token = Token::create_file(&token_file).unwrap();
    let expected: Vec<_> = {
        let mut loader = loader(directory.path(), &config());
        (0..3).map(|epoch| deliver(&mut loader, epoch, 0)).collect()
    };
    let socket = FarAddress::Unix(secrets.path().join("socket"));
    for listen in ["127.0.0.1:0".parse().unwrap(), socket] {
        let server = serve(ServerConfig::new(listen, Bytes::mib(8), token.clone())).unwrap();
        let address = server.addresses()[0].clone();
        let far = FarOptions { address, token_file: Some(token_file.clone()), ..options() };
        let config = LoaderConfig { far: Some(far), ..config() };
        let mut loader = loader(directory.path(), &config);
        assert!(deliver(&mut loader, 0, 0) == expected[0], "{:?}", config.far);
        let (far, disk) = served(loader.take_counters().0);
        assert!(far > disk, "{far} far, {disk} from the disk");
        assert!(deliver(&mut loader, 1, 0) == expected[1], "{:?}", config.far);
        let (far, disk) = served(loader.take_counters().0);
        assert!(far > 0 && disk == 0, "{far} far, {disk} from the disk");
        server.stop();
        assert!(deliver(&mut loader, 2, 0) == expected[2], "{:?}", config.far);
        loader.take_counters();
    }
}

#[test]
fn a_server_that_nobody_runs_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    graph(directory.path());
    let socket = directory.path().join("nobody.sock");
    let address = FarAddress::Unix(socket);
    let token_file = directory.path().join("token");
    std::fs::write(&token_file, "0123456789abcdef0123456789abcdef").unwrap();
    std::fs::set_permissions(&token_file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let far = FarOptions { token_file: Some(token_file), ..FarOptions::new(address) };
    let config = LoaderConfig { far: Some(far), ..config() };
    let error = loader(directory.path(), &config).plan().unwrap_err();
    assert!(error.to_string().contains("nobody.sock"), "{error}");
    let far = config.far.map(|far| FarOptions { queues: 0, ..far });
    let config = LoaderConfig { far, ..base() };
    let dataset = DataSet::open(directory.path()).unwrap();
    let error = Loader::new(dataset, None, config).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}
