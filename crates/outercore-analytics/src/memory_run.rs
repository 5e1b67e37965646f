//! Passes over a grid in memory: the reference for all other implementations.

use std::collections::BTreeMap;
use std::sync::Arc;

use outercore_core::{Bytes, Result};
use outercore_grid::{Arcs, GridShape, Order, PIECE_EDGES, SHORT, Side, length_group};

use crate::checkpoint::Checkpoints;
use crate::program::{Degree, EdgeProgram, Passes, Selection};
use crate::schedule::sides;
use crate::state::Spill;
use crate::task::Task;

/// A grid in memory, with passes on the calling thread, piece after piece in file order.
pub struct MemoryRun {
    shape: GridShape,
    pieces: Vec<Piece>,
    /// Node id of each rank; nodes without arcs last, ascending.
    order: Vec<u32>,
    /// By node id.
    in_degrees: Vec<u32>,
    out_degrees: Vec<u32>,
    working: Bytes,
    spill: Option<Arc<Spill>>,
    checkpoints: Option<Checkpoints>,
}

/// Local row, local column, weight.
type LocalEdge = (u16, u16, f64);

#[derive(Debug)]
struct Piece {
    row_part: usize,
    col_part: usize,
    is_loop: bool,
    rows: Vec<u16>,
    ends: Vec<u32>,
    short_counts: [u32; SHORT],
    columns: Vec<u16>,
    weights: Vec<f64>,
}

impl Piece {
    /// A piece from ascending edges.
    fn new(row_part: usize, col_part: usize, is_loop: bool, edges: &[LocalEdge]) -> Self {
        let mut piece = Self {
            row_part,
            col_part,
            is_loop,
            rows: Vec::new(),
            ends: Vec::new(),
            short_counts: [0; SHORT],
            columns: Vec::new(),
            weights: Vec::new(),
        };
        let mut entries: Vec<&[LocalEdge]> = edges.chunk_by(|a, b| a.0 == b.0).collect();
        entries.sort_by_key(|entry| length_group(entry.len()));
        for entry in entries {
            piece.rows.push(entry[0].0);
            piece.columns.extend(entry.iter().map(|edge| edge.1));
            piece.weights.extend(entry.iter().map(|edge| edge.2));
            piece.ends.push(piece.columns.len() as u32);
            if let Some(count) = piece.short_counts.get_mut(length_group(entry.len())) {
                *count += 1;
            }
        }
        piece
    }

    fn arcs(&self, side: Side, weighted: bool) -> Arcs<'_> {
        let weights = if weighted { &self.weights[..] } else { &[] };
        let (rows, ends, columns) = (&self.rows[..], &self.ends[..], &self.columns[..]);
        Arcs { rows, ends, short_counts: self.short_counts, columns, weights, side }
    }
}

impl MemoryRun {
    /// The grid of `arcs` (source, target, weight) between `nodes` nodes. With `symmetric`, each
    /// listed edge represents both directions (a loop represents one arc).
    ///
    /// # Panics
    /// If an end is not a node, or `partition_log2` is above 16.
    pub fn new(
        nodes: u64,
        arcs: &[(u64, u64, f64)],
        symmetric: bool,
        order: Order,
        partition_log2: u32,
    ) -> Self {
        assert!(partition_log2 <= 16, "local ids have 16 bits");
        let count = nodes as usize;
        let (mut in_degrees, mut out_degrees) = (vec![0u32; count], vec![0u32; count]);
        for &(source, target, _) in arcs {
            out_degrees[source as usize] += 1;
            in_degrees[target as usize] += 1;
            if symmetric && source != target {
                out_degrees[target as usize] += 1;
                in_degrees[source as usize] += 1;
            }
        }
        let degree = |node: u32| in_degrees[node as usize] + out_degrees[node as usize];
        let mut ranked: Vec<u32> = (0..nodes as u32).collect();
        match order {
            Order::Degree => ranked.sort_by_key(|&node| (std::cmp::Reverse(degree(node)), node)),
            Order::Natural => ranked.sort_by_key(|&node| (degree(node) == 0, node)),
        }
        let connected = ranked.iter().filter(|&&node| degree(node) > 0).count() as u64;
        let loops = arcs.iter().filter(|arc| arc.0 == arc.1).count();
        let shape = GridShape {
            nodes,
            connected,
            partition_log2,
            order,
            symmetric,
            arcs: if symmetric { 2 * arcs.len() - loops } else { arcs.len() } as u64,
            edges: arcs.len() as u64,
            weighted: true,
        };
        let mut rank = vec![0u64; count];
        for (at, &node) in ranked.iter().enumerate() {
            rank[node as usize] = at as u64;
        }
        let mut run = Self {
            shape,
            pieces: Vec::new(),
            order: ranked,
            in_degrees,
            out_degrees,
            working: Bytes(0),
            spill: None,
            checkpoints: None,
        };
        run.fill(arcs, &rank);
        run
    }

