//! Finds the true answers to questions among more triples than fit in memory.

use outercore_core::{Error, Result};

/// Places in the sieve, which rejects most triples that ask other questions. One byte each, to fit
/// a core's cache.
const SIEVE: usize = 1 << 18;

/// A triple as a question: the two known parts and the answer.
pub type Asked = [i64; 3];

/// For each of a set of questions, the entities that complete it to a true triple.
///
/// Pass all triples twice: first to [`Self::count`], which counts the answers, then to
/// [`Self::add`], which stores them. [`Self::finish`] sorts them; after that they can be looked up.
///
/// **Cost**: 16 bytes per distinct question; 4 bytes per answer if ids have 31 bits, otherwise 8;
/// 256 KiB.
#[derive(Debug)]
pub struct KnownAnswers {
    /// Factor of the first part in a key; all second parts are below it.
    scale: i64,
    /// First part x scale + second part, ascending and distinct.
    keys: Vec<i64>,
    sieve: Vec<bool>,
    /// One entry per question. While answers are counted: their number, stored one entry further.
    /// While they are added: the place of the next answer. At the end: the end of its answers,
    /// which is the start of the next question's.
    starts: Vec<u64>,
    answers: Ids,
    /// Whether answers have been added.
    is_placed: bool,
}

#[derive(Debug)]
enum Ids {
    Short(Vec<i32>),
    Long(Vec<i64>),
}

impl KnownAnswers {
    /// No answers yet, for `questions` whose first part is below `first` and second part below
    /// `second`.
    ///
    /// # Errors
    /// `Invalid`: the product of `first` and `second` exceeds 63 bits.
    pub fn new(questions: impl Iterator<Item = [i64; 2]>, first: u64, second: u64) -> Result<Self> {
        if i64::try_from(u128::from(first) * u128::from(second)).is_err() {
            return Err(Error::invalid(format!(
                "known triples: {first} entities times {second} relations is more than 64 bits hold"
            )));
        }
        let scale = second as i64;
        let mut keys: Vec<i64> = questions.map(|[one, other]| one * scale + other).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut sieve = vec![false; SIEVE];
        for key in &keys {
            sieve[sieve_place(*key)] = true;
        }
        let starts = vec![0; keys.len() + 1];
        let short = first.max(second) < 1 << 31;
        let answers = if short { Ids::Short(Vec::new()) } else { Ids::Long(Vec::new()) };
        Ok(Self { scale, keys, sieve, starts, answers, is_placed: false })
    }

    /// Counts the answers in a batch of triples.
    pub fn count(&mut self, triples: impl Iterator<Item = Asked>) {
        for [one, other, _] in triples {
            if let Some(question) = self.question(one, other) {
                self.starts[question + 1] += 1;
            }
        }
    }

    /// Number of counted answers; repeated ones count each time.
    pub fn counted(&self) -> u64 {
        match self.is_placed {
            false => self.starts.iter().sum(),
            true => self.starts.last().copied().unwrap_or(0),
        }
    }

    /// Stores the answers in a batch of triples, after all triples were counted.
    pub fn add(&mut self, triples: impl Iterator<Item = Asked>) {
        self.place();
        for [one, other, answer] in triples {
            let Some(question) = self.question(one, other) else { continue };
            let place = &mut self.starts[question + 1];
            match &mut self.answers {
                Ids::Short(answers) => answers[*place as usize] = answer as i32,
                Ids::Long(answers) => answers[*place as usize] = answer,
            }
            *place += 1;
        }
    }

    /// Sorts the answers and removes duplicates.
    pub fn finish(&mut self) {
        self.place();
        match &mut self.answers {
            Ids::Short(answers) => order(answers, &mut self.starts),
            Ids::Long(answers) => order(answers, &mut self.starts),
        }
    }

