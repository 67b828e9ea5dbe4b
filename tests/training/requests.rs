//! The queue of requests for the thread of a model.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use burn_wgsl::serve::{JoinConfig, Refusal, requests};

const CONFIG: JoinConfig = JoinConfig { batch: 4, wait: Duration::ZERO, waiting: 8 };

#[test]
fn requests_are_joined_in_their_order() {
    let (sender, joined) = requests(CONFIG);
    for request in 0..6 {
        sender.send(request).expect("there is room");
    }
    assert_eq!(sender.waiting(), 6);
    assert_eq!(joined.next(), Some(vec![0, 1, 2, 3]));
    assert_eq!(joined.take(), Some(4));
    assert!(joined.wait());
    sender.close();
    // Those that were accepted are answered.
    assert_eq!(joined.next(), Some(vec![5]));
    assert_eq!((joined.next(), joined.take(), joined.wait()), (None, None, false));
}

#[test]
fn a_full_or_closed_queue_gives_requests_back() {
    let (sender, joined) = requests(CONFIG);
    for request in 0..8 {
        sender.send(request).expect("there is room");
    }
    let refused = sender.send(8).expect_err("it is full");
    assert_eq!((refused.request, refused.reason), (8, Refusal::Full(8)));
    sender.discard(|request| request % 2 == 0);
    assert_eq!((sender.waiting(), joined.take()), (4, Some(1)));
    let other = sender.clone();
    drop(joined);
    assert_eq!(other.send(9).expect_err("nobody answers").reason, Refusal::Closed);
    assert_eq!(other.waiting(), 0);
}

#[test]
fn the_oldest_request_waits_for_others_but_not_for_long() {
    let wait = Duration::from_secs(60);
    let (sender, joined) = requests(JoinConfig { wait, ..CONFIG });
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for request in 0..4 {
                std::thread::sleep(Duration::from_millis(5));
                sender.send(request).expect("there is room");
            }
        });
        // A batch that is whole waits no longer.
        assert_eq!(joined.next(), Some(vec![0, 1, 2, 3]));
    });
    assert!(start.elapsed() < wait);
    // One that waits for ever is answered when no others can come.
    let (sender, joined) = requests(JoinConfig { wait: Duration::MAX, ..CONFIG });
    sender.send(1).expect("there is room");
    drop(sender);
    assert_eq!(joined.next(), Some(vec![1]));
    let wait = Duration::from_millis(20);
    let (sender, joined) = requests(JoinConfig { wait, ..CONFIG });
    sender.send(7).expect("there is room");
    let start = Instant::now();
    assert_eq!(joined.next(), Some(vec![7]));
    assert!(start.elapsed() >= wait / 2);
}

/// Each of many requests of many threads is taken once.
#[test]
fn no_request_is_lost_or_taken_twice() {
    const THREADS: usize = 8;
    const EACH: usize = 500;
    let (sender, joined) = requests(JoinConfig { wait: Duration::from_micros(50), ..CONFIG });
    let taken: Vec<AtomicUsize> = (0..THREADS * EACH).map(|_| AtomicUsize::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let sender = sender.clone();
            scope.spawn(move || {
                for request in 0..EACH {
                    let mut request = thread * EACH + request;
                    while let Err(refused) = sender.send(request) {
                        assert!(matches!(refused.reason, Refusal::Full(_)));
                        request = refused.request;
                        std::thread::yield_now();
                    }
                }
            });
        }
        drop(sender);
        while let Some(batch) = joined.next() {
            assert!(!batch.is_empty() && batch.len() <= 4);
            for request in batch {
                taken[request].fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    assert!(taken.iter().all(|count| count.load(Ordering::Relaxed) == 1));
}