    fn fill(&mut self, arcs: &[(u64, u64, f64)], rank: &[u64]) {
        let partitions = self.shape.partitions();
        // In file order: by diagonal, then by row partition; loops of a symmetric grid are
        // separate.
        let mut dealt: BTreeMap<(usize, usize, bool), Vec<LocalEdge>> = BTreeMap::new();
        for &(source, target, weight) in arcs {
            let mut row = self.shape.place(rank[target as usize]);
            let mut column = self.shape.place(rank[source as usize]);
            if self.shape.symmetric && row > column {
                (row, column) = (column, row);
            }
            let diagonal = (column.0 + partitions - row.0) % partitions;
            let is_loop = self.shape.symmetric && source == target;
            dealt.entry((diagonal, row.0, is_loop)).or_default().push((
                row.1 as u16,
                column.1 as u16,
                weight,
            ));
        }
        for ((diagonal, row_part, is_loop), mut edges) in dealt {
            edges.sort_by_key(|&(row, column, weight)| (row, column, weight.to_bits()));
            let col_part = (row_part + diagonal) % partitions;
            let pieces = edges.chunks(PIECE_EDGES);
            self.pieces.extend(pieces.map(|edges| Piece::new(row_part, col_part, is_loop, edges)));
        }
    }

    /// Stores state in scratch files.
    pub fn with_spill(mut self, spill: Spill) -> Self {
        self.spill = Some(Arc::new(spill));
        self
    }

    /// Writes checkpoints.
    pub fn with_checkpoints(mut self, checkpoints: Checkpoints) -> Self {
        self.checkpoints = Some(checkpoints);
        self
    }

    /// Sets the memory of algorithms that need fewer passes with more memory.
    pub fn with_working(mut self, working: Bytes) -> Self {
        self.working = working;
        self
    }
}

impl Passes for MemoryRun {
    fn shape(&self) -> &GridShape {
        &self.shape
    }

    fn pass<P: EdgeProgram>(
        &mut self,
        program: &P,
        sources: &[P::Source],
        targets: &mut [P::Target],
        select: &Selection<'_>,
    ) -> Result<()> {
        for piece in &self.pieces {
            for &side in sides(self.shape.symmetric, piece.is_loop, select.flow) {
                let (source, target) = side.ends(piece.row_part, piece.col_part);
                if select.sources[source] && select.targets[target] {
                    let arcs = piece.arcs(side, select.weights);
                    program.apply(&arcs, &sources[source], &mut targets[target]);
                }
            }
        }
        Ok(())
    }

    fn tasks(&self, select: &Selection<'_>) -> Vec<Vec<Task>> {
        let mut tasks = vec![Vec::new(); select.targets.len()];
        for (number, piece) in self.pieces.iter().enumerate() {
            for &side in sides(self.shape.symmetric, piece.is_loop, select.flow) {
                let (source, target) = side.ends(piece.row_part, piece.col_part);
                if select.sources[source] && select.targets[target] {
                    tasks[target].push(Task::new(number, side));
                }
            }
        }
        tasks
    }

    fn source_of(&self, task: Task) -> usize {
        let piece = &self.pieces[task.piece()];
        task.side().ends(piece.row_part, piece.col_part).0
    }

    fn portion<P: EdgeProgram>(
        &mut self,
        program: &P,
        sources: &[P::Source],
        targets: &mut [P::Target],
        weights: bool,
        tasks: Vec<Vec<Task>>,
        _next: Option<Vec<Vec<Task>>>,
    ) -> Result<()> {
        for (target, tasks) in tasks.into_iter().enumerate() {
            for task in tasks {
                let arcs = self.pieces[task.piece()].arcs(task.side(), weights);
                program.apply(&arcs, &sources[self.source_of(task)], &mut targets[target]);
            }
        }
        Ok(())
    }

    fn spill(&self) -> Option<Arc<Spill>> {
        self.spill.clone()
    }

