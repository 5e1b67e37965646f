//! The queue in which questions and newer weights wait for the predicting thread.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use outercore_core::Result;
use tokio::sync::oneshot;

use crate::body::Memory;
use crate::compute::Prediction;
use crate::question::Question;
use crate::refusal::Refusal;
use crate::served::Versioned;
use crate::turns::{Client, Turns};

/// A task for the predicting thread.
pub enum Order {
    /// A question to answer.
    Answer(Box<Job>),
    /// Newer weights to use from then on. `done` is notified when they are in use.
    Exchange { newer: Versioned, done: oneshot::Sender<()> },
}

/// A question on its way through the queue.
pub struct Job {
    pub question: Question,
    /// The memory of the question. The job owns it, because the client may leave before the answer.
    _memory: Memory,
    pub asked: Instant,
    pub until: Instant,
    pub reply: oneshot::Sender<Result<Prediction, Refusal>>,
    /// Sequence number of the question.
    number: u64,
}

/// Newer weights, which wait until all earlier questions are answered.
struct Exchange {
    newer: Versioned,
    done: oneshot::Sender<()>,
    /// Questions below this number were queued earlier.
    number: u64,
    /// Number of earlier questions that still wait.
    before: usize,
}

struct Waiting {
    questions: Turns<Box<Job>>,
    exchanges: VecDeque<Exchange>,
    next_number: u64,
    /// Whether new questions may arrive.
    is_open: bool,
    /// Whether the thread takes questions.
    is_taken: bool,
}

struct Line {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// The end of the queue for questions and weights.
#[derive(Clone)]
pub struct Queue(Arc<Entrance>);

/// The end of the queue for the predicting thread.
pub struct Orders(Arc<Line>);

/// Closes the queue when the last [`Queue`] is dropped.
struct Entrance(Arc<Line>);

/// Creates a queue for at most `most` questions.
pub fn queue(most: usize) -> (Queue, Orders) {
    let waiting = Waiting {
        questions: Turns::new(most),
        exchanges: VecDeque::new(),
        next_number: 0,
        is_open: true,
        is_taken: true,
    };
    let line = Arc::new(Line { waiting: Mutex::new(waiting), changed: Condvar::new() });
    (Queue(Arc::new(Entrance(Arc::clone(&line)))), Orders(line))
}

impl Queue {
    /// Queues a question of `client` and waits for the answer. The question holds `memory`.
    ///
    /// # Errors
    /// At once if the queue is full and the client already has its share of it. Later, if a client
    /// with fewer questions needs the place. After `until`. Errors of the answer.
    pub async fn ask(
        &self,
        client: Client,
        (question, memory): (Question, Memory),
        until: Instant,
    ) -> Result<Prediction, Refusal> {
        let (reply, answer) = oneshot::channel();
        let asked = Instant::now();
        self.0.0.hand_in(client, |number| {
            Box::new(Job { question, _memory: memory, asked, until, reply, number })
        })?;
        match tokio::time::timeout_at(until.into(), answer).await {
            Ok(Ok(answer)) => answer,
            // The thread dropped the question because it panicked.
            Ok(Err(_)) => Err(Refusal::failed()),
            Err(_) => Err(Refusal::late()),
        }
    }

    /// Waits until the newer model is in use. The older model answers all earlier questions.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn exchange(&self, newer: Versioned) -> Result<(), Refusal> {
        let (done, is_done) = oneshot::channel();
        self.0.0.hand_in_exchange(newer, done)?;
        is_done.await.map_err(|_| Refusal::failed())
    }

    /// Number of waiting questions.
    pub fn waiting(&self) -> usize {
        self.0.0.lock().questions.len()
    }

    /// Whether the predicting thread has ended.
    pub fn is_closed(&self) -> bool {
        !self.0.0.lock().is_taken
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_in(&self, client: Client, job: impl FnOnce(u64) -> Box<Job>) -> Result<(), Refusal> {
        let mut waiting = self.lock();
        if !waiting.is_taken {
            return Err(Refusal::stopping());
        }
        let number = waiting.next_number;
        waiting.next_number += 1;
        let refused = waiting.questions.push(client, job(number));
        if let Some(refused) = &refused {
            waiting.gone(refused.number);
        }
        drop(waiting);
        self.changed.notify_one();
        // An error of `send` only says that the client has left.
        if let Some(refused) = refused {
            drop(refused.reply.send(Err(Refusal::overloaded())));
        }
        Ok(())
    }

    fn hand_in_exchange(&self, newer: Versioned, done: oneshot::Sender<()>) -> Result<(), Refusal> {
        let mut waiting = self.lock();
        if !waiting.is_taken {
            return Err(Refusal::stopping());
        }
        let (number, before) = (waiting.next_number, waiting.questions.len());
        waiting.exchanges.push_back(Exchange { newer, done, number, before });
        drop(waiting);
        self.changed.notify_one();
        Ok(())
    }
}

impl Waiting {
    /// Removes a question from the counts: it no longer waits.
    fn gone(&mut self, number: u64) {
        for exchange in self.exchanges.iter_mut().filter(|exchange| number < exchange.number) {
            exchange.before -= 1;
        }
    }

