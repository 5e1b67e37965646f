//! Strongly connected components.

use crate::graph::Csc;

/// The smallest node of each node's component, which consists of the nodes that it reaches and that
/// reach it.
pub fn strong_components(graph: &Csc) -> Vec<i64> {
    let nodes = graph.num_nodes() as usize;
    let (ins, outs) = (in_lists(graph), out_lists(graph));
    let mut found = vec![-1; nodes];
    for node in 0..nodes {
        if found[node] < 0 {
            let (ahead, behind) = (reached(&outs, node), reached(&ins, node));
            for other in (0..nodes).filter(|&other| ahead[other] && behind[other]) {
                found[other] = node as i64;
            }
        }
    }
    found
}

/// The sources of the arcs into each node.
pub fn in_lists(graph: &Csc) -> Vec<Vec<usize>> {
    let list = |ends: &[u64]| {
        graph.sources[ends[0] as usize..ends[1] as usize].iter().map(|&s| s as usize).collect()
    };
    graph.offsets.windows(2).map(list).collect()
}

/// The targets of the arcs out of each node.
pub fn out_lists(graph: &Csc) -> Vec<Vec<usize>> {
    let mut lists = vec![Vec::new(); graph.num_nodes() as usize];
    for (target, sources) in in_lists(graph).into_iter().enumerate() {
        for source in sources {
            lists[source].push(target);
        }
    }
    lists
}

/// For each node, whether it can be reached from `start`.
fn reached(lists: &[Vec<usize>], start: usize) -> Vec<bool> {
    let mut seen = vec![false; lists.len()];
    let mut open = vec![start];
    seen[start] = true;
    while let Some(node) = open.pop() {
        for &next in &lists[node] {
            if !std::mem::replace(&mut seen[next], true) {
                open.push(next);
            }
        }
    }
    seen
}
