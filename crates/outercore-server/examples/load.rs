//! Load generator: many clients send requests to one server; the report shows how it answered.
//!
//! `load HOST:PORT updates|MODEL CLIENTS SECONDS|COUNTx NODES [RATE]`: each client opens one
//! connection and sends one request after the other. A request is an update of one edge or a
//! prediction for one node. The clients stop after `SECONDS`, or, written as `10000x`, after that
//! many requests in all. With `RATE`, all clients together send that many requests per second.
//! Prints one line of JSON.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use outercore_core::Stream;
use serde_json::json;

/// Results of one client: the status and the duration of each request.
type Answers = Vec<(u16, Duration)>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, what, clients, end, nodes, rate @ ..] = &arguments[..] else {
        let text = "usage: load HOST:PORT updates|MODEL CLIENTS SECONDS|COUNTx NODES [RATE]";
        return Err(text.into());
    };
    let (clients, nodes): (u64, u64) = (clients.parse()?, nodes.parse()?);
    let (duration, count) = match end.strip_suffix('x') {
        Some(count) => (Duration::MAX, count.parse()?),
        None => (Duration::from_secs_f64(end.parse()?), u64::MAX),
    };
    let pause = match rate {
        [] => Duration::ZERO,
        [rate, ..] => Duration::from_secs_f64(clients as f64 / rate.parse::<f64>()?),
    };
    let began = Instant::now();
    // `None`, no deadline, if the duration overflows the clock.
    let until = began.checked_add(duration);
    let answers: Vec<Answers> = std::thread::scope(|scope| {
        let run = |client| {
            let count = count / clients + u64::from(client < count % clients);
            let end = End { until, count };
            scope.spawn(move || send(address, what, client, nodes, pause, end))
        };
        let threads: Vec<_> = (0..clients).map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client")).collect::<Result<_, _>>()
    })?;
    let took = began.elapsed().as_secs_f64();
    let mut statuses: BTreeMap<u16, u64> = BTreeMap::new();
    let mut answered = Vec::new();
    for (status, time) in answers.into_iter().flatten() {
        *statuses.entry(status).or_default() += 1;
        if status == 200 {
            answered.push(time);
        }
    }
    answered.sort_unstable();
    let quantile = |share: f64| match answered.len() {
        0 => f64::NAN,
        count => answered[((count - 1) as f64 * share) as usize].as_secs_f64() * 1e3,
    };
    let report = json!({
        "answered": answered.len(),
        "per_second": answered.len() as f64 / took,
        "p50_ms": quantile(0.5),
        "p99_ms": quantile(0.99),
        "p999_ms": quantile(0.999),
        "statuses": statuses,
    });
    println!("{report}");
    Ok(())
}

/// When a client stops.
#[derive(Clone, Copy)]
struct End {
    until: Option<Instant>,
    count: u64,
}

/// Runs one client until its end.
fn send(
    address: &str,
    what: &str,
    client: u64,
    nodes: u64,
    pause: Duration,
    end: End,
) -> std::io::Result<Answers> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    let mut draws = Stream::new(client, 0).uniform(0, 0, 0);
    let mut answers = Vec::new();
    // Spread the first requests, so that the clients do not all send at the same moment.
    let mut due = Instant::now() + pause.mul_f64(draws.unit());
    let in_time = || end.until.is_none_or(|until| Instant::now() < until);
    while (answers.len() as u64) < end.count && in_time() {
        if !pause.is_zero() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let (path, body) = request(what, &mut draws, nodes);
        let began = if pause.is_zero() { Instant::now() } else { due };
        due += pause;
        write!(
            writer,
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let status = answer(&mut reader)?;
        answers.push((status, began.elapsed()));
    }
    Ok(answers)
}

fn request(what: &str, draws: &mut outercore_core::Uniform, nodes: u64) -> (String, String) {
    if what == "updates" {
        let (source, target) = (draws.below(nodes), draws.below(nodes));
        let edge = json!({"op": "add_edge", "source": source, "target": target});
        return ("/graph/updates".into(), json!({"updates": [edge]}).to_string());
    }
    let ids = json!({
        "name": "node_ids", "datatype": "INT64", "shape": [1], "data": [draws.below(nodes)],
    });
    (format!("/v2/models/{what}/infer"), json!({"inputs": [ids]}).to_string())
}

/// Reads an answer; returns its status.
fn answer(reader: &mut impl BufRead) -> std::io::Result<u16> {
    let bad = || std::io::Error::other("not an answer of HTTP");
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(bad)?;
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let header = line.trim_end();
        if header.is_empty() {
            break;
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(|_| bad())?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(status)
}
