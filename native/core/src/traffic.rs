//! What came into queues since the store was opened, by topic and kind of message, and how transactions ended: what the metrics
//! tell of it (BrokerMetricsManager.java), and of what is new since they asked last the statistics (BrokerStatsManager.java).
//!
//! Topics have numbers, so that whoever reads all of them can do so piece by piece; a number may pass to another topic when
//! one is deleted.

use std::{collections::HashMap, hash::BuildHasherDefault, sync::Arc};

use crate::consume_queue::TopicHasher;

/// Topics that are told apart; what comes in for more is counted together.
pub const TOPICS_MAX: usize = 50_000;

/// Sizes of messages that are told apart, in bytes: up to each of these, and above.
const SIZES: [u64; 6] = [1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];
/// Times from a transaction's beginning to its commit, in seconds.
const LATENCIES: [u64; 6] = [5, 60, 600, 3600, 12 * 3600, 24 * 3600];

/// How many there were in each of 7 ranges, and the sum of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Histogram {
    pub counts: [u64; 7],
    pub sum: u64,
}

impl Histogram {
    fn note(&mut self, bounds: &[u64; 6], value: u64) {
        self.counts[bounds.iter().position(|&bound| value <= bound).unwrap_or(bounds.len())] += 1;
        self.sum += value;
    }
}

/// TopicMessageType.java, by its number among ours, of what producers send; and what the broker itself stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Normal,
    Fifo,
    Delay,
    Transaction,
    /// Messages that come again, are committed, or are given back: of statistics only.
    Inner,
}

impl Kind {
    pub const ALL: [Self; 5] = [Self::Normal, Self::Fifo, Self::Delay, Self::Transaction, Self::Inner];
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    pub messages: u64,
    pub bytes: u64,
    /// Of the messages of a batch only their mean is noted, as in Apache.
    pub sizes: Histogram,
}

/// How transactions ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ends {
    pub committed: u64,
    pub rolled_back: u64,
    pub latencies: Histogram,
}

#[derive(Debug, Clone)]
pub struct Topic {
    /// None for those that are counted together.
    pub name: Option<Arc<[u8]>>,
    pub counts: [Option<Box<Count>>; Kind::ALL.len()],
    pub ends: Option<Box<Ends>>,
    /// Messages and bytes that `take_arrivals` has told of.
    taken: (u64, u64),
    is_changed: bool,
}

impl Topic {
    fn new(name: Option<Arc<[u8]>>) -> Self {
        Self { name, counts: Default::default(), ends: None, taken: (0, 0), is_changed: false }
    }

    fn take_arrivals(&mut self) -> (u64, u64) {
        let counts = self.counts.iter().flatten();
        let all = counts.fold((0, 0), |(messages, bytes), count| (messages + count.messages, bytes + count.bytes));
        let before = std::mem::replace(&mut self.taken, all);
        self.is_changed = false;
        (all.0 - before.0, all.1 - before.1)
    }
}

/// Topic, None for those that are counted together; messages, bytes of their records.
pub type Arrival = (Option<Arc<[u8]>>, u64, u64);

/// A topic's number as a queue keeps it, which so needn't be looked for with each message. The topic is asked for by name when
/// another one was forgotten since.
#[derive(Debug, Clone, Copy, Default)]
pub struct Number {
    value: u32,
    epoch: u32,
}

pub struct Traffic {
    /// The first is that of those counted together.
    topics: Vec<Topic>,
    numbers: HashMap<Arc<[u8]>, usize, BuildHasherDefault<TopicHasher>>,
    /// Which numbers that queues keep are right: those of this epoch, which ends when a topic is forgotten.
    epoch: u32,
    /// Numbers of topics that something came to since `take_arrivals`, and some that belong to others by now.
    changed: Vec<usize>,
    /// (messages, bytes) of delay levels that were delivered.
    pub delivered: (u64, u64),
    /// Requests that lanes answered themselves.
    pub taken: u64,
}

impl Default for Traffic {
    fn default() -> Self {
        let (topics, numbers, changed) = (vec![Topic::new(None)], HashMap::default(), Vec::new());
        Self { topics, numbers, epoch: 1, changed, delivered: (0, 0), taken: 0 }
    }
}

