//! Hand-offs inside a client, and a lock that stays for a while: the order is that of all clients.

use std::sync::Mutex;
use std::time::Instant;

use super::*;

#[tokio::test]
async fn a_lock_that_stays_for_a_while_goes_to_the_first_in_the_order_when_that_ends() {
    for waiters in [&[0, 1][..], &[1, 0], &[1]] {
        let (server, clients) = clients::<2>().await;
        let stays = Instant::now();
        let guard = hold(&clients[0].fair_lock("stays")).await;
        guard.hold_at_least(ms(1_200));
        let mut waiting = Vec::new();
        for client in waiters {
            waiting.push(waiter(&server, clients[*client].fair_lock("stays")).await);
        }
        apart().await;
        release(guard).await;
        assert_eq!(queue(&server, "stays").len(), waiters.len());
        let first = waiting.remove(0);
        assert!(!first.is_finished());
        let guard = soon("the first", first).await.unwrap();
        let after = stays.elapsed();
        assert!(after >= ms(1_190) && passed(stays) < ms(2_500), "{after:?}");
        assert!(waiting.iter().all(|second| !second.is_finished()));
        release(guard).await;
        take_turns(&server, waiting).await;
    }
}

/// The order in which these waiters, each of one of two clients, have a lock that the first client has.
async fn order_of(server: &Server, clients: [&LockClient; 2], waiters: &[usize]) -> Vec<usize> {
    let order = Arc::new(Mutex::new(Vec::new()));
    let guard = hold(&clients[0].fair_lock("turns")).await;
    let mut tasks = Vec::new();
    for (number, client) in waiters.iter().enumerate() {
        let order = order.clone();
        let then = move |guard: LockGuard| {
            order.lock().unwrap().push(number);
            drop(guard);
        };
        tasks.push(waiter_then(server, clients[*client].fair_lock("turns"), then).await);
        far_apart().await;
    }
    release(guard).await;
    for task in tasks {
        soon("a turn", task).await.unwrap();
    }
    let order = order.lock().unwrap().clone();
    wait_until("a free lock", SOON, || !server.exists("turns")).await;
    order
}

#[tokio::test]
async fn a_client_with_a_turn_serves_its_own_waiters_before_older_ones_of_others() {
    let server = Server::start();
    let other = connect(&server).await;
    for (turn, expected) in [(MINUTE, [1, 3, 0, 2]), (Duration::ZERO, [0, 1, 2, 3])] {
        let one = LockClient::builder().url(server.url()).fair_turn(turn).connect().await.unwrap();
        assert_eq!(order_of(&server, [&one, &other], &[1, 0, 1, 0]).await, expected, "{turn:?}");
    }
}

#[tokio::test]
async fn after_its_turn_a_client_leaves_the_lock_to_older_waiters_of_others() {
    const TURN: Duration = ms(1_500);
    let server = Server::start();
    let other = connect(&server).await;
    let one = LockClient::builder().url(server.url()).fair_turn(TURN).connect().await.unwrap();
    let guard = hold(&one.fair_lock("after")).await;
    let older = waiter(&server, other.fair_lock("after")).await;
    let mut younger = Vec::new();
    for _ in 0..3 {
        younger.push(waiter(&server, one.fair_lock("after")).await);
    }
    release(guard).await;
    let begun = Instant::now();
    let mut younger = younger.into_iter();
    // They come by hand-offs, in the turn; the first of them goes on until it is over.
    release(soon("a hand-off", younger.next().unwrap()).await.unwrap()).await;
    let last = soon("a hand-off", younger.next().unwrap()).await.unwrap();
    wait_until("the end of the turn", SOON, || begun.elapsed() > TURN).await;
    release(last).await;
    release(soon("the older one", older).await.unwrap()).await;
    release(soon("the last one", younger.next().unwrap()).await.unwrap()).await;
}
