//! A level: nodes with weighted edges in memory, and the search for their communities.

use std::ops::Range;

/// Nodes with their edges, each stored at both ends; a loop is stored once with twice its weight.
pub(super) struct Level {
    rows: Vec<Range<usize>>,
    neighbours: Vec<u32>,
    weights: Vec<f64>,
    /// Sum of the weights at each node.
    strengths: Vec<f64>,
    /// Sum over all nodes, which is twice the weight of all edges.
    strength: f64,
}

impl Level {
    pub(super) fn new(rows: Vec<Range<usize>>, neighbours: Vec<u32>, weights: Vec<f64>) -> Self {
        let strengths: Vec<f64> =
            rows.iter().map(|row| weights[row.clone()].iter().sum()).collect();
        let strength = strengths.iter().sum();
        Self { rows, neighbours, weights, strengths, strength }
    }

    pub(super) fn nodes(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn strength(&self) -> f64 {
        self.strength
    }

    fn edges(&self, node: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let row = self.rows[node].clone();
        let neighbours = self.neighbours[row.clone()].iter().map(|&other| other as usize);
        neighbours.zip(self.weights[row].iter().copied())
    }

    /// Modularity if every node is a community.
    pub(super) fn modularity_of_singles(&self, resolution: f64) -> f64 {
        let own: Vec<u32> = (0..self.nodes() as u32).collect();
        self.modularity(&own, &self.strengths, resolution)
    }

    /// Modularity of communities; `totals` are their strengths.
    fn modularity(&self, community: &[u32], totals: &[f64], resolution: f64) -> f64 {
        if self.strength == 0.0 {
            return 0.0;
        }
        let mut within = 0.0;
        for node in 0..self.nodes() {
            for (other, weight) in self.edges(node) {
                if community[other] == community[node] {
                    within += weight;
                }
            }
        }
        let spread: f64 = totals.iter().map(|total| (total / self.strength).powi(2)).sum();
        within / self.strength - resolution * spread
    }

    /// Moves nodes until a round gains less than `least_gain`. Returns the community of each node,
    /// named by a node, and the modularity.
    pub(super) fn settle(&self, resolution: f64, least_gain: f64) -> (Vec<u32>, f64) {
        let mut community: Vec<u32> = (0..self.nodes() as u32).collect();
        let mut totals = self.strengths.clone();
        let mut modularity = self.modularity_of_singles(resolution);
        let mut links = Links { weight: vec![0.0; self.nodes()], met: Vec::new() };
        if self.strength == 0.0 {
            return (community, modularity);
        }
        loop {
            let mut moved = false;
            for node in 0..self.nodes() {
                moved |= self.place(node, resolution, &mut community, &mut totals, &mut links);
            }
            let reached = self.modularity(&community, &totals, resolution);
            let gain = reached - modularity;
            modularity = reached;
            if !moved || gain <= least_gain {
                return (community, modularity);
            }
        }
    }

    /// Moves a node to the community that raises modularity most; returns whether it moved.
    fn place(
        &self,
        node: usize,
        resolution: f64,
        community: &mut [u32],
        totals: &mut [f64],
        links: &mut Links,
    ) -> bool {
        let (own, strength) = (community[node], self.strengths[node]);
        totals[own as usize] -= strength;
        for (other, weight) in self.edges(node).filter(|edge| edge.0 != node) {
            links.add(community[other], weight);
        }
        let share = resolution * strength / self.strength;
        let gain = |of: u32, links: &Links| links.weight[of as usize] - share * totals[of as usize];
        // Staying wins ties; among other communities, the smallest number wins.
        let mut best = (own, gain(own, links));
        links.met.sort_unstable();
        for &of in &links.met {
            let gain = gain(of, links);
            if gain > best.1 {
                best = (of, gain);
            }
        }
        totals[best.0 as usize] += strength;
        community[node] = best.0;
        links.end();
        best.0 != own
    }

    /// Turns the communities into the nodes of a new level, numbered by their first nodes. Also
    /// returns the number of each node's community.
    pub(super) fn joined(self, community: &[u32]) -> (Self, Vec<u32>) {
        let mut number = vec![u32::MAX; self.nodes()];
        let mut renamed = vec![0; self.nodes()];
        let mut members: Vec<(u32, u32)> = Vec::with_capacity(self.nodes());
        let mut count = 0u32;
        for (node, &community) in community.iter().enumerate() {
            let number = &mut number[community as usize];
            if *number == u32::MAX {
                *number = count;
                count += 1;
            }
            renamed[node] = *number;
            members.push((*number, node as u32));
        }
        drop(number);
        members.sort_unstable();
        let mut links = Links { weight: vec![0.0; count as usize], met: Vec::new() };
        let mut rows = Vec::with_capacity(count as usize);
        // The new level has at most as many edges; unused memory is freed.
        let mut neighbours = Vec::with_capacity(self.neighbours.len());
        let mut weights = Vec::with_capacity(self.neighbours.len());
        for members in members.chunk_by(|a, b| a.0 == b.0) {
            for &(_, node) in members {
                for (other, weight) in self.edges(node as usize) {
                    links.add(renamed[other], weight);
                }
            }
            links.met.sort_unstable();
            let start = neighbours.len();
            for &other in &links.met {
                neighbours.push(other);
                weights.push(links.weight[other as usize]);
            }
            rows.push(start..neighbours.len());
            links.end();
        }
        neighbours.shrink_to_fit();
        weights.shrink_to_fit();
        (Self::new(rows, neighbours, weights), renamed)
    }
}

/// The weights of the edges between a node and communities.
struct Links {
    /// By community; 0 without edges.
    weight: Vec<f64>,
    /// The communities found, each once.
    met: Vec<u32>,
}

impl Links {
    fn add(&mut self, community: u32, weight: f64) {
        if weight == 0.0 {
            return;
        }
        if self.weight[community as usize] == 0.0 {
            self.met.push(community);
        }
        self.weight[community as usize] += weight;
    }

    fn end(&mut self) {
        for community in self.met.drain(..) {
            self.weight[community as usize] = 0.0;
        }
    }
}
