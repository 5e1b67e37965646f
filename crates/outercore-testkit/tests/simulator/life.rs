//! One life of a machine: the processes on it, until all have ended or the machine stops.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outercore_analytics::{Algorithm, Inputs, RunConfig, Values};
use outercore_core::{Bytes, Error, ErrorKind, Result, Stream, Uniform};
use outercore_format::Update;
use outercore_io::{FaultDisk, FaultKind, FaultPlan, FileLock};
use outercore_live::{Committer, Snapshot, answer, fold_snapshot, open_on, refuse, requests};
use outercore_pipeline::{Ask, Degrees, Features, Precision, RequestConfig, Requests, Sharing};
use outercore_store::check::{CheckOptions, check};
use outercore_store::dataset::DataSet;
use std::os::unix::fs::FileExt;

use crate::disk::SharedDisk;
use crate::turns::{Part, Process, Turns};
use crate::world::{Truth, World};

/// After this many turns, all actors end.
const TURNS: u64 = 4000;

/// Requests of the folding thread to the writing thread.
enum Wish {
    Rotate,
    Rebase(DataSet),
}

/// State shared by the threads of a server.
#[derive(Default)]
struct Server {
    lock: Option<Arc<FileLock>>,
    snapshot: Option<Arc<Snapshot>>,
    wish: Option<Wish>,
    rotated: Option<(Arc<Snapshot>, u64)>,
    is_rebased: bool,
    has_ended: bool,
    /// Number of the server's threads that have ended.
    ended: u32,
}

struct Life<'a> {
    seed: u64,
    root: &'a std::path::Path,
    truth: &'a Mutex<Truth>,
    turns: &'a Turns,
    disk: &'a SharedDisk,
    server: Mutex<Server>,
}

/// Simulates one life of the machine.
pub fn live(world: &mut World, life: u64) {
    let seed = world.draws.next_u64();
    world.events.push(format!("life {life}"));
    let mut draws = Stream::new(seed, 2).uniform(0, 0, 0);
    let turns = Arc::new(Turns::new(seed, TURNS));
    // At most one fault per life: a kill of the server, a crash of the machine, or a flipped bit.
    let (mut kill_at, mut crash_at, mut is_damaged) = (u64::MAX, None, false);
    match draws.below(4) {
        0 => kill_at = draws.below(150),
        1 => crash_at = Some(draws.below(150)),
        2 => is_damaged = draws.below(2) == 0,
        _ => {}
    }
    let inner = match crash_at {
        Some(at) => FaultDisk::new(&world.root, FaultPlan { at, kind: FaultKind::Crash }),
        None => FaultDisk::counting(&world.root),
    };
    let disk = SharedDisk::new(inner, Arc::clone(&turns), kill_at);
    let (root, truth) = (world.root.clone(), &world.truth);
    let at =
        Life { seed, root: &root, truth, turns: &turns, disk: &disk, server: Mutex::default() };
    let at = &at;
    let mut actors: Vec<(&'static str, Process, Part<'_>)> = vec![
        ("writer", Process::Server, Box::new(|| at.of_server(at.write()))),
        ("folder", Process::Server, Box::new(|| at.of_server(at.fold()))),
        ("predictor", Process::Server, Box::new(|| at.of_server(at.predict()))),
        ("train", Process::Command, Box::new(|| at.train())),
    ];
    match draws.below(3) {
        0 => actors.push(("run", Process::Command, Box::new(|| at.run()))),
        1 => actors.push(("check", Process::Command, Box::new(|| at.check()))),
        _ => actors.push(("evaluate", Process::Command, Box::new(|| at.train()))),
    }
    if is_damaged {
        actors.push(("bit", Process::Command, Box::new(|| at.damage())));
    }
    turns.play(actors);
    drop(disk);
    let turns = Arc::into_inner(turns).expect("all actors have ended");
    let (events, failures) = turns.ended();
    world.events.extend(events);
    world.failures.extend(failures);
}