    fn checkpoints(&mut self) -> Option<&mut Checkpoints> {
        self.checkpoints.as_mut()
    }

    fn stream(
        &mut self,
        select: &Selection<'_>,
        each: &mut dyn FnMut(usize, usize, &Arcs<'_>) -> Result<()>,
    ) -> Result<()> {
        for piece in &self.pieces {
            for &side in sides(self.shape.symmetric, piece.is_loop, select.flow) {
                let (source, target) = side.ends(piece.row_part, piece.col_part);
                if select.sources[source] && select.targets[target] {
                    each(piece.row_part, piece.col_part, &piece.arcs(side, select.weights))?;
                }
            }
        }
        Ok(())
    }

    fn partitions<T: Send>(&mut self, each: impl Fn(usize) -> T + Sync) -> Vec<T> {
        (0..self.shape.partitions()).map(each).collect()
    }

    fn degrees(&mut self, which: Degree, partition: usize) -> Result<Vec<u32>> {
        let degrees = match which {
            Degree::In => &self.in_degrees,
            Degree::Out => &self.out_degrees,
        };
        let local = 0..self.shape.partition_len(partition);
        let node = |local| self.order[self.shape.rank(partition, local) as usize];
        Ok(local.map(|local| degrees[node(local) as usize]).collect())
    }

    fn nodes(&mut self, partition: usize) -> Result<Vec<u32>> {
        let local = 0..self.shape.partition_len(partition);
        Ok(local.map(|local| self.order[self.shape.rank(partition, local) as usize]).collect())
    }

    fn isolated(&mut self, each: &mut dyn FnMut(&[u32])) -> Result<()> {
        each(&self.order[self.shape.connected as usize..]);
        Ok(())
    }

    fn place(&mut self, nodes: &[u64]) -> Result<Vec<Option<(usize, usize)>>> {
        let place = |&node: &u64| {
            let rank = self.order.iter().position(|&found| u64::from(found) == node)? as u64;
            (rank < self.shape.connected).then(|| self.shape.place(rank))
        };
        Ok(nodes.iter().map(place).collect())
    }

    fn working(&self) -> Bytes {
        self.working
    }

    fn progress(&mut self, _what: &str, _done: u64, _total: u64) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Flow;

    /// Sums source values in targets.
    struct Sum;

    impl EdgeProgram for Sum {
        type Source = Vec<f64>;
        type Target = Vec<f64>;

        fn apply(&self, arcs: &Arcs<'_>, source: &Vec<f64>, target: &mut Vec<f64>) {
            arcs.for_each(|from, to, weight| target[to] += source[from] * weight);
        }
    }

    #[test]
    fn a_pass_sums_over_the_arcs_in_the_direction_asked_for() {
        let arcs = [(0, 1, 2.0), (1, 2, 3.0), (2, 2, 5.0), (0, 5, 7.0)];
        for order in [Order::Degree, Order::Natural] {
            for (symmetric, flow, expected) in [
                (false, Flow::Along, [0.0, 2.0, 21.0, 0.0, 0.0, 7.0]),
                (false, Flow::Against, [46.0, 9.0, 15.0, 0.0, 0.0, 0.0]),
                (true, Flow::Along, [46.0, 11.0, 21.0, 0.0, 0.0, 7.0]),
            ] {
                let mut run = MemoryRun::new(6, &arcs, symmetric, order, 1);
                let parts = run.shape().partitions();
                let nodes: Vec<_> = (0..parts).map(|part| run.nodes(part).unwrap()).collect();
                let sources: Vec<Vec<f64>> = nodes
                    .iter()
                    .map(|ids| ids.iter().map(|&id| f64::from(id + 1)).collect())
                    .collect();
                let mut targets: Vec<Vec<f64>> =
                    nodes.iter().map(|ids| vec![0.0; ids.len()]).collect();
                let all = vec![true; parts];
                let select = Selection { sources: &all, targets: &all, flow, weights: true };
                run.pass(&Sum, &sources, &mut targets, &select).unwrap();
                let mut found = [0.0; 6];
                for (ids, sums) in nodes.iter().zip(&targets) {
                    for (&id, &sum) in ids.iter().zip(sums) {
                        found[id as usize] = sum;
                    }
                }
                // Against the arcs, node 0 receives from node 1 (weight 2, value 2) and from node 5
                // (weight 7, value 6).
                assert_eq!(found, expected, "{order:?} {symmetric} {flow:?}");
            }
        }
    }
}
