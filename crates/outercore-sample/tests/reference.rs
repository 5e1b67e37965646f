//! Compares randomness and batches with the results of the Python definition, frozen in
//! `tests/data/sampling.json`.

use outercore_core::{Permutation, Stream};
use outercore_sample::{FanOut, SampleConfig, Seeds, sample_group};
use outercore_store::resident::{Ids, ResidentTopology};
use serde_json::Value;

fn frozen() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/sampling.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn numbers<T: TryFrom<u64>>(list: &Value) -> Vec<T> {
    let number = |value: &Value| T::try_from(value.as_u64().unwrap()).ok().unwrap();
    list.as_array().unwrap().iter().map(number).collect()
}

/// The numbers of a key such as `7 3 5`.
fn key_numbers<const N: usize>(key: &str) -> [u64; N] {
    let numbers: Vec<u64> = key.split(' ').map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

#[test]
fn draws_equal_the_definition() {
    for (key, words) in frozen()["words"].as_object().unwrap() {
        let [seed, epoch, batch, hop, node] = key_numbers(key);
        let mut draws = Stream::new(seed, epoch).uniform(batch, hop as u32, node);
        for expected in words.as_array().unwrap() {
            assert_eq!(format!("{:016x}", draws.next_u64()), expected.as_str().unwrap(), "{key}");
        }
    }
}

#[test]
fn permutations_equal_the_definition() {
    for (key, expected) in frozen()["permutations"].as_object().unwrap() {
        let [length, seed, epoch] = key_numbers(key);
        let order = Permutation::new(length, seed, epoch);
        let expected: Vec<u64> = numbers(expected);
        let found: Vec<u64> = (0..expected.len() as u64).map(|index| order.at(index)).collect();
        assert_eq!(found, expected, "{key}");
    }
}

#[test]
fn batches_equal_the_definition() {
    let frozen = frozen();
    let graph = &frozen["graph"];
    let ids = Ids::from(numbers::<u64>(&graph["ids"]));
    let sources: Vec<u64> = numbers(&graph["sources"]);
    let topology =
        ResidentTopology::from_csc(numbers(&graph["offsets"]), sources, Some(ids)).unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    for case in frozen["batches"].as_array().unwrap() {
        let fan_outs = case["fan_outs"].as_array().unwrap().iter();
        let config = SampleConfig {
            fan_outs: fan_outs
                .map(|fan_out| FanOut::try_from(fan_out.as_i64().unwrap()).unwrap())
                .collect(),
            replace: case["replace"].as_bool().unwrap(),
            edge_ids: true,
            ..SampleConfig::full_neighbours()
        };
        let number = |name: &str| case[name].as_u64().unwrap();
        let stream = Stream::new(number("seed"), number("epoch"));
        let seeds =
            vec![Seeds { batch: number("batch"), nodes: numbers(&case["seeds"]), times: vec![] }];
        let batch = sample_group(&topology, stream, seeds, &config, &pool).unwrap().remove(0);

        let expected = &case["expected"];
        let (mut rows, mut cols) = (vec![0; batch.num_edges()], vec![0; batch.num_edges()]);
        batch.write_edge_index(&mut rows, &mut cols);
        assert!(batch.nodes.iter().eq(numbers::<u64>(&expected["n_id"])), "{case}");
        assert_eq!(rows, numbers::<i64>(&expected["row"]), "{case}");
        assert_eq!(cols, numbers::<i64>(&expected["col"]), "{case}");
        assert_eq!(batch.edge_ids, numbers::<u64>(&expected["e_id"]), "{case}");
        assert_eq!(batch.nodes_per_hop, numbers::<u64>(&expected["num_sampled_nodes"]), "{case}");
        assert_eq!(batch.edges_per_hop, numbers::<u64>(&expected["num_sampled_edges"]), "{case}");
    }
}