impl Life<'_> {
    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn truth(&self) -> MutexGuard<'_, Truth> {
        self.truth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draws(&self, actor: u64) -> Uniform {
        Stream::new(self.seed, 10 + actor).uniform(0, 0, 0)
    }

    /// Whether the flipped bit may have caused an error.
    fn is_of_damage(&self, error: &Error) -> bool {
        let may_be = [ErrorKind::Corrupt, ErrorKind::Io];
        self.truth().damaged.is_some() && may_be.contains(&error.kind())
    }

    /// A thread of the server has ended. With the last one, the system releases the server's lock.
    fn of_server(&self, done: Result<()>) -> Result<()> {
        let mut server = self.server();
        server.ended += 1;
        if server.ended == 3 {
            (server.lock, server.snapshot, server.wish, server.rotated) = (None, None, None, None);
        }
        done
    }

    /// The writing thread of a server.
    fn write(&self) -> Result<()> {
        let written = self.write_until_late();
        self.server().has_ended = true;
        match written {
            // A copied list may contain edges that never existed.
            Err(_) if self.truth().damaged.is_some() => Ok(()),
            other => other,
        }
    }

    fn write_until_late(&self) -> Result<()> {
        let lock = self.turns.until(|| FileLock::try_directory(self.root).transpose())??;
        let lock = Arc::new(lock);
        self.server().lock = Some(Arc::clone(&lock));
        let mut committer = Committer::open(self.disk, self.root, &lock)?;
        let lsn = committer.snapshot().delta.lsn();
        let mut truth = self.truth();
        truth.found(lsn);
        // Records that were not found are lost for good.
        truth.graphs.truncate(lsn as usize + 1);
        drop(truth);
        self.turns.note(format!("opens at {lsn}"));
        self.server().snapshot = Some(Arc::clone(committer.snapshot()));
        let mut draws = self.draws(0);
        loop {
            self.turns.take()?;
            let wish = self.server().wish.take();
            match wish {
                Some(Wish::Rotate) => {
                    let first = committer.rotate()?;
                    self.server().rotated = Some((Arc::clone(committer.snapshot()), first));
                }
                Some(Wish::Rebase(data_set)) => {
                    committer.rebase(data_set)?;
                    let mut server = self.server();
                    server.snapshot = Some(Arc::clone(committer.snapshot()));
                    server.is_rebased = true;
                }
                None if self.turns.is_late() && !self.turns.has_commands() => return Ok(()),
                None if self.turns.is_late() || draws.below(3) > 0 => {
                    self.turns.until(|| {
                        let is_over = self.turns.is_late() && !self.turns.has_commands();
                        (self.server().wish.is_some() || is_over || draws.below(4) == 0)
                            .then_some(())
                    })?;
                }
                None => self.commit(&mut committer, &mut draws)?,
            }
        }
    }

    fn commit(&self, committer: &mut Committer<'_>, draws: &mut Uniform) -> Result<()> {
        let mut truth = self.truth();
        let mut writes = Vec::new();
        for _ in 0..1 + draws.below(3) {
            let mut next = truth.graphs.last().expect("the first one").clone();
            let updates: Vec<Update> = (0..1 + draws.below(3))
                .map(|_| next.draw(draws))
                .filter(|update| next.clone().apply(update))
                .collect();
            if !updates.is_empty() && updates.iter().all(|update| next.apply(update)) {
                writes.push(updates);
                truth.graphs.push(next);
            }
        }
        drop(truth);
        for done in committer.commit(writes) {
            let mut truth = self.truth();
            match done {
                Ok(ack) => truth.acknowledged = ack.lsn,
                // In a list with a flipped bit, the edge to remove may be missing.
                Err(_) if truth.damaged.is_some() => truth.is_blurred = true,
                Err(error) => return Err(error),
            }
        }
        self.server().snapshot = Some(Arc::clone(committer.snapshot()));
        Ok(())
    }

    /// The folding thread of a server.
    fn fold(&self) -> Result<()> {
        loop {
            let asked = self.turns.until(|| {
                let asked = requests(self.root);
                let server = self.server();
                let is_wanted = server.snapshot.is_some()
                    && (!asked.is_empty() || (!self.turns.is_late() && self.turns.draw(6) == 0));
                (is_wanted || server.has_ended).then_some(asked)
            })?;
            if self.server().has_ended {
                return Ok(());
            }
            match self.fold_once() {
                Ok(()) => answer(self.disk, &asked),
                Err(error) if self.is_of_damage(&error) => {
                    self.turns.note(format!("cannot fold: {error}"));
                    refuse(self.disk, &asked);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn fold_once(&self) -> Result<()> {
        let lock = self.server().lock.clone().expect("the server is open");
        self.server().wish = Some(Wish::Rotate);
        let rotated = || {
            let mut server = self.server();
            let rotated = server.rotated.take();
            (server.has_ended || rotated.is_some()).then_some(rotated)
        };
        let Some((snapshot, first)) = self.turns.until(rotated)? else { return Ok(()) };
        self.turns.note(format!("folds {}", snapshot.delta.lsn()));
        let keep_going = || self.turns.take();
        let folded = fold_snapshot(self.disk, self.root, &snapshot, &lock, first, &keep_going)?;
        drop(snapshot);
        if self.turns.draw(2) == 0 {
            let data_set = folded.map_or_else(|| DataSet::open(self.root), Ok)?;
            self.turns.take()?;
            self.server().wish = Some(Wish::Rebase(data_set));
            self.turns.until(|| {
                let mut server = self.server();
                let is_rebased = std::mem::take(&mut server.is_rebased);
                (is_rebased || server.has_ended).then_some(())
            })?;
            self.turns.note("exchanges the arrays".into());
        }
        Ok(())
    }

    /// The answering thread of a server.
    fn predict(&self) -> Result<()> {
        match self.predict_until_late() {
            // It may request a node that the server has refused to add.
            Err(_) if self.truth().damaged.is_some() => Ok(()),
            other => other,
        }
    }

    fn predict_until_late(&self) -> Result<()> {
        let is_there = || {
            let server = self.server();
            (server.has_ended || server.snapshot.is_some()).then(|| server.snapshot.clone())
        };
        let Some(mut view) = self.turns.until(is_there)? else { return Ok(()) };
        let mut draws = self.draws(2);
        // Imitates the work of a server between the last update and the first array.
        for _ in 0..draws.below(30) {
            self.turns.take()?;
        }
        let config = RequestConfig {
            features: Some(Features {
                key: outercore_format::keys::FEATURES.into(),
                precision: Precision::Exact,
            }),
            fan_outs: vec![-1],
            replace: false,
            most_nodes: 8,
            degrees: Degrees::None,
            memory: Bytes::mib(16),
            reserved: Bytes(0),
            growth: Bytes::kib(64),
            threads: 1,
            sharing: Sharing::default(),
        };
        let mut open = Some(Requests::open(&view.data_set, &config)?);
        let mut generation = view.generation;
        self.turns.note("is ready".into());
        while !self.server().has_ended {
            self.turns.until(|| (self.server().has_ended || draws.below(3) == 0).then_some(()))?;
            let Some(now) = self.server().snapshot.clone() else { continue };
            view = now;
            self.turns.take()?;
            if view.generation != generation {
                let before = open.take().filter(|_| generation + 1 == view.generation);
                open = match before {
                    Some(before) => before.follow(&view.data_set, &view.replaced)?,
                    None => None,
                };
                generation = view.generation;
            }
            let mut requests = match open.take() {
                Some(requests) => requests,
                None => Requests::open(&view.data_set, &config)?,
            };
            self.turns.take()?;
            self.ask(&mut requests, &view, &mut draws)?;
            open = Some(requests);
        }
        Ok(())
    }

    fn ask(&self, requests: &mut Requests, view: &Snapshot, draws: &mut Uniform) -> Result<()> {
        let lsn = view.delta.lsn();
        let graph = self.truth().graphs[lsn as usize].clone();
        let nodes: Vec<u64> = (0..1 + draws.below(3)).map(|_| draws.below(graph.nodes)).collect();
        let mut distinct = nodes.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let lists = graph.in_lists();
        let edges: usize = distinct.iter().map(|&node| lists[node as usize].len()).sum();
        let ask = Ask {
            delta: Some(&view.delta),
            seed: 1,
            requests: vec![distinct.clone()],
            is_known: &|_| false,
        };
        let wrong = Mutex::new(None);
        requests.answer(ask, &|_, found| {
            if self.truth().damaged.is_some() {
                return Ok(());
            }
            let rows: Vec<u64> = found.sampled.nodes.iter().collect();
            let x: Vec<f32> = rows.iter().flat_map(|&node| graph.x[node as usize]).collect();
            if found.x != x || found.sampled.sources.len() != edges {
                let text = format!(
                    "nodes {distinct:?} at {lsn}: {:?} and {} edges, expected {x:?} and {edges}",
                    found.x,
                    found.sampled.sources.len(),
                );
                *wrong.lock().unwrap() = Some(text);
            }
            Ok(())
        })?;
        if let Some(text) = wrong.into_inner().unwrap() {
            panic!("{text}");
        }
        Ok(())
    }

    /// A command that opens the data set and reads its arrays one by one.
    fn train(&self) -> Result<()> {
        for _ in 0..1 + self.turns.draw(3) {
            match self.read_all() {
                Err(error) if self.is_of_damage(&error) => {}
                other => other?,
            }
            self.turns.take()?;
        }
        Ok(())
    }

    fn open(&self) -> Result<(DataSet, outercore_testkit::LiveModel)> {
        let wait = || self.turns.until(|| (self.turns.draw(3) == 0).then_some(()));
        let data_set = open_on(self.disk, self.root, &|| self.turns.take(), &wait)?;
        let lsn = data_set.manifest().lsn();
        self.turns.note(format!("opens at {lsn}"));
        let truth = self.truth();
        assert!((lsn as usize) < truth.graphs.len(), "{lsn} found, never written");
        Ok((data_set, truth.graphs[lsn as usize].clone()))
    }

    fn read_all(&self) -> Result<()> {
        let (data_set, graph) = self.open()?;
        for key in data_set.manifest().arrays.keys() {
            self.turns.take()?;
            data_set.read_array(key)?;
        }
        self.turns.take()?;
        if self.truth().damaged.is_none() {
            graph.assert_arrays(&data_set);
        }
        Ok(())
    }

    /// A command that runs an algorithm.
    fn run(&self) -> Result<()> {
        let (data_set, graph) = match self.open() {
            Err(error) if self.is_of_damage(&error) => return Ok(()),
            other => other?,
        };
        let algorithm: Algorithm = serde_json::from_str(r#"{"algorithm":"degrees"}"#).unwrap();
        let config = RunConfig { memory: Bytes::mib(16), threads: Some(1), ..RunConfig::default() };
        let outcome = outercore_analytics::run(
            &data_set,
            &algorithm,
            Inputs::default(),
            &config,
            &mut |_, _, _, _| self.turns.take(),
        );
        let outcome = match outcome {
            // A damaged array may be one from which no grid can be built.
            Err(_) if self.truth().damaged.is_some() => return Ok(()),
            other => other?,
        };
        let Values::I64(values) = outcome.values else { panic!("degrees are whole numbers") };
        let degrees: Vec<i64> = graph.in_lists().iter().map(|list| list.len() as i64).collect();
        if self.truth().damaged.is_none() {
            assert_eq!(values, degrees, "degrees at {}", data_set.manifest().lsn());
        }
        Ok(())
    }

    /// A command that checks the data set.
    fn check(&self) -> Result<()> {
        for _ in 0..1 + self.turns.draw(3) {
            let report = check(self.root, &CheckOptions::default(), &mut |_, _| self.turns.take())?;
            assert!(report.is_sound() || self.truth().damaged.is_some(), "{:#?}", report.problems);
            self.turns.take()?;
        }
        Ok(())
    }

    /// Flips a bit of an array.
    fn damage(&self) -> Result<()> {
        for _ in 0..self.turns.draw(40) {
            self.turns.until(|| (self.turns.draw(3) == 0).then_some(()))?;
        }
        let Ok(manifest) = DataSet::read_manifest(self.root) else { return Ok(()) };
        let arrays: Vec<_> = manifest.arrays.iter().collect();
        let (key, entry) = arrays[self.turns.draw(arrays.len() as u64) as usize];
        let path = self.root.join(&entry.file);
        let file = std::fs::File::options().read(true).write(true).open(&path)?;
        let len = file.metadata()?.len();
        if len == entry.data_offset {
            return Ok(());
        }
        let at = entry.data_offset + self.turns.draw(len - entry.data_offset);
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)?;
        byte[0] ^= 1 << self.turns.draw(8);
        file.write_all_at(&byte, at)?;
        self.turns.note(format!("flips a bit of `{key}` at {at}"));
        self.truth().damaged = Some(key.clone());
        Ok(())
    }
}