impl Traffic {
    /// Messages of a kind came to a queue of a topic, whose `number` that queue keeps.
    pub fn note(&mut self, number: &mut Number, topic: &[u8], kind: Kind, messages: u64, bytes: u64) {
        if number.epoch != self.epoch {
            *number = Number { value: self.number(topic) as u32, epoch: self.epoch };
        }
        let number = number.value as usize;
        let topic = &mut self.topics[number];
        if !std::mem::replace(&mut topic.is_changed, true) {
            self.changed.push(number);
        }
        let count = topic.counts[kind as usize].get_or_insert_default();
        count.messages += messages;
        count.bytes += bytes;
        count.sizes.note(&SIZES, bytes / messages.max(1));
    }

    /// A transaction has ended, so many seconds after it began.
    pub fn note_end(&mut self, topic: &[u8], is_committed: bool, seconds: u64) {
        let number = self.number(topic);
        let ends = self.topics[number].ends.get_or_insert_default();
        if is_committed {
            ends.committed += 1;
            ends.latencies.note(&LATENCIES, seconds);
        } else {
            ends.rolled_back += 1;
        }
    }

    fn number(&mut self, name: &[u8]) -> usize {
        match self.numbers.get(name) {
            Some(&number) => number,
            None if self.topics.len() > TOPICS_MAX => 0,
            None => {
                let name: Arc<[u8]> = name.into();
                self.numbers.insert(Arc::clone(&name), self.topics.len());
                self.topics.push(Topic::new(Some(name)));
                self.topics.len() - 1
            }
        }
    }