    fn next(&mut self) -> Option<Order> {
        if self.exchanges.front().is_some_and(|exchange| exchange.before == 0) {
            let Exchange { newer, done, .. } = self.exchanges.pop_front()?;
            return Some(Order::Exchange { newer, done });
        }
        let job = self.questions.pop()?;
        self.gone(job.number);
        Some(Order::Answer(job))
    }
}

impl Orders {
    /// Waits for the next order; `None` if the queue is empty and closed.
    pub fn wait(&self) -> Option<Order> {
        let mut waiting = self.0.lock();
        loop {
            match waiting.next() {
                None if waiting.is_open => {
                    let woken = self.0.changed.wait(waiting);
                    waiting = woken.unwrap_or_else(PoisonError::into_inner);
                }
                order => return order,
            }
        }
    }

    /// The next order, if one waits.
    pub fn next(&self) -> Option<Order> {
        self.0.lock().next()
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        self.0.lock().is_open = false;
        self.0.changed.notify_one();
    }
}

impl Drop for Orders {
    /// Drops all waiting orders, also after a panic, because they would never be answered.
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.is_taken = false;
        waiting.exchanges.clear();
        let left: Vec<_> = std::iter::from_fn(|| waiting.questions.pop()).collect();
        drop(waiting);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::body::Bodies;

    #[test]
    fn a_question_keeps_its_memory_until_it_is_dropped() {
        let (queue, orders) = queue(1);
        let bodies = Bodies::new(Duration::from_secs(60), 1);
        let take_most = || {
            let mut memory = bodies.memory();
            memory.take(15 << 20).map(|()| memory)
        };
        let asked = queue.ask(
            Client::default(),
            (Question::default(), take_most().unwrap()),
            Instant::now(),
        );
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        assert_eq!(runtime.block_on(asked).unwrap_err(), Refusal::late());
        assert_eq!(take_most().err(), Some(Refusal::overloaded()));
        drop(orders.next());
        assert!(take_most().is_ok());
    }

    #[test]
    fn a_full_queue_refuses_at_once_and_an_unanswered_question_is_late() {
        let (queue, orders) = queue(1);
        let question = Question { nodes: vec![0], ..Question::default() };
        let ask = || {
            let until = Instant::now() + Duration::from_millis(5);
            queue.ask(Client::default(), (question.clone(), Memory::unlimited()), until)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            assert_eq!(ask().await.unwrap_err(), Refusal::late());
            assert_eq!(ask().await.unwrap_err(), Refusal::overloaded());
            assert!(!queue.is_closed());
            drop(orders);
            assert_eq!(ask().await.unwrap_err(), Refusal::stopping());
            assert!(queue.is_closed());
        });
    }

    #[test]
    fn a_client_that_waits_for_much_makes_room_for_another() {
        let (queue, orders) = queue(4);
        let (many, one) = (Client::next(), Client::next());
        let until = Instant::now() + Duration::from_secs(60);
        let ask = |client| {
            let (queue, asked) = (queue.clone(), (Question::default(), Memory::unlimited()));
            tokio::spawn(async move { queue.ask(client, asked, until).await.err() })
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let asked = [many, many, many, many, one].map(ask);
            tokio::task::yield_now().await;
            assert_eq!(queue.waiting(), 4);
            drop(orders);
            let mut refused = Vec::new();
            for one in asked {
                refused.push(one.await.unwrap().unwrap());
            }
            let (failed, busy) = (Refusal::failed, Refusal::overloaded);
            assert_eq!(refused, [failed(), failed(), failed(), busy(), failed()]);
        });
    }

    #[test]
    fn a_question_whose_thread_is_gone_failed() {
        let (queue, orders) = queue(1);
        let question = Question { nodes: vec![0], ..Question::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let asked = queue.ask(
            Client::default(),
            (question, Memory::unlimited()),
            Instant::now() + Duration::from_secs(60),
        );
        let answered = runtime.block_on(async {
            let gone = async { drop(orders.wait()) };
            futures_join(asked, gone).await
        });
        assert_eq!(answered.unwrap_err(), Refusal::failed());
    }

    async fn futures_join<A>(asked: impl Future<Output = A>, gone: impl Future<Output = ()>) -> A {
        let mut asked = std::pin::pin!(asked);
        let mut gone = std::pin::pin!(gone);
        tokio::select! {
            biased;
            answer = &mut asked => return answer,
            () = &mut gone => {}
        }
        asked.await
    }
}