    /// The answers to a question, ascending.
    pub fn of(&self, one: i64, other: i64) -> impl ExactSizeIterator<Item = i64> + '_ {
        let some = self.range(one, other);
        some.map(|place| self.answer(place))
    }

    /// Finds the answers to each question among `candidates`, which ascend. Appends pairs of
    /// question index and candidate index; a candidate that occurs several times gives several
    /// pairs.
    ///
    /// Stops after the question that reaches `most` pairs; returns the index of the next question.
    pub fn among(
        &self,
        questions: impl Iterator<Item = [i64; 2]>,
        candidates: &[i64],
        most: usize,
        found: &mut Vec<[i64; 2]>,
    ) -> usize {
        let mut next = 0;
        for [one, other] in questions {
            if found.len() >= most {
                break;
            }
            self.among_candidates(next as i64, self.range(one, other), candidates, found);
            next += 1;
        }
        next
    }

    fn among_candidates(
        &self,
        question: i64,
        some: std::ops::Range<usize>,
        candidates: &[i64],
        found: &mut Vec<[i64; 2]>,
    ) {
        let (Some(&least), Some(&most)) = (candidates.first(), candidates.last()) else { return };
        let some = self.bound(&some, least)..self.bound(&some, most + 1);
        // Look up the shorter list in the longer one.
        if some.len() <= candidates.len() {
            for answer in some.map(|place| self.answer(place)) {
                let first = candidates.partition_point(|&candidate| candidate < answer);
                let same = candidates[first..].iter().take_while(|&&one| one == answer).count();
                found.extend((first..first + same).map(|place| [question, place as i64]));
            }
            return;
        }
        for (place, &candidate) in candidates.iter().enumerate() {
            let first = self.bound(&some, candidate);
            if first < some.end && self.answer(first) == candidate {
                found.push([question, place as i64]);
            }
        }
    }

    /// The first place in a range of answers whose answer is not below `answer`.
    fn bound(&self, some: &std::ops::Range<usize>, answer: i64) -> usize {
        some.start
            + match &self.answers {
                Ids::Short(all) => {
                    all[some.clone()].partition_point(|&one| i64::from(one) < answer)
                }
                Ids::Long(all) => all[some.clone()].partition_point(|&one| one < answer),
            }
    }

    fn answer(&self, place: usize) -> i64 {
        match &self.answers {
            Ids::Short(answers) => answers[place].into(),
            Ids::Long(answers) => answers[place],
        }
    }

    fn range(&self, one: i64, other: i64) -> std::ops::Range<usize> {
        match self.question(one, other) {
            Some(question) => self.starts[question] as usize..self.starts[question + 1] as usize,
            None => 0..0,
        }
    }

    fn question(&self, one: i64, other: i64) -> Option<usize> {
        if other >= self.scale {
            return None;
        }
        let key = one.checked_mul(self.scale)?.checked_add(other)?;
        if !self.sieve[sieve_place(key)] {
            return None;
        }
        self.keys.binary_search(&key).ok()
    }

    /// Reserves memory for the counted answers, before the first one is added.
    fn place(&mut self) {
        if self.is_placed {
            return;
        }
        let count = self.counted() as usize;
        match &mut self.answers {
            Ids::Short(answers) => *answers = vec![0; count],
            Ids::Long(answers) => *answers = vec![0; count],
        }
        let mut before = 0;
        for start in &mut self.starts[1..] {
            before += std::mem::replace(start, before);
        }
        self.is_placed = true;
    }
}

fn sieve_place(key: i64) -> usize {
    key.rem_euclid(SIEVE as i64) as usize
}

/// Sorts the answers to each question and removes duplicates; `starts` holds the ends.
fn order<T: Ord + Copy>(answers: &mut Vec<T>, starts: &mut [u64]) {
    let (mut kept, mut begin) = (0, 0);
    for start in &mut starts[1..] {
        let end = *start as usize;
        answers[begin..end].sort_unstable();
        let first = kept;
        for place in begin..end {
            let answer = answers[place];
            if kept == first || answers[kept - 1] != answer {
                answers[kept] = answer;
                kept += 1;
            }
        }
        begin = end;
        *start = kept as u64;
    }
    answers.truncate(kept);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn answers_are_those_of_a_naive_search(
            triples in prop::collection::vec((0i64..9, 0i64..3, 0i64..9), 0..80),
            asked in prop::collection::vec((0i64..9, 0i64..3), 0..20),
            mut candidates in prop::collection::vec(0i64..9, 0..12),
            most in 1usize..6,
            long in any::<bool>(),
        ) {
            let triples: Vec<Asked> = triples.into_iter().map(|(a, b, c)| [a, b, c]).collect();
            let asked: Vec<[i64; 2]> = asked.into_iter().map(|(a, b)| [a, b]).collect();
            let entities = if long { 1 << 40 } else { 9 };
            let mut known = KnownAnswers::new(asked.iter().copied(), entities, 3).unwrap();
            known.count(triples.iter().copied());
            let counted = known.counted();
            known.add(triples.iter().copied());
            prop_assert_eq!(known.counted(), counted);
            known.finish();
            let expected = |[one, other]: [i64; 2]| -> BTreeSet<i64> {
                let matching = triples.iter().filter(|triple| triple[..2] == [one, other]);
                matching.map(|triple| triple[2]).collect()
            };
            for &question in &asked {
                let found: Vec<i64> = known.of(question[0], question[1]).collect();
                let expected: Vec<i64> = expected(question).into_iter().collect();
                prop_assert_eq!(found, expected);
            }
            prop_assert_eq!(known.of(9, 0).len() + known.of(0, 3).len(), 0);
            candidates.sort_unstable();
            let (mut found, mut next) = (Vec::new(), 0);
            while next < asked.len() {
                let mut some = Vec::new();
                let count = known.among(asked[next..].iter().copied(), &candidates, most, &mut some);
                prop_assert!(count > 0);
                found.extend(some.iter().map(|&[row, place]| [row + next as i64, place]));
                next += count;
            }
            let naive: Vec<[i64; 2]> = asked
                .iter()
                .enumerate()
                .flat_map(|(row, &question)| {
                    let answers = expected(question);
                    let places = candidates.iter().enumerate();
                    let hits = places.filter(move |(_, candidate)| answers.contains(candidate));
                    hits.map(move |(place, _)| [row as i64, place as i64]).collect::<Vec<_>>()
                })
                .collect();
            prop_assert_eq!(found, naive);
        }
    }

    #[test]
    fn more_questions_than_numbers_hold_are_refused() {
        let error = KnownAnswers::new(std::iter::empty(), 1 << 40, 1 << 30).unwrap_err();
        assert!(error.to_string().contains("more than 64 bits hold"), "{error}");
    }
}