    /// What came since it was taken last, of `count_max` topics at most.
    pub fn take_arrivals(&mut self, count_max: usize) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        while arrivals.len() < count_max {
            let Some(number) = self.changed.pop() else { break };
            let Some(topic) = self.topics.get_mut(number) else { continue };
            let (messages, bytes) = topic.take_arrivals();
            if messages > 0 {
                arrivals.push((topic.name.clone(), messages, bytes));
            }
        }
        arrivals
    }

    /// Topics by their numbers, from `begin` on.
    pub fn topics(&self, begin: usize, count_max: usize) -> &[Topic] {
        let begin = begin.min(self.topics.len());
        &self.topics[begin..self.topics.len().min(begin.saturating_add(count_max))]
    }

    pub fn forget(&mut self, topic: &[u8]) {
        let Some(number) = self.numbers.remove(topic) else { return };
        self.epoch = self.epoch.wrapping_add(1);
        self.topics.swap_remove(number);
        let Some(moved) = self.topics.get(number) else { return };
        if moved.is_changed {
            self.changed.push(number);
        }
        if let Some(name) = moved.name.clone() {
            self.numbers.insert(name, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(traffic: &Traffic) -> Vec<Option<&[u8]>> {
        traffic.topics(0, usize::MAX).iter().map(|topic| topic.name.as_deref()).collect()
    }

    fn note(traffic: &mut Traffic, topic: &[u8], kind: Kind, messages: u64, bytes: u64) {
        traffic.note(&mut Number::default(), topic, kind, messages, bytes);
    }

    #[test]
    fn a_count_is_of_its_topic_and_kind() {
        let mut traffic = Traffic::default();
        note(&mut traffic, b"a", Kind::Normal, 1, 1024);
        note(&mut traffic, b"a", Kind::Normal, 10, 10_250);
        note(&mut traffic, b"a", Kind::Fifo, 1, 5 << 20);
        traffic.note_end(b"b", true, 61);
        traffic.note_end(b"b", false, 61);
        let [_, a, b] = traffic.topics(0, 9) else { panic!() };
        let count =
            Count { messages: 11, bytes: 11_274, sizes: Histogram { counts: [1, 1, 0, 0, 0, 0, 0], sum: 2049 } };
        assert_eq!(a.counts[0].as_deref(), Some(&count));
        assert_eq!(a.counts[1].as_deref().unwrap().sizes.counts, [0, 0, 0, 0, 0, 0, 1]);
        let latencies = Histogram { counts: [0, 0, 1, 0, 0, 0, 0], sum: 61 };
        assert_eq!(b.ends.as_deref(), Some(&Ends { committed: 1, rolled_back: 1, latencies }));
        assert_eq!((traffic.topics(2, 9).len(), traffic.topics(3, 9).len(), traffic.topics(9, 9).len()), (1, 0, 0));
    }

    #[test]
    fn a_topic_that_is_forgotten_begins_anew() {
        let mut traffic = Traffic::default();
        for name in [b"a", b"b", b"c"] {
            note(&mut traffic, name, Kind::Normal, 1, 100);
        }
        traffic.forget(b"a");
        traffic.forget(b"a");
        note(&mut traffic, b"c", Kind::Normal, 1, 100);
        assert_eq!(names(&traffic), [None, Some(&b"c"[..]), Some(b"b")]);
        assert_eq!(traffic.topics(1, 1)[0].counts[0].as_deref().unwrap().messages, 2);
        traffic.forget(b"b");
        assert_eq!(names(&traffic), [None, Some(&b"c"[..])]);
    }

    #[test]
    fn what_came_is_taken_once_whatever_becomes_of_its_number() {
        fn taken(traffic: &mut Traffic) -> Vec<(String, u64, u64)> {
            let name = |name: Option<Arc<[u8]>>| String::from_utf8(name.unwrap().to_vec()).unwrap();
            let taken = traffic.take_arrivals(9).into_iter();
            let mut found: Vec<_> = taken.map(|(topic, messages, bytes)| (name(topic), messages, bytes)).collect();
            found.sort();
            found
        }
        let mut traffic = Traffic::default();
        for name in [b"a", b"b", b"c"] {
            note(&mut traffic, name, Kind::Normal, 1, 100);
        }
        assert_eq!(traffic.take_arrivals(2).len() + traffic.take_arrivals(2).len(), 3);
        assert_eq!(taken(&mut traffic), []);
        note(&mut traffic, b"c", Kind::Fifo, 1, 100);
        note(&mut traffic, b"c", Kind::Inner, 2, 300);
        traffic.forget(b"a");
        note(&mut traffic, b"d", Kind::Normal, 1, 7);
        assert_eq!(taken(&mut traffic), [("c".to_owned(), 3, 400), ("d".to_owned(), 1, 7)]);
        note(&mut traffic, b"c", Kind::Normal, 1, 1);
        traffic.forget(b"c");
        note(&mut traffic, b"c", Kind::Normal, 1, 2);
        assert_eq!(taken(&mut traffic), [("c".to_owned(), 1, 2)]);
        assert_eq!(taken(&mut traffic), []);
    }

    proptest! {
        /// Topics are few, each has two queues, and those of one that is forgotten are gone as well.
        #[test]
        fn queues_keep_the_numbers_of_their_topics(steps in prop::collection::vec((0..9u8, 0..6u8, 0..2usize), 0..200)) {
            let (mut kept, mut asked) = (Traffic::default(), Traffic::default());
            let mut queues = [[Number::default(); 2]; 6];
            for (bytes, topic, queue) in steps {
                let of_topic = &mut queues[usize::from(topic)];
                if bytes == 0 {
                    *of_topic = Default::default();
                    kept.forget(&[topic]);
                    asked.forget(&[topic]);
                } else {
                    kept.note(&mut of_topic[queue], &[topic], Kind::Normal, 1, bytes.into());
                    note(&mut asked, &[topic], Kind::Normal, 1, bytes.into());
                }
            }
            prop_assert_eq!(format!("{:?}", kept.topics(0, 9)), format!("{:?}", asked.topics(0, 9)));
        }
    }

    #[test]
    fn topics_over_the_bound_are_counted_together() {
        let mut traffic = Traffic::default();
        for number in 0..TOPICS_MAX + 3 {
            note(&mut traffic, format!("{number}").as_bytes(), Kind::Delay, 2, 100);
        }
        assert_eq!(traffic.topics(0, usize::MAX).len(), TOPICS_MAX + 1);
        assert_eq!(traffic.topics(0, 1)[0].counts[Kind::Delay as usize].as_deref().unwrap().messages, 6);
        let mut number = Number::default();
        traffic.note(&mut number, b"new", Kind::Delay, 1, 100);
        assert_eq!(traffic.topics(0, 1)[0].counts[Kind::Delay as usize].as_deref().unwrap().messages, 7);
        traffic.forget(b"0");
        traffic.note(&mut number, b"new", Kind::Delay, 1, 1);
        assert_eq!(traffic.topics(TOPICS_MAX, 1)[0].name.as_deref(), Some(&b"new"[..]));
    }
}
