//! Weak components: passes the smaller label over every arc until no label changes.

use crate::Csc;

/// The smallest node of every node's component, directions ignored.
pub fn weak_components(graph: &Csc) -> Vec<i64> {
    let mut label: Vec<i64> = (0..graph.num_nodes() as i64).collect();
    loop {
        let mut changed = false;
        for target in 0..label.len() {
            for arc in graph.offsets[target] as usize..graph.offsets[target + 1] as usize {
                let source = graph.sources[arc] as usize;
                let least = label[source].min(label[target]);
                changed |= label[source] != least || label[target] != least;
                (label[source], label[target]) = (least, least);
            }
        }
        if !changed {
            return label;
        }
    }
}
